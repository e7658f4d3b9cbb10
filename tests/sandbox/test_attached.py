"""The attach stream taken apart, with a socket pair in the engine's place and a container that misbehaves."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from typing import Any

import pytest
from sandbox.reading import SECONDS, read_all

from a2a_serve.core.errors import SandboxUnavailable
from a2a_serve.sandbox import Exit
from a2a_serve.sandbox.attached import AttachedProcess, exit_of
from a2a_serve.sandbox.guards import Guards


class Engine:
    """An engine's end of one container: says what it is told to, and can be away."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.answer: Mapping[str, Any] | None = {"Running": False, "ExitCode": 0}
        self.away = False
        self.calls: list[str] = []

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def state(self) -> Mapping[str, Any] | None:
        if self.away:
            raise SandboxUnavailable("Docker is not reachable.")
        return self.answer

    async def signal(self, name: str) -> None:
        self.calls.append(name)
        await self.state()

    async def remove(self) -> None:
        self.calls.append("remove")
        await self.state()


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(data)) + data


@pytest.fixture
async def pair() -> Any:
    ours, engines = socket.socketpair()
    engines.setblocking(False)
    engine = Engine(engines)
    process = await AttachedProcess.connect(ours, engine, Guards())
    yield process, engine
    engine.away = False
    await process.stop(0)
    engines.close()


Pair = tuple[AttachedProcess, Engine]


async def test_streams_are_told_apart_however_they_are_cut(pair: Pair) -> None:
    process, engine = pair
    wire = frame(1, b"one ") + frame(2, b"noise") + frame(1, b"") + frame(1, b"two")
    for byte in wire:
        await engine.say(bytes([byte]))
        await asyncio.sleep(0)
    engine.sock.close()
    assert await read_all(process) == b"one two"
    assert process.stderr_tail() == "noise"


async def test_a_frame_is_read_in_pieces_of_the_callers_size(pair: Pair) -> None:
    process, engine = pair
    await engine.say(frame(1, b"abcdefgh"))
    assert [await process.read(3) for _ in range(3)] == [b"abc", b"def", b"gh"]


async def test_a_reader_that_is_cancelled_loses_nothing(pair: Pair) -> None:
    process, engine = pair
    await engine.say(frame(1, b"abc")[:5])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.read(10), 0.05)
    await engine.say(frame(1, b"abc")[5:])
    assert await process.read(10) == b"abc"


@pytest.mark.parametrize("cut", [3, 8, 10])
async def test_an_end_in_mid_frame_is_an_end(pair: Pair, cut: int) -> None:
    process, engine = pair
    await engine.say(frame(1, b"abcdef")[:cut])
    engine.sock.close()
    assert await read_all(process) == b"abcdef"[: max(0, cut - 8)]
    assert await process.read(10) == b""
    with pytest.raises(ConnectionError):
        await process.write(b"x")


async def test_the_end_is_seen_without_a_reader(pair: Pair) -> None:
    process, engine = pair
    engine.answer = {"Running": False, "ExitCode": 7}
    engine.sock.close()
    assert (await asyncio.wait_for(process.wait(), SECONDS)).code == 7


async def test_the_verdict_waits_for_the_engine_to_know(pair: Pair) -> None:
    process, engine = pair
    engine.answer = {"Running": True}
    engine.sock.close()
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0.1)
    engine.away = True
    await asyncio.sleep(0.1)
    engine.away, engine.answer = False, {"Running": False, "ExitCode": 137, "OOMKilled": True}
    assert (await asyncio.wait_for(waiting, SECONDS)).out_of_memory


async def test_an_engine_that_stays_away_is_the_cause(pair: Pair) -> None:
    process, engine = pair
    engine.away = True
    engine.sock.close()
    ended = await asyncio.wait_for(process.wait(), SECONDS)
    assert ended.code is None
    assert "Docker is not reachable" in ended.sentence
    await process.stop(1)


async def test_a_container_removed_from_outside(pair: Pair) -> None:
    process, engine = pair
    engine.answer = None
    engine.sock.close()
    assert "removed" in (await asyncio.wait_for(process.wait(), SECONDS)).sentence


async def test_stop_asks_then_removes_and_does_it_once(pair: Pair) -> None:
    process, engine = pair
    await process.stop(1)
    await process.stop(1)
    assert engine.calls == ["SIGTERM", "remove"]
    assert await process.read(10) == b""
    assert (await process.wait()).code == 0


async def test_an_agent_that_does_not_listen_is_removed_in_time(pair: Pair) -> None:
    process, engine = pair
    engine.answer = {"Running": True}
    await asyncio.wait_for(process.stop(0.1), SECONDS)
    assert engine.calls == ["SIGTERM", "remove"]


@pytest.mark.parametrize(
    ("state", "code", "out_of_memory", "words"),
    [
        ({"ExitCode": 0}, 0, False, "exit code 0"),
        ({"ExitCode": 7}, 7, False, "exit code 7"),
        ({"ExitCode": 137}, 137, False, "signal 9"),
        ({"ExitCode": 137, "OOMKilled": True}, 137, True, "Raise sandbox.memory"),
        ({"ExitCode": 0, "OOMKilled": True}, 0, False, "exit code 0"),
        ({"Running": True, "ExitCode": 0}, None, False, "stopped"),
    ],
)
def test_how_it_ended(state: dict[str, Any], code: int | None, out_of_memory: bool, words: str) -> None:
    ended = exit_of(state, 1 << 30)
    assert ended == Exit(code, out_of_memory, ended.sentence)
    assert words in ended.sentence
