"""A newcomer's project folder with the real `a2a-serve` command: servers are processes, callers come over sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import httpx
from acceptance.terminal import WAIT, Terminal, on_terminal
from serving import Caller, Json

A2A_SERVE = Path(sys.executable).with_name("a2a-serve")
ENGINE = "/var/run/docker.sock"
KEPT = ("PATH", "LANG", "CI")
"""What a newcomer's shell has of the environment that the tests run in: no keys, no settings."""


MakeProject = Callable[..., Awaitable["Project"]]


@dataclass
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Project:
    """A folder, the person who works in it (`environment` with a home of their own), and what they do."""

    root: Path
    environment: dict[str, str]
    http: httpx.AsyncClient
    sandbox: str
    pids: list[int] = field(default_factory=list)
    """Servers that were started here."""
    last: Json = field(default_factory=dict)
    """What the newest start said."""
    prefix: tuple[str, ...] = ()
    """What commands are run by, such as `setpriv`."""
    _token: str = ""

    @property
    def home(self) -> Path:
        return Path(self.environment["HOME"])

    async def run(self, *words: str, text: str = "", cwd: Path | None = None, **more: str) -> Ran:
        """`a2a-serve WORDS...` off a terminal, in the folder. `more` is further environment."""
        return await self.shell(*self.prefix, str(A2A_SERVE), *words, text=text, cwd=cwd, **more)

    async def shell(self, *command: str, text: str = "", cwd: Path | None = None, **more: str) -> Ran:
        """Any command, as `run`."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd or self.root,
            env={**self.environment, **more},
        )
        try:
            async with asyncio.timeout(WAIT * 2):
                out, err = await process.communicate(text.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Ran(process.returncode or 0, out.decode(), err.decode())

    async def must(self, *words: str, text: str = "", **more: str) -> Ran:
        """A command that has to succeed."""
        ran = await self.run(*words, text=text, cwd=None, **more)
        assert ran.code == 0, ran
        return ran

    def terminal(self, *words: str) -> AbstractAsyncContextManager[Terminal]:
        """`a2a-serve WORDS...` on a terminal, in the folder."""
        return on_terminal([str(A2A_SERVE), *words], self.root, self.environment)

    async def start(self, *words: str, **more: str) -> Json:
        """Leave a server behind; its status."""
        ran = await self.must(*self.start_words(*words), "--detach", "--output", "json", **more)
        self.last = ran.json
        self.pids.append(self.last["pid"])
        return self.last

    def start_words(self, *words: str) -> list[str]:
        return ["start", "--sandbox", self.sandbox, "--port", "0", "--grpc-port", "off", *words]

    async def status(self) -> Json:
        ran = await self.run("status", "-o", "json")
        assert ran.code in (0, 3), ran
        return ran.json  # type: ignore[no-any-return]

    async def questions(self) -> list[Json]:
        return (await self.must("questions", "-o", "json")).json  # type: ignore[no-any-return]

    async def caller(self, name: str = "", role: str = "user") -> Caller:
        """The owner, or someone new who is let in under `name`."""
        url = url_of(self.last)
        if name:
            made = await self.must("pair", "add", name, "--role", role, "-o", "json")
            return Caller(url, made.json["token"], self.http)
        self._token = self._token or (await self.must("credential", "get", url)).out.strip()
        return Caller(url, self._token, self.http)  # a folder keeps its token

    async def kill(self) -> None:
        """End the newest server as a power cut would."""
        os.kill(self.pids[-1], signal.SIGKILL)
        await gone(self.pids[-1])

    async def close(self) -> None:
        """End what runs, and see that nothing of it is left."""
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
            await gone(pid)
        assert await eventually(lambda: not self.processes()), self.processes()
        assert not self.containers()

    def processes(self) -> list[int]:
        """Processes that work in the folder, but for its servers."""
        return [pid for pid in working_in(self.root) if pid not in self.pids]

    def command_lines(self) -> list[str]:
        """Of the processes that work in the folder, inside containers too."""
        found = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        return found

    def agents(self) -> list[str]:
        """The command lines of demo agents that work in the folder."""
        lines = [line.split() for line in self.command_lines()]
        return [" ".join(words) for words in lines if len(words) == 2 and words[1].endswith("/demo.py")]

    def containers(self) -> list[Json]:
        """Containers, running or not, that have the folder mounted."""
        if self.sandbox != "docker":
            return []
        with engine() as api:
            found: list[Json] = api.containers(all=True, filters={"volume": str(self.root)})
            return found


@asynccontextmanager
async def opened(root: Path, sandbox: str, http: httpx.AsyncClient, **more: str) -> AsyncIterator[Project]:
    """A new folder at `root` whose owner's home lies beside it."""
    home = root.with_name(f"{root.name}-home")
    for path in (root, home):
        path.mkdir()
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    project = Project(root, {**environment, "HOME": str(home), **more}, http, sandbox)
    try:
        yield project
    finally:
        await project.close()


@contextmanager
def engine() -> Iterator[docker.APIClient]:
    """The Docker engine's API, for a block."""
    api = docker.APIClient(base_url=f"unix://{ENGINE}", version="auto", timeout=30)
    try:
        yield api
    finally:
        api.close()


def url_of(status: Json, binding: str = "JSONRPC") -> str:
    return next(str(each["url"]) for each in status["endpoints"] if each["binding"] == binding)


def working_in(root: Path) -> list[int]:
    """Processes, other than our own, whose working directory is `root` or below it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                place = Path(os.readlink(entry / "cwd"))
            except OSError:
                continue
            if place.is_relative_to(root):
                found.append(int(entry.name))
    return found


async def gone(pid: int) -> None:
    """Wait until a process, that need not be our child, has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, ended.set)
    try:
        async with asyncio.timeout(WAIT):
            await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)


async def eventually(good: Callable[[], bool], seconds: float = WAIT) -> bool:
    """Whether `good` comes true: for what gives no sign of its own, asked twenty times a second."""
    return await eventually_so(lambda: _ready(good()), seconds)


async def eventually_so(good: Callable[[], Awaitable[bool]], seconds: float = WAIT) -> bool:
    deadline = asyncio.get_running_loop().time() + seconds
    while not await good():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def _ready(value: bool) -> bool:
    return value
