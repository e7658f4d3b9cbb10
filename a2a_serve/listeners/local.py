"""Listeners of this machine: a TCP port, a unix socket. uvicorn's HTTP inside the running loop, several in one."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvicorn

from a2a_serve.listeners import ASGIApp, Message, Scope
from a2a_serve.listeners.protocol import ConnectionLimits, EdgeProtocol, Shared, make_factory
from a2a_serve.listeners.sockets import bind_tcp, bind_unix, identify_file, socket_address

__all__ = ["ConnectionLimits", "TcpListener", "UnixListener", "socket_address"]

LAST_WORDS = 0.5
"""Seconds that an application gets, after the grace, to notice that its caller is cut off; then it is cancelled."""

_log = logging.getLogger(__name__)


class _HttpListener:
    """What both kinds share: serving connections of one bound socket, and ending them in bounded time.

    No `uvicorn.Server`: it captures signals, polls ten times a second, and sse-starlette patches its exit.
    """

    def __init__(self, name: str, limits: ConnectionLimits | None, wall: Callable[[], float]) -> None:
        self.name = name
        self._shared = Shared(name, limits or ConnectionLimits(), wall)
        self._server: asyncio.AbstractServer | None = None
        self._stopping = False

    def _configure(self, app: ASGIApp) -> uvicorn.Config:
        config = uvicorn.Config(
            self._ended_quietly(app),
            http=EdgeProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=self._shared.limits.keep_alive,
        )
        config.load()
        return config

    def _ended_quietly(self, app: ASGIApp) -> ASGIApp:
        """Keeps uvicorn from logging a traceback for each request that `stop` had to cancel."""

        async def serve(
            scope: Scope,
            receive: Callable[[], Awaitable[Message]],
            send: Callable[[Message], Awaitable[None]],
        ) -> None:
            try:
                await app(scope, receive, send)
            except asyncio.CancelledError:
                if not self._stopping:
                    raise

        return serve

    async def stop(self, grace: float) -> None:
        """Accept no more, give open requests `grace` seconds, then close. Ends within `grace` + about 1 second."""
        if self._server is None:
            return
        self._stopping = True
        self._server.close()
        for connection in self._connections():
            connection.shutdown()
        await self._wait_for_requests(grace)
        for connection in self._connections():
            connection.disconnect()
        await self._wait_for_requests(LAST_WORDS)
        for task in list(self._shared.tasks):
            task.cancel()
        await self._wait_for_requests(LAST_WORDS)
        for connection in self._connections():
            connection.abort()
        if self._shared.tasks:
            _log.error("listener %s: %d requests do not end", self.name, len(self._shared.tasks))
        self._server = None

    def _connections(self) -> list[EdgeProtocol]:
        return [each for each in self._shared.connections if isinstance(each, EdgeProtocol)]

    async def _wait_for_requests(self, seconds: float) -> None:
        if tasks := list(self._shared.tasks):
            await asyncio.wait(tasks, timeout=seconds)


class TcpListener(_HttpListener):
    """`host` is an IP address or `localhost` (127.0.0.1); port 0 takes a free one, which `port` tells once started."""

    def __init__(
        self,
        name: str,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        limits: ConnectionLimits | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, limits, wall)
        self.host, self.port = host, port
        self._bound: socket.socket | None = None

    def bind(self) -> None:
        """Take the port, so that it is known before the application is made.

        Raises PortTaken, or ConfigError for an address that is not this machine's.
        """
        self._bound = bind_tcp(self.host, self.port)
        self.port = self._bound.getsockname()[1]

    async def start(self, app: ASGIApp) -> None:
        """Bind, unless that is done, and serve. Raises what `bind` raises."""
        config = self._configure(app)
        if self._bound is None:
            self.bind()
        assert self._bound is not None
        bound, self._bound = self._bound, None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(make_factory(config, self._shared), sock=bound, backlog=config.backlog)

    async def stop(self, grace: float) -> None:
        """As every listener; a port that was bound and never served is let go."""
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        await super().stop(grace)


class UnixListener(_HttpListener):
    """A unix socket at `path`, of any length, with `mode`; owned by `uid` and `gid` where given (that needs root)."""

    def __init__(
        self,
        name: str,
        path: Path,
        mode: int = 0o600,
        uid: int | None = None,
        gid: int | None = None,
        *,
        limits: ConnectionLimits | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, limits, wall)
        self.path = path
        self._mode, self._uid, self._gid = mode, uid, gid
        self._file: tuple[int, int] | None = None

    async def start(self, app: ASGIApp) -> None:
        """Bind and serve; a stale socket is replaced. Raises PortTaken, ConfigError or DirectoryNotWritable."""
        config = self._configure(app)
        bound = bind_unix(self.path, self._mode, self._uid, self._gid)
        self._file = identify_file(self.path)
        loop, factory = asyncio.get_running_loop(), make_factory(config, self._shared)
        self._server = await loop.create_unix_server(factory, sock=bound, backlog=config.backlog)

    async def stop(self, grace: float) -> None:
        """As every listener; the socket's file goes first, unless another server has replaced it."""
        if self._file is not None and identify_file(self.path) == self._file:
            self.path.unlink(missing_ok=True)
        self._file = None
        await super().stop(grace)
