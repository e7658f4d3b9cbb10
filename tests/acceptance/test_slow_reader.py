"""Story: a reader of a long stream stops reading, another goes away. The slow one gets the end, nobody else waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from acceptance.project import Project
from serving import Caller, Json, is_over, message, state_of, text_of

CHUNKS = 8000
PARAGRAPH = "x" * 1_000_000
PARAGRAPHS = 13
"""More than the kernel's buffers (4 MiB) and all that the server keeps for a reader (4 MiB, and as much on its way)."""
LONG = f"chunks {CHUNKS}\n" + f"say {PARAGRAPH}\n" * PARAGRAPHS + "say the end"
SHORTER = f"chunks {CHUNKS}\nsay {PARAGRAPH}\nsay the end"
SMALL_BUFFER = 4096
AT_ONCE = 3.0
"""Seconds in which another caller's whole turn is over, on a busy machine."""


class Reader:
    """An HTTP client by hand, that reads when it wants to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def event(self) -> Json | None:
        """The next SSE event, None at the stream's end."""
        while line := await self._reader.readline():
            if line.startswith(b"data: "):
                return json.loads(line.removeprefix(b"data: "))["result"]  # type: ignore[no-any-return]
        return None

    async def rest(self) -> list[Json]:
        events = []
        while event := await self.event():
            events.append(event)
        return events

    def reset(self) -> None:
        """Go away without a word: the other side gets RST."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


@asynccontextmanager
async def streaming(caller: Caller, method: str, params: Json) -> AsyncIterator[Reader]:
    parts = urlsplit(caller.url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=SMALL_BUFFER << 14)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = (
        f"POST {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {caller.token}\r\n"
        f"A2A-Version: 1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    try:
        yield Reader(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.req("A10", "R1")
async def test_a_reader_that_stops_holds_nothing_up_and_gets_the_end(plain: Project) -> None:
    await plain.start()
    owner = await plain.caller()
    alice = await plain.caller("alice")
    async with streaming(owner, "SendStreamingMessage", message(LONG)) as slow:
        first = await slow.event()
        assert first
        task_id = first["task"]["id"]
        begun = time.monotonic()
        assert state_of(await alice.send("say hi")) == "completed"
        assert time.monotonic() - begun < AT_ONCE
        done = await owner.until(task_id, is_over)
        assert state_of(done) == "completed"
        begun = time.monotonic()
        assert state_of(await alice.send("say hi again")) == "completed"
        assert time.monotonic() - begun < AT_ONCE
        events = await slow.rest()
    assert state_of(_last(events)) == "completed"
    assert _told(events) == text_of(done)
    assert f"chunk {CHUNKS} " in text_of(done)
    assert text_of(done).endswith("the end")


@pytest.mark.req("A10", "R1")
async def test_a_reader_that_goes_away_changes_nothing(plain: Project) -> None:
    await plain.start()
    owner = await plain.caller()
    async with streaming(owner, "SendStreamingMessage", message(LONG)) as leaving:
        first = await leaving.event()
        assert first
        async with streaming(owner, "SubscribeToTask", {"id": first["task"]["id"]}) as staying:
            await staying.event()
            leaving.reset()
            events = await staying.rest()
    assert state_of(_last(events)) == "completed"
    done = await owner.get(first["task"]["id"])
    assert text_of(done).endswith("the end")
    assert (await plain.status())["tasks"] == {"open": 0}


@pytest.mark.req("A10")
async def test_many_slow_readers_of_one_task(plain: Project) -> None:
    await plain.start()
    owner = await plain.caller()
    task = await owner.send(f"sleep 0.5\n{SHORTER}", wait=False)
    async with contextlib.AsyncExitStack() as all_of_them:
        slow = [
            await all_of_them.enter_async_context(streaming(owner, "SubscribeToTask", {"id": task["id"]}))
            for _ in range(20)
        ]
        for each in slow:
            await each.event()
        done = await owner.until(task["id"], is_over)
        assert state_of(done) == "completed"
        for each in slow[:3]:
            events = await each.rest()
            assert state_of(_last(events)) == "completed"
            assert _told(events) == text_of(done)


def _last(events: list[Json]) -> Json:
    last = events[-1]
    return last.get("statusUpdate") or last["task"]  # type: ignore[no-any-return]


def _told(events: list[Json]) -> str:
    """The answer as these events tell it: deltas in order, or a whole task that takes their place."""
    said = ""
    for event in events:
        if "task" in event:
            said = text_of(event["task"])
        elif (update := event.get("artifactUpdate", {})).get("artifact", {}).get("artifactId") == "response":
            said = (said if update.get("append") else "") + update["artifact"]["parts"][0]["text"]
    return said
