"""The sandbox family's contract: start an agent process from a spec, and sweep what an earlier server left behind.

A kind knows nothing of ACP or A2A. It gives bytes: the agent's stdin and stdout, with back-pressure both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

KINDS = {
    "docker": "a2a_serve.sandbox.docker:DockerSandbox",
    "local": "a2a_serve.sandbox.local:LocalSandbox",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one agent process may use. Sizes in bytes."""

    memory: int = 2 << 30
    cpus: float = 2.0
    pids: int = 512
    tmp: int = 512 << 20


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One agent process, wholly described. Paths are the host's; the workspace has the same path inside.

    `door` is the host directory that holds the agent socket `a2a.sock`; inside it is `/run/a2a`.
    `home` is the agent's home on the host; inside it is `/home/agent`.
    `agent_folders` are project folders of coding agents (`.claude`, `.opencode` ...) to hide where they exist.
    """

    owner: str
    """Stable name of the agent directory: containers are labelled with it."""
    boot: str
    """Names the server process that starts it; a container of another boot is a leftover."""
    user: str
    """Key of the user whose process this is."""
    workspace: Path
    home: Path
    door: Path
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    network: str = "none"
    protect: str = "git"
    agent_folders: tuple[str, ...] = ()
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: `code` as the kind knows it (None when it cannot be known), and a sentence for people."""

    code: int | None
    out_of_memory: bool = False
    sentence: str = ""


class AgentProcess(Protocol):
    """A running agent. Reading is on demand, so an agent that nobody reads is held up, not buffered."""

    async def read(self, limit: int) -> bytes:
        """Up to `limit` bytes of stdout; `b""` at its end, which is the only sure sign of death."""

    async def write(self, data: bytes) -> None:
        """All of `data` to stdin. Raises ConnectionError once the process is gone."""

    def stderr_tail(self) -> str:
        """The last 64 KiB of stderr."""

    async def wait(self) -> Exit:
        """How it ended; waits for that."""

    async def stop(self, grace: float) -> None:
        """End it and everything it started: ask, wait `grace` seconds, kill, remove. May be called twice."""

    async def check(self) -> None:
        """Raise SandboxBroken where what protects the host no longer holds for this process."""


class Sandbox(Protocol):
    def warnings(self, spec: SandboxSpec) -> list[str]:
        """What the owner should know before this spec is started, one sentence each."""

    async def start(self, spec: SandboxSpec) -> AgentProcess:
        """Start the process. Raises SandboxUnavailable or ImageMissing with the next step."""

    async def reap(self, owner: str, boot: str) -> int:
        """Remove every process of `owner` that another boot started; tell how many. Touches no other owner's."""

    async def close(self) -> None:
        """Let go of connections to the engine."""
