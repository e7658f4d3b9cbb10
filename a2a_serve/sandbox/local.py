"""Agents as plain processes of this machine: no sandbox at all, for who has no Docker and knows what that means.

The agent has the rights, the login and the network of the user who runs the server. What remains: it asks before
changes, and it ends with the server or at its next start.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping

from a2a_serve.core.errors import SandboxUnavailable
from a2a_serve.sandbox import Exit, SandboxSpec
from a2a_serve.sandbox.processes import BOOT, OWNER, kill, kill_boot, marked, signal_group
from a2a_serve.sandbox.tail import Tail

BUFFER = 256 << 10
OURS, SECRET = "A2A_SERVE_", "_TOKEN"


def child_environment(own: Mapping[str, str], spec: SandboxSpec, mark: str) -> dict[str, str]:
    """The agent's environment: the user's, without what is this server's or a token, with the spec's and the marks."""
    kept = {name: value for name, value in own.items() if not name.startswith(OURS) and not name.endswith(SECRET)}
    return {**kept, **spec.environment, OWNER: spec.owner, BOOT: mark}


class LocalSandbox:
    """Starts agent processes on this machine. `environment` is the user's, this server's own by default."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment

    def warnings(self, spec: SandboxSpec) -> list[str]:
        """What the owner should know before this spec is started, one sentence each."""
        return [
            "The agent runs on this machine without a sandbox: with an approval it can do all that you can, "
            "anywhere, with your logins and your network.",
            "Nothing but its own asking keeps it from reading your other files, or from changing git's hooks.",
        ]

    async def start(self, spec: SandboxSpec) -> LocalProcess:
        if not spec.workspace.is_dir():
            raise SandboxUnavailable(f"The workspace {spec.workspace} is not a folder.", "Start in a project folder.")
        mark = f"{spec.boot}/{secrets.token_hex(8)}"
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *spec.command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=spec.workspace,
                env=child_environment(self._environment, spec, mark),
                start_new_session=True,
                limit=BUFFER,
            )
        except OSError as error:
            words = (error.strerror or "it cannot be started").lower()
            raise SandboxUnavailable(
                f"The agent's command {spec.command[0]} cannot be started ({words}).",
                "Install it and see that it is on PATH, or start with --sandbox docker.",
            ) from error
        return LocalProcess(process, mark)

    async def reap(self, owner: str, boot: str) -> int:
        return await asyncio.to_thread(_reap, owner, boot)

    async def close(self) -> None:
        """There is nothing to let go of."""


def _reap(owner: str, boot: str) -> int:
    """Agent processes, not processes: what one of them started counts with it."""
    ended = set()
    for each in marked():
        if each.owner == owner and each.boot.partition("/")[0] != boot and kill(each):
            ended.add(each.boot)
    for mark in ended:
        kill_boot(mark)
    return len(ended)


class LocalProcess:
    """A running agent, leader of its own session and process group."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self._process, self._mark = process, mark
        self._stderr = Tail()
        self._draining = asyncio.create_task(self._drain())
        self._ending = asyncio.create_task(self._end())
        self._stopped = False

    @property
    def pid(self) -> int:
        return self._process.pid

    async def read(self, limit: int) -> bytes:
        assert self._process.stdout
        return await self._process.stdout.read(limit)

    async def write(self, data: bytes) -> None:
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing() or self._process.returncode is not None:
            raise ConnectionResetError("The agent's process has ended.")
        stdin.write(data)
        await stdin.drain()

    def stderr_tail(self) -> str:
        return str(self._stderr)

    async def wait(self) -> Exit:
        return await asyncio.shield(self._ending)

    async def stop(self, grace: float) -> None:
        if self._process.stdin and not self._process.stdin.is_closing():
            self._process.stdin.close()
        if grace > 0 and not self._stopped:
            signal_group(self.pid, signal.SIGTERM)
            await asyncio.wait([self._ending], timeout=grace)
        self._stopped = True
        if self._process.returncode is None:
            await self._kill()
        await asyncio.wait([self._ending, self._draining])

    async def check(self) -> None:
        """Nothing protects the host from a local agent, so nothing can break."""

    async def _end(self) -> Exit:
        """Once the agent has ended, end what it left: a descendant could hold its stdout open for ever."""
        await _death_of(self._process)
        await self._kill()
        code = await self._process.wait()
        if code < 0:
            return Exit(code, sentence=f"The agent was killed by signal {-code}.")
        return Exit(code, sentence=f"The agent ended with exit code {code}.")

    async def _kill(self) -> None:
        signal_group(self.pid, signal.SIGKILL)
        await asyncio.to_thread(kill_boot, self._mark)

    async def _drain(self) -> None:
        assert self._process.stderr
        while data := await self._process.stderr.read(BUFFER):
            self._stderr.add(data)


async def _death_of(process: asyncio.subprocess.Process) -> None:
    """Wait for the process alone: `Process.wait` also waits for its pipes, which a descendant may hold open."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux
        await process.wait()
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
