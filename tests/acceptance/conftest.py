"""The stories' stage: project folders with a person's own home, in each sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from acceptance.project import MakeProject, Project, opened
from acceptance.terminal import WAIT

LAST = "test_the_engine_itself_stops_and_starts_again"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes the engine from everybody comes after everything else."""
    items.sort(key=lambda item: item.name == LAST)


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def sandbox(request: pytest.FixtureRequest) -> str:
    """A story that takes this is told in each sandbox."""
    return str(request.param)


@pytest.fixture
async def folders(tmp_path: Path) -> AsyncIterator[MakeProject]:
    """Makes project folders: `await folders("name", "local")`; keywords are further environment."""
    async with AsyncExitStack() as closing:
        http = await closing.enter_async_context(httpx.AsyncClient(timeout=WAIT, trust_env=False))

        async def make(name: str, sandbox: str, **more: str) -> Project:
            return await closing.enter_async_context(opened(tmp_path / name, sandbox, http, **more))

        yield make


@pytest.fixture
async def project(folders: MakeProject, sandbox: str) -> Project:
    """A folder with a README, in each sandbox."""
    made = await folders("project", sandbox)
    (made.root / "README.md").write_text("old title\n", encoding="utf-8")
    return made


@pytest.fixture
async def plain(folders: MakeProject) -> Project:
    """An empty folder for stories in which the sandbox makes no difference: the agent runs locally."""
    return await folders("project", "local")


@pytest.fixture
async def contained(folders: MakeProject) -> Project:
    """An empty folder whose agent runs in a container (mark the test `docker`)."""
    return await folders("project", "docker")
