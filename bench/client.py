"""A raw HTTP/1.1 client for load: keep-alive, JSON-RPC calls and SSE streams, hardly any work of its own.

Parsing is bytes only; JSON is looked at after the clock has stopped, so that the client is never the bottleneck.
"""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson

READ_BYTES = 1 << 18
SMALL_SEGMENT = 536
TERMINAL = (b"TASK_STATE_COMPLETED", b"TASK_STATE_CANCELED", b"TASK_STATE_FAILED", b"TASK_STATE_REJECTED")


class BenchError(Exception):
    """A system did not do what is measured; the run stops rather than print a wrong number."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server's JSON-RPC binding is, and the bearer token it wants ('' for none)."""

    port: int
    path: str
    token: str = ""

    def head(self, length: int) -> bytes:
        auth = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        return (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{auth}"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"A2A-Version: 1.0\r\nContent-Length: {length}\r\n\r\n"
        ).encode()


class ChunkedBody:
    """Decodes a chunked HTTP body piece by piece (RFC 9112 section 7.1)."""

    def __init__(self) -> None:
        self._rest = b""
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """The payload that `data` completes. A chunk that has not wholly arrived waits for the next piece."""
        rest, at, out = self._rest + data, 0, []
        while (line := rest.find(b"\r\n", at)) >= 0:
            size = int(rest[at:line].split(b";")[0], 16)
            end = line + 2 + size
            if len(rest) < end + 2:
                break
            at = end + 2
            if size == 0:
                self.done = True
                break
            out.append(rest[line + 2 : end])
        self._rest = rest[at:]
        return b"".join(out)


class DataLines:
    """Splits SSE text into the content of its `data:` lines; pings and ids are passed over.

    One line is one event: JSON-RPC over SSE never has a line break inside an event.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, text: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + text).split(b"\n")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


@dataclass(slots=True)
class Turn:
    """What a streaming turn looked like from outside; times in seconds since it was sent."""

    first: float = 0.0
    first_text: float = 0.0
    total: float = 0.0
    events: list[bytes] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return bool(self.events) and any(state in self.events[-1] for state in TERMINAL)

    def note(self, lines: list[bytes], seconds: float) -> None:
        if lines and not self.events:
            self.first = seconds
        if not self.first_text and any(b'"artifactUpdate"' in line for line in lines):
            self.first_text = seconds
        self.events += lines
        self.total = seconds


class Connection:
    """One keep-alive connection to a server; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address) -> None:
        self._reader, self._writer, self._address = reader, writer, address

    @classmethod
    async def open(cls, address: Address, receive_buffer: int = 0) -> Connection:
        """Connect. A small `receive_buffer` (bytes) makes a reader that falls behind as soon as it stops reading.

        Small segments go with it: the kernel sizes the server's send buffer by them, else it holds megabytes.
        """
        connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connected.setblocking(False)
        if receive_buffer:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT)
        else:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", address.port))
        limit = receive_buffer or READ_BYTES
        reader, writer = await asyncio.open_connection(sock=connected, limit=limit)
        return cls(reader, writer, address)

    def close(self) -> None:
        self._writer.close()

    async def call(self, body: bytes) -> bytes:
        """Post `body` and return the answer's body. Raises BenchError for another status than 200."""
        head = await self._send(body)
        return b"".join([piece async for piece in self._body(head)])

    async def events(self, body: bytes) -> AsyncIterator[list[bytes]]:
        """Post `body` and yield the events of the answer, those that arrived together in one list."""
        head = await self._send(body)
        if b"text/event-stream" not in head:
            answer = b"".join([piece async for piece in self._body(head)])
            raise BenchError(f"expected a stream, got {answer[:300]!r}")
        lines = DataLines()
        async for piece in self._body(head):
            if found := lines.feed(piece):
                yield found

    async def turn(self, text: str, context: str) -> Turn:
        """Send `text` with SendStreamingMessage and follow it to the stream's end."""
        body, turn = message("SendStreamingMessage", text, context), Turn()
        start = time.perf_counter()
        async for found in self.events(body):
            turn.note(found, time.perf_counter() - start)
        return turn

    async def _send(self, body: bytes) -> bytes:
        self._writer.write(self._address.head(len(body)) + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            answer = b"".join([piece async for piece in self._body(head)])
            raise BenchError(f"{head[:40]!r}: {answer[:300]!r}")
        return head

    async def _body(self, head: bytes) -> AsyncIterator[bytes]:
        if b"transfer-encoding: chunked" not in head:
            yield await self._reader.readexactly(_content_length(head))
            return
        body = ChunkedBody()
        while not body.done:
            data = await self._reader.read(READ_BYTES)
            if not data:
                raise BenchError("the server closed the connection in the middle of an answer")
            if payload := body.feed(data):
                yield payload


def _content_length(head: bytes) -> int:
    at = head.find(b"content-length:")
    return int(head[at + 15 : head.index(b"\r\n", at)]) if at >= 0 else 0


def rpc(method: str, **params: Any) -> bytes:
    """A JSON-RPC request of A2A v1.0."""
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def message(method: str, text: str, context: str = "", **configuration: Any) -> bytes:
    """A user's message of one text part, in the conversation `context` ('' starts one)."""
    content: dict[str, Any] = {"role": "ROLE_USER", "messageId": uuid.uuid4().hex, "parts": [{"text": text}]}
    if context:
        content["contextId"] = context
    extra = {"configuration": configuration} if configuration else {}
    return rpc(method, message=content, **extra)


def result(answer: bytes) -> dict[str, Any]:
    """The result of a JSON-RPC answer. Raises BenchError when it is an error."""
    said = orjson.loads(answer)
    if "result" not in said:
        raise BenchError(f"the server answered {answer[:300]!r}")
    found: dict[str, Any] = said["result"]
    return found


def streamed_text(events: list[bytes]) -> str:
    """The `response` text that a reader of these events ends up with: deltas appended, snapshots replacing."""
    texts: dict[str, str] = {}
    for event in map(result, events):
        if "task" in event:
            texts = {found["artifactId"]: _joined(found) for found in event["task"].get("artifacts", [])}
        elif "artifactUpdate" in event:
            update = event["artifactUpdate"]
            name = update["artifact"]["artifactId"]
            before = texts.get(name, "") if update.get("append") else ""
            texts[name] = before + _joined(update["artifact"])
    return "".join(texts.values())


def task_text(task: dict[str, Any]) -> str:
    """The text of all artifacts of a task."""
    return "".join(_joined(artifact) for artifact in task.get("artifacts", []))


def _joined(artifact: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in artifact.get("parts", []))
