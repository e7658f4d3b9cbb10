"""One HTTP connection: uvicorn's protocol, with the bounds and the peer facts that it lacks."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from a2a_serve.listeners import Peer
from a2a_serve.listeners.sockets import read_peer

_UPGRADE = re.compile(rb"\r\nUp(?=grade[ \t]*:)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of a listener. Times in seconds, sizes in bytes."""

    connections: int = 256
    header_seconds: float = 10.0
    header_bytes: int = 64 << 10
    headers: int = 100
    keep_alive: int = 75


class Shared(ServerState):
    """What all connections of one listener share. `wall` gives seconds since the epoch, for the Date header."""

    def __init__(self, name: str, limits: ConnectionLimits, wall: Callable[[], float]) -> None:
        super().__init__()
        self.name = name
        self.limits = limits
        self._wall = wall
        self._second = 0

    def refresh_date(self) -> None:
        """uvicorn has a timer for this in each server; asked at each request it costs nothing while idle."""
        second = int(self._wall())
        if second != self._second:
            self._second = second
            self.default_headers = [(b"date", formatdate(second, usegmt=True).encode())]


def _without_upgrade(data: bytes) -> bytes:
    """The header without its Upgrade: no upgrade is offered, and passing it over is right (RFC 9110 7.8).

    httptools drops the body of a request that asks for one, as Java's client does with each first request.
    """
    end = data.find(b"\r\n\r\n")
    head, rest = (data, b"") if end < 0 else (data[:end], data[end:])
    return _UPGRADE.sub(b"\r\nX-", head) + rest


class EdgeProtocol(HttpToolsProtocol):
    """Adds to uvicorn's protocol: a deadline and a size for the header, a cap on connections, `Peer` in the scope.

    Its superclass has none of these: half a header stays open for ever (research/security.md F5).
    """

    def __init__(self, config: uvicorn.Config, shared: Shared) -> None:
        super().__init__(config, shared, {})
        self._shared = shared
        self._limits = shared.limits
        self._deadline: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._in_header = self._in_body = False

    # --- connection ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {"peer": self._peer(), "listener": self._shared.name}
        if len(self.connections) > self._limits.connections:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "The server has as many connections as it takes.")
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _peer(self) -> Peer:
        sock: socket.socket = self.transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX:
            uid, pid = read_peer(sock)
            return Peer(self._shared.name, uid=uid, pid=pid)
        return Peer(self._shared.name, address=self.client[0] if self.client else "")

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # --- header ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._header_bytes += len(data)
        if not self._in_body and b"pgrade" in data:
            data = _without_upgrade(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # CONNECT, or an Upgrade in two pieces: the parser is of no more use
            if self.cycle is not None:
                self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self._answer_unparsed()
            return
        if self._in_body:
            self._header_bytes = 0
        elif self._header_bytes > self._limits.header_bytes:
            self._answer_unparsed()
            return
        if not self._is_answering:
            self._arm()  # for a header; or for the rest of a body that was answered early

    def on_message_begin(self) -> None:
        self._in_header = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._disarm()
        self._in_header = False
        size = sum(len(name) + len(value) for name, value in self.headers) + len(self.url)
        if size > self._limits.header_bytes or len(self.headers) > self._limits.headers:
            self._header_bytes = self._limits.header_bytes + 1
            raise ValueError("header too large")
        self._header_bytes, self._in_body = 0, True
        self._shared.refresh_date()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._header_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_header:  # begun while the answer was on its way
            self._arm()

    def _answer_unparsed(self) -> None:
        if self._header_bytes > self._limits.header_bytes:
            self._answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's header is too large.")
        else:
            self._answer(HTTPStatus.BAD_REQUEST, "The request is not valid HTTP.")

    def _arm(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self._limits.header_seconds, self._on_deadline)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        if self._in_header and not self._is_answering:
            self._answer(HTTPStatus.REQUEST_TIMEOUT, "The request's header took too long.")
        else:
            self.transport.close()

    # --- answers of the connection itself --------------------------------------------------------------------------

    def _answer(self, status: HTTPStatus, sentence: str) -> None:
        """Refuse and close, without the application; in the middle of its answer only close."""
        self._disarm()
        if self._is_answering:
            self.disconnect()
            return
        body = json.dumps({"error": {"code": status.value, "status": status.name, "message": sentence}}).encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()

    def disconnect(self) -> None:
        """End the connection; the application sees it as the caller having gone."""
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def abort(self) -> None:
        """Drop the connection with whatever was not yet sent."""
        self.transport.abort()


def make_factory(config: uvicorn.Config, shared: Shared) -> Callable[[], Any]:
    return lambda: EdgeProtocol(config, shared)
