"""The listener family's contract: accept connections, tell who is at the other end, advertise endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

KINDS = {"local": "a2a_serve.listeners.local:TcpListener"}

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
ASGIApp = Callable[[Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Peer:
    """Facts about the other end, from the socket and never from a header. In the ASGI scope as `state["peer"]`."""

    listener: str
    address: str = ""
    uid: int | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An advertised URL. `binding` is A2A's protocol binding: JSONRPC, HTTP+JSON or GRPC."""

    binding: str
    url: str


class Listener(Protocol):
    name: str

    async def start(self, app: ASGIApp) -> None:
        """Bind and serve; returns when connections are accepted. Raises PortTaken."""

    async def stop(self, grace: float) -> None:
        """Accept no more, give open requests `grace` seconds, then close."""
