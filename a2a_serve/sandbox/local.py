"""The agent as a process of the host (requirement S6): no isolation, the owner's own login, everything else the same.

A process is found again by markers in its environment: that is how a stop reaches what has left its process group, and
how a start ends what a killed server left behind (Linux; elsewhere only the group is reached).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from a2a_serve.core.errors import SandboxUnavailable
from a2a_serve.sandbox import Exit, SandboxSpec

OWNER, BOOT, PROCESS = "A2A_SERVE_OWNER", "A2A_SERVE_BOOT", "A2A_SERVE_PROCESS"
STDERR_KEPT = 64 << 10


class LocalProcess:
    """A child in a session of its own; stderr is drained, so a talkative agent never blocks on it."""

    def __init__(self, process: asyncio.subprocess.Process, marker: str) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process, self._marker = process, marker
        self._stdin, self._stdout = process.stdin, process.stdout
        self._stderr = bytearray()
        self._draining = asyncio.create_task(self._drain(process.stderr))

    async def _drain(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(1 << 16):
            self._stderr += chunk
            del self._stderr[:-STDERR_KEPT]

    async def read(self, limit: int) -> bytes:
        return await self._stdout.read(limit)

    async def write(self, data: bytes) -> None:
        self._stdin.write(data)
        await self._stdin.drain()

    def stderr_tail(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    async def wait(self) -> Exit:
        code = await self._process.wait()
        if code < 0:
            return Exit(code, sentence=f"The agent's process was ended by {signal.Signals(-code).name}.")
        return Exit(code, sentence=f"The agent's process ended with code {code}.")

    async def stop(self, grace: float) -> None:
        self._stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), grace)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        _kill(find({PROCESS: self._marker}))
        await self._process.wait()
        await self._draining

    async def check(self) -> None:
        """Nothing protects the host here, so nothing can break."""


class LocalSandbox:
    """Starts agents as the user who runs the server."""

    async def start(self, spec: SandboxSpec) -> LocalProcess:
        """Raises SandboxUnavailable when the command cannot be run."""
        marker = uuid.uuid4().hex
        try:
            process = await asyncio.create_subprocess_exec(
                *spec.command,
                cwd=spec.workspace,
                env=environment(spec, os.environ) | {PROCESS: marker},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            sentence = f"The agent's command {spec.command[0]!r} cannot be run: {error.strerror}."
            raise SandboxUnavailable(sentence, "Install it, or start with --sandbox docker.") from error
        return LocalProcess(process, marker)

    async def reap(self, owner: str, boot: str) -> int:
        left = [each for each in find({OWNER: owner}) if not _has(each, {BOOT: boot})]
        _kill(left)
        return len(left)

    async def close(self) -> None:
        """There is no engine to let go of."""


def environment(spec: SandboxSpec, own: Mapping[str, str]) -> dict[str, str]:
    """The owner's environment without what is the server's, then the spec's. A token goes in only by the spec."""
    kept = {key: value for key, value in own.items() if not (key.startswith("A2A_SERVE_") or key.endswith("_TOKEN"))}
    return {**kept, **spec.environment, OWNER: spec.owner, BOOT: spec.boot}


def find(markers: Mapping[str, str]) -> Iterator[int]:
    """The processes whose environment holds all of `markers`; those of other users cannot be seen and are not ours."""
    for entry in Path("/proc").glob("[0-9]*"):
        if _has(int(entry.name), markers):
            yield int(entry.name)


def _has(pid: int, markers: Mapping[str, str]) -> bool:
    try:
        held = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return all(f"{key}={value}".encode() in held for key, value in markers.items())


def _kill(pids: Iterator[int] | list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
