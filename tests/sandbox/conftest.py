"""Parts that the tests of this family share: a project folder, specs for it, and sandboxes that clean up after."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from a2a_serve.sandbox import AgentProcess, Sandbox, SandboxSpec, images
from a2a_serve.sandbox.docker import DockerSandbox
from a2a_serve.sandbox.local import LocalSandbox

OWNER_UID = 1234

MakeSpec = Callable[..., SandboxSpec]
Start = Callable[[SandboxSpec], Awaitable[AgentProcess]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder that belongs to an ordinary user, when the tests may say so."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    if os.geteuid() == 0:
        os.chown(workspace, OWNER_UID, OWNER_UID)
    return workspace


@pytest.fixture
def door() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="a2as-") as short:  # a socket's path has at most 107 bytes
        yield Path(short)


@pytest.fixture
def spec(project: Path, tmp_path: Path, door: Path) -> MakeSpec:
    """Makes a spec for a command; keywords replace its other fields."""
    home = tmp_path / "home"
    home.mkdir()
    plain = SandboxSpec(
        owner=f"test-{os.getpid()}-{tmp_path.name}",
        boot="boot-1",
        user="alice",
        workspace=project,
        home=home,
        door=door,
        image=images.tag("demo"),
        command=("cat",),
    )

    def make(*command: str, **changes: object) -> SandboxSpec:
        return replace(plain, command=command or plain.command, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture
async def local() -> AsyncIterator[Start]:
    sandbox = LocalSandbox()
    async for start in _starting(sandbox):
        yield start


@pytest.fixture
async def docker() -> AsyncIterator[Start]:
    sandbox = DockerSandbox(Path("/nonexistent-home"))
    async for start in _starting(sandbox):
        yield start


async def _starting(sandbox: Sandbox) -> AsyncIterator[Start]:
    started: list[AgentProcess] = []

    async def start(spec: SandboxSpec) -> AgentProcess:
        process = await sandbox.start(spec)
        started.append(process)
        return process

    yield start
    for process in started:
        await process.stop(0)
    await sandbox.close()
