"""Reading an agent's output in tests, with a bound."""

from __future__ import annotations

import asyncio

from a2a_serve.sandbox import AgentProcess

SECONDS = 20.0


async def read_all(process: AgentProcess) -> bytes:
    """Everything until the end of stdout."""
    async with asyncio.timeout(SECONDS):
        chunks = []
        while chunk := await process.read(65536):
            chunks.append(chunk)
        return b"".join(chunks)


async def read_until(process: AgentProcess, words: bytes) -> bytes:
    async with asyncio.timeout(SECONDS):
        said = b""
        while words not in said:
            chunk = await process.read(65536)
            assert chunk, f"it ended without {words!r}: {said!r} {process.stderr_tail()}"
            said += chunk
        return said
