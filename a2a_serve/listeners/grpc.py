"""The gRPC listener of this machine: one loopback port for every gRPC service of the server."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from dataclasses import dataclass

import grpc
import grpc.aio

from a2a_serve.core.errors import ConfigError, PortTaken
from a2a_serve.listeners.sockets import bind_tcp

_log = logging.getLogger(__name__)

LAST_WORDS = 1.0
"""Seconds, after the grace, for calls that were cut off to end."""


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Sizes in bytes, times in seconds."""

    message: int = 16 << 20
    metadata: int = 16 << 10
    calls: int = 1024
    calls_of_connection: int = 256
    keepalive: int = 30
    keepalive_timeout: int = 20
    handshake: int = 10


class GrpcListener:
    """`host` is a loopback address or `localhost` (127.0.0.1); port 0 takes a free one, which `port` tells once bound.

    Needs the event loop that it will serve in, from `bind` on.
    """

    def __init__(self, name: str, host: str = "127.0.0.1", port: int = 0, *, limits: GrpcLimits | None = None) -> None:
        self.name = name
        self.host, self.port = host, port
        self._limits = limits or GrpcLimits()
        self._server: grpc.aio.Server | None = None

    @property
    def target(self) -> str:
        """What clients dial, `address:port`."""
        return f"{_loopback(self.host)}:{self.port}"

    def bind(self) -> None:
        """Take the port, so that it is known before the application is made.

        Raises PortTaken, or ConfigError for an address that is not this machine's own loopback.
        """
        target = self.target
        server = grpc.aio.server(options=_options(self._limits), maximum_concurrent_rpcs=self._limits.calls)
        try:
            bind_tcp(self.host, self.port).close()  # where that fails, gRPC would write to stderr
            self.port = server.add_insecure_port(target)
        except (RuntimeError, PortTaken) as error:
            hint = "Stop what uses it, or choose another with --grpc-port (0 takes a free one, off does without)."
            raise PortTaken(f"Port {self.port} on {self.host} is taken.", hint) from error
        self._server = server

    async def start(self, app: grpc.GenericRpcHandler) -> None:
        """Bind, unless that is done, and serve the calls that `app` knows. Raises what `bind` raises."""
        if self._server is None:
            self.bind()
        assert self._server is not None
        self._server.add_generic_rpc_handlers((app,))
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Accept no more, give open calls `grace` seconds, then end them. Ends within `grace` + about 1 second."""
        server, self._server = self._server, None
        if server is None:
            return
        try:
            async with asyncio.timeout(grace + LAST_WORDS):
                await server.stop(grace)
        except TimeoutError:
            _log.error("listener %s: some calls do not end", self.name)


def _loopback(host: str) -> str:
    """How gRPC writes the address."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise ConfigError(f"gRPC is served on this machine only, not on {host!r}.", "Use 127.0.0.1.")
    return f"[{address}]" if address.version == 6 else str(address)


def _options(limits: GrpcLimits) -> list[tuple[str, int]]:
    """Channel arguments (grpc_types.h). What the server sends has no bound of its own: a task is as large as it is."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.message),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", limits.metadata),
        ("grpc.absolute_max_metadata_size", limits.metadata),
        ("grpc.max_concurrent_streams", limits.calls_of_connection),
        ("grpc.keepalive_time_ms", limits.keepalive * 1000),
        ("grpc.keepalive_timeout_ms", limits.keepalive_timeout * 1000),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.server_handshake_timeout_ms", limits.handshake * 1000),
    ]
