"""An agent in a container, by the engine's attach stream: stdin raw, stdout and stderr framed.

Frames are taken apart only when somebody reads, so an agent that nobody reads is held up by the engine instead of
filling memory here. The stream's end is the one sure sign of death: what is written after it is silently lost.

Source: Docker Engine API v1.41, `POST /containers/{id}/attach`, "Stream format".
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from a2a_serve.core.errors import SandboxUnavailable
from a2a_serve.sandbox import Exit
from a2a_serve.sandbox.guards import Guards
from a2a_serve.sandbox.tail import Tail

log = logging.getLogger(__name__)

HEADER = struct.Struct(">B3xI")
STDERR = 2
BUFFER = 256 << 10
POLL_SECONDS = 0.05
VERDICT_SECONDS = 3.0
"""How long the engine may take to tell how a container ended after its stream has."""


class Container(Protocol):
    """What an attached process asks of its container. All raise SandboxUnavailable when the engine is away."""

    async def state(self) -> Mapping[str, Any] | None:
        """The `State` of inspect; None when the container is no longer there."""

    async def signal(self, name: str) -> None:
        """Send a signal; nothing happens when it does not run."""

    async def remove(self) -> None:
        """Kill and remove it; nothing happens when it is gone."""


class AttachedProcess:
    """A running agent. `connect` makes one from the attach socket, before its container is started."""

    def __init__(
        self, reader: asyncio.StreamReader, ended: asyncio.Event, container: Container, guards: Guards
    ) -> None:
        self._reader, self._ended, self._container, self._guards = reader, ended, container, guards
        self._transport: asyncio.Transport | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._stderr = Tail()
        self._stream, self._left = 0, 0
        self._exit: Exit | None = None
        self._asking = asyncio.Lock()
        self._stopped = False
        self.memory = 0
        self.lease = -1

    @classmethod
    async def connect(cls, sock: socket.socket, container: Container, guards: Guards) -> AttachedProcess:
        """Take over the attach socket (a blocking one will do)."""
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        reader, ended = asyncio.StreamReader(limit=BUFFER), asyncio.Event()
        connect = loop.create_unix_connection if sock.family == socket.AF_UNIX else loop.create_connection
        transport, protocol = await connect(lambda: _Protocol(reader, ended.set), sock=sock)
        process = cls(reader, ended, container, guards)
        process._transport = transport
        process._writer = asyncio.StreamWriter(process._transport, protocol, reader, loop)
        return process

    async def read(self, limit: int) -> bytes:
        while self._left or await self._next_frame():
            data = await self._reader.read(min(limit, self._left) if self._stream != STDERR else self._left)
            if not data:
                break
            self._left -= len(data)
            if self._stream != STDERR:
                return data
            self._stderr.add(data)
        self._left = 0
        self._ended.set()
        return b""

    async def _next_frame(self) -> bool:
        while not self._left:
            try:
                header = await self._reader.readexactly(HEADER.size)
            except (asyncio.IncompleteReadError, ConnectionError):
                return False
            self._stream, self._left = HEADER.unpack(header)
        return True

    async def write(self, data: bytes) -> None:
        if self._ended.is_set() or self._stopped or self._writer is None:
            raise ConnectionResetError("The agent's container has ended.")
        self._writer.write(data)
        await self._writer.drain()

    def stderr_tail(self) -> str:
        return str(self._stderr)

    async def wait(self) -> Exit:
        await self._ended.wait()
        async with self._asking:
            if self._exit is None:
                verdict = await self._verdict()
                self._exit = self._exit or verdict  # `stop` may have seen more
            return self._exit

    async def _verdict(self) -> Exit:
        """Ask the engine how it ended; a container whose stream has ended but that still runs is killed."""
        deadline = asyncio.get_running_loop().time() + VERDICT_SECONDS
        sentence = "The agent's stream ended, but its container ran on."
        while asyncio.get_running_loop().time() < deadline:
            try:
                state = await self._container.state()
            except SandboxUnavailable as error:
                sentence = f"The agent was lost: {error.sentence}"
            else:
                if state is None:
                    return Exit(None, sentence="The agent's container was removed from outside.")
                if not state.get("Running") and not state.get("Paused"):
                    return exit_of(state, self.memory)
            await asyncio.sleep(POLL_SECONDS)
        return Exit(None, sentence=sentence)

    async def stop(self, grace: float) -> None:
        if self._stopped:
            return
        self._stopped = True
        try:
            if grace > 0 and not self._ended.is_set():
                await self._ask_to_end(grace)
            await self._remove()
        finally:
            self._let_go()

    async def _ask_to_end(self, grace: float) -> None:
        try:
            if self._writer and self._writer.can_write_eof():
                self._writer.write_eof()
            await self._container.signal("SIGTERM")
            async with asyncio.timeout(grace):
                await self._until_gone()
        except (TimeoutError, OSError, SandboxUnavailable):
            pass  # it is killed now

    async def _until_gone(self) -> None:
        while True:
            state = await self._container.state()
            if not state or not state.get("Running"):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _remove(self) -> None:
        """How it ended is asked first: afterwards nobody knows."""
        try:
            if self._exit is None and (state := await self._container.state()):
                self._exit = exit_of(state, self.memory)
            await self._container.remove()
        except SandboxUnavailable as error:
            log.warning("a container could not be removed; the next start does: %s", error.sentence)
            self._exit = self._exit or Exit(None, sentence=error.sentence)
        self._exit = self._exit or Exit(None, sentence="The agent's container was removed from outside.")

    def _let_go(self) -> None:
        """With the lease, a launcher that the engine could not end ends itself."""
        self._ended.set()
        if self._transport:
            self._transport.abort()
        if self.lease >= 0:
            os.close(self.lease)
            self.lease = -1

    async def check(self) -> None:
        self._guards.check()


class _Protocol(asyncio.StreamReaderProtocol):
    """Tells of the stream's end even when nobody is reading."""

    def __init__(self, reader: asyncio.StreamReader, on_end: Callable[[], None]) -> None:
        super().__init__(reader)
        self._on_end = on_end

    def eof_received(self) -> bool | None:
        self._on_end()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_end()


def exit_of(state: Mapping[str, Any], memory: int) -> Exit:
    """From the engine's `State` of an ended container; `memory` is its limit in bytes."""
    code = int(state.get("ExitCode") or 0)
    if state.get("Running"):
        return Exit(None, sentence="The agent was stopped.")
    if state.get("OOMKilled") and code:
        sentence = f"The agent needed more memory than its {memory >> 20} MiB. Raise sandbox.memory."
        return Exit(code, out_of_memory=True, sentence=sentence)
    if code > 128:
        return Exit(code, sentence=f"The agent was killed by signal {code - 128}.")
    return Exit(code, sentence=f"The agent ended with exit code {code}.")


def open_lease(door: Path, uid: int, gid: int) -> int:
    """A FIFO that this server holds open: its end of file, which the launcher waits for, is the server's death."""
    path = door / "lease"
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    if os.geteuid() == 0:
        os.chown(path, uid, gid)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
