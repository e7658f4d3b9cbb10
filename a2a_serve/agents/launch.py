"""From the settings to an agent process: which kind, with what command and environment, in which sandbox."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path

from a2a_serve import agents
from a2a_serve.agents import AgentKind
from a2a_serve.config import Settings, choose_agent
from a2a_serve.listeners.local import UnixListener
from a2a_serve.sandbox import KINDS, Limits, Sandbox, SandboxSpec

CUSTOM, DEMO = "custom", "demo"


@dataclass(frozen=True, slots=True)
class ProcessName:
    """Which agent process: its user, and where its door and home are on the host."""

    user: str
    door: Path
    home: Path


def choose_kind(settings: Settings, environment: Mapping[str, str]) -> AgentKind:
    """The kind that flag, config or the keys at hand choose; a command of the owner's own is a kind without a file."""
    if settings.agent.command:
        return AgentKind(CUSTOM, "Custom agent", tuple(settings.agent.command))
    keys = {name: AgentKind.load(name).key_env for name in agents.kinds()}
    return AgentKind.load(choose_agent(settings, environment, keys))


async def open_sandbox(settings: Settings, kind: AgentKind, progress: Callable[[str], None]) -> tuple[Sandbox, str]:
    """The sandbox of the configured kind and the image it starts ('' where there is none), made ready.

    Raises SandboxUnavailable or ImageMissing with the next step.
    """
    module, _, name = KINDS[settings.sandbox.kind].partition(":")
    sandbox: Sandbox = getattr(import_module(module), name)()
    if settings.sandbox.kind != "docker":
        return sandbox, ""
    if settings.agent.image:
        return sandbox, settings.agent.image
    images = import_module("a2a_serve.sandbox.images")
    return sandbox, await images.ensure(DEMO if kind.name == CUSTOM else kind.name, progress=progress)


@dataclass(frozen=True, slots=True)
class Launch:
    """How this server starts its agent processes. `has_model`: the server has a key for the kind's model API."""

    settings: Settings
    kind: AgentKind
    workspace: Path
    image: str
    owner: str
    boot: str
    has_model: bool

    def spec(self, name: ProcessName) -> SandboxSpec:
        """The whole description of one user's process."""
        sandbox = self.settings.sandbox
        return SandboxSpec(
            owner=self.owner,
            boot=self.boot,
            user=name.user,
            workspace=self.workspace,
            home=name.home,
            door=name.door,
            image=self.image,
            command=self._command(),
            environment=self._environment(),
            network=sandbox.network or self.kind.network[0],
            protect=sandbox.protect,
            agent_folders=self.kind.folders,
            limits=Limits(sandbox.memory, sandbox.cpus, sandbox.pids, sandbox.tmp),
        )

    def _command(self) -> tuple[str, ...]:
        """On the host the demo agent is this package's own file, in an image that image's copy."""
        if self._is_local and self.kind.name == DEMO:
            return (sys.executable, str(resources.files(agents) / "demo.py"))
        return self.kind.command

    def _environment(self) -> dict[str, str]:
        """The kind's, the way to its model where that is this server, and the owner's. Never a key."""
        model = self.kind.model_environment(f"http://127.0.0.1/m/{self.kind.model}")
        return {
            **self.kind.environment,
            **(model if self.has_model and not self._is_local else {}),
            **{name: secrets.token_urlsafe(24) for name in self.kind.random_env},
            **self.settings.agent.environment,
        }

    @property
    def _is_local(self) -> bool:
        return self.settings.sandbox.kind == "local"

    def open_door(self, path: Path) -> UnixListener:
        """The listener of an agent socket; it and its directory belong to the user who runs the agent."""
        if os.geteuid() != 0:
            return UnixListener("agent", path)
        owner = self.workspace.stat()
        os.chown(path.parent, owner.st_uid, owner.st_gid)
        return UnixListener("agent", path, uid=owner.st_uid, gid=owner.st_gid)


def make_doors(owner: str) -> Path:
    """Where the agent sockets of one server lie: a short path outside the project. What a killed one left is swept."""
    base = Path(tempfile.gettempdir())
    for old in base.glob(f"a2as-{owner}-*"):
        if old.lstat().st_uid == os.geteuid() and not old.is_symlink():
            shutil.rmtree(old, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f"a2as-{owner}-", dir=base))
    made.chmod(0o711)  # the agent's user passes through to the directory that is its own
    return made
