"""One request and its answer behind the guard: the body read within bounds and replayed, the answer marked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from a2a_serve.listeners import Message, Scope
from a2a_serve.server.json_hygiene import JsonLimits
from a2a_serve.server.refusals import Headers, Refused, render

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    body: int = 16 << 20
    body_of_strangers: int = 64 << 10
    body_seconds: float = 30.0
    bytes_per_second: int = 256 << 10
    """A body gets one second more for each so many bytes of it."""
    drain: int = 64 << 20
    drain_seconds: float = 5.0
    json: JsonLimits = field(default_factory=JsonLimits)


class Gone(Exception):
    """The caller went away while its body was read."""


class Exchange:
    """`state` is the scope's; every answer gets the request id, and echoes the extensions that were activated."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: str, limits: Limits) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.request_id = request_id
        self._limits = limits
        self.state: dict[str, Any] = scope.setdefault("state", {})
        self.state["request_id"] = request_id
        self.state["extensions"] = []
        self.started = False
        self._more = True
        self._give_up_at: float | None = None
        self._body: bytes | None = None

    async def read(self, length: int | None, limit: int) -> bytes:
        """The whole body; `length` is what the caller says it is. Raises Refused when it is too large or too slow."""
        if length is not None and length > limit:
            raise _too_large(limit)
        chunks, size = [], 0
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            async with asyncio.timeout_at(start + self._limits.body_seconds) as deadline:
                while self._more:
                    chunk = await self._next()
                    size += len(chunk)
                    if size > limit:
                        raise _too_large(limit)
                    chunks.append(chunk)
                    if self._more:
                        allowed = self._limits.body_seconds + size / self._limits.bytes_per_second
                        deadline.reschedule(start + allowed)
        except TimeoutError:
            raise Refused(408, "BODY_TIMEOUT", "The request's body took too long.", drained=True) from None
        self._body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return self._body

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Gone
        self._more = message.get("more_body", False)
        body: bytes = message.get("body", b"")
        return body

    async def skim(self, length: int | None, limit: int) -> None:
        """Throw a stranger's body away. Raises Refused when it is over `limit` bytes; gives up on a slow one."""
        if (length or 0) > limit or await self._throw_away(limit) > limit:
            raise _too_large(limit)

    async def _throw_away(self, limit: int) -> int:
        """Read on until over `limit` bytes, the end, or the time is up; tells how many were read."""
        size = 0
        try:
            async with asyncio.timeout_at(self._drain_until()):
                while self._more and size <= limit:
                    size += len(await self._next())
        except TimeoutError:
            pass
        return size

    def _drain_until(self) -> float:
        if self._give_up_at is None:
            self._give_up_at = asyncio.get_running_loop().time() + self._limits.drain_seconds
        return self._give_up_at

    async def replay(self) -> Message:
        if self._body is None:
            message = await self._receive()
            self._more = message.get("more_body", False)
            return message
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers: Headers = [*message.get("headers", ()), (b"x-request-id", self.request_id.encode())]
            if extensions := self.state["extensions"]:
                headers.append((b"a2a-extensions", ", ".join(extensions).encode()))
            message = {**message, "headers": headers}
        await self._send(message)

    async def refuse(self, refused: Refused, *, as_rpc: bool) -> None:
        """Answer with an error, after the rest of the body: closing before that cuts the answer off (RFC 9112 9.6)."""
        waits = any(name == b"expect" for name, _ in self.scope["headers"])
        try:
            if not (waits or refused.drained):
                await self._throw_away(self._limits.drain)
        except Gone:
            return
        self.state["extensions"] = []
        status, body = render(refused, self.request_id, as_rpc=as_rpc)
        headers: Headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            *refused.headers,
        ]
        if self._more:
            headers.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _too_large(limit: int) -> Refused:
    return Refused(413, "BODY_TOO_LARGE", "The request's body is too large.", metadata={"limit": str(limit)})
