"""The engine goes away in mid-turn and comes back (requirement S9, row R6): its socket is cut by a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from sandbox.conftest import MakeSpec
from sandbox.reading import SECONDS, read_all, read_until

from a2a_serve.core.errors import SandboxUnavailable
from a2a_serve.sandbox.docker import DockerSandbox, engine_url

pytestmark = pytest.mark.docker


class Cable:
    """Between us and the engine; can be cut and joined."""

    def __init__(self, path: Path, engine: str) -> None:
        self.path, self._engine = path, engine
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    async def join(self) -> None:
        self._server = await asyncio.start_unix_server(self._accept, self.path)

    async def cut(self) -> None:
        assert self._server
        self._server.close()
        self.path.unlink(missing_ok=True)
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._engine)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(_carry(source, sink))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
    finally:
        sink.close()


@pytest.fixture
async def cable(door: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cable]:
    engine = engine_url({}).removeprefix("unix://")
    made = Cable(door / "engine.sock", engine)
    await made.join()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{made.path}")
    yield made
    await made.cut()


@pytest.mark.req("S9", "R2")
async def test_the_agent_is_lost_with_the_cause_and_the_next_one_starts(
    spec: MakeSpec, cable: Cable, tmp_path: Path
) -> None:
    sandbox = DockerSandbox(Path("/nonexistent-home"))
    mine = spec("sh", "-c", "echo up; exec cat")
    lost = await sandbox.start(mine)
    await read_until(lost, b"up")
    await cable.cut()
    assert await read_all(lost) == b""
    with pytest.raises(ConnectionError):
        await lost.write(b"too late")
    ended = await asyncio.wait_for(lost.wait(), SECONDS)
    assert ended.code is None
    assert "Docker is not reachable" in ended.sentence
    await asyncio.wait_for(lost.stop(1), SECONDS)
    with pytest.raises(SandboxUnavailable, match="not reachable"):
        await sandbox.start(mine)

    await cable.join()
    again = await sandbox.start(mine)
    await read_until(again, b"up")
    await again.stop(0)
    assert await sandbox.reap(mine.owner, "boot-2") == 1  # the lost one, which had ended by its lease
    await sandbox.close()
