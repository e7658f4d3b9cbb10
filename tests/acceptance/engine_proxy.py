"""The Docker engine behind a unix socket of the test's own, so that a test can take it away from one server alone."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

CHUNK = 64 << 10


class EngineProxy:
    """Passes bytes on, each direction to its own end (an attach stream is closed on one side first)."""

    def __init__(self, path: Path, engine: str) -> None:
        self._path, self._engine = path, engine
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._callers: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"unix://{self._path}"

    async def mend(self) -> None:
        """Let callers in."""
        self._server = await asyncio.start_unix_server(self._accept, self._path)

    async def cut(self) -> None:
        """Break every connection, and let nobody in."""
        if self._server:
            self._server.close()
            await self._server.wait_closed()
        self._server = None
        self._path.unlink(missing_ok=True)
        for each in self._writers:
            each.transport.abort()
        await asyncio.gather(*self._callers)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = asyncio.create_task(self._serve(reader, writer))
        self._callers.add(caller)
        caller.add_done_callback(self._callers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._kept(writer):
            with contextlib.suppress(OSError):
                back_reader, back_writer = await asyncio.open_unix_connection(self._engine)
                async with self._kept(back_writer):
                    await asyncio.gather(_pass(reader, back_writer), _pass(back_reader, writer))

    @asynccontextmanager
    async def _kept(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@asynccontextmanager
async def engine_behind_proxy(engine: str) -> AsyncIterator[EngineProxy]:
    with tempfile.TemporaryDirectory(prefix="a2as-") as place:
        proxy = EngineProxy(Path(place) / "docker.sock", engine)
        await proxy.mend()
        try:
            yield proxy
        finally:
            await proxy.cut()
