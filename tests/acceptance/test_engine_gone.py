"""Story: the Docker engine goes away in the middle of a turn, and comes back. The task fails with the cause, the server
stays up, and the next message works by itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from acceptance.engine_proxy import EngineProxy, engine_behind_proxy
from acceptance.project import ENGINE, MakeProject, Project, eventually, gone
from serving import is_over, is_waiting, reason_of, state_of, text_of

pytestmark = [pytest.mark.docker, pytest.mark.req("S9", "R2")]


@pytest.fixture
async def engine() -> AsyncIterator[EngineProxy]:
    async with engine_behind_proxy(ENGINE) as proxy:
        yield proxy


@pytest.fixture
async def project(folders: MakeProject, engine: EngineProxy) -> AsyncIterator[Project]:
    """A folder whose server reaches the engine only by the proxy; a last start sweeps what a cut left behind."""
    made = await folders("project", "docker", DOCKER_HOST=engine.url)
    await made.start()
    yield made
    await made.must("stop")
    await made.start()
    assert made.containers() == []
    await made.must("stop")


async def test_cut_in_the_middle_of_a_turn(project: Project, engine: EngineProxy) -> None:
    owner = await project.caller()
    await owner.send("say the word is plum", contextId="c1")
    task = await owner.send("say I begin\nsleep 600", wait=False, contextId="c1")
    await owner.until(task["id"], lambda task: "I begin" in text_of(task))
    await engine.cut()
    failed = await owner.until(task["id"], is_over)
    assert state_of(failed) == "failed"
    assert "Docker is not reachable" in failed["status"]["message"]["parts"][0]["text"]
    assert (await project.status())["state"] == "running"
    again = await owner.send("say hi", contextId="c1")
    assert (state_of(again), reason_of(again)) == ("failed", "sandbox_unavailable")
    assert engine.url in again["status"]["message"]["parts"][0]["text"]
    await engine.mend()
    assert "plum" in text_of(await owner.send("recall", contextId="c1"))


async def test_cut_while_a_question_waits(project: Project, engine: EngineProxy) -> None:
    owner = await project.caller()
    task = await owner.send("run touch never.txt")
    assert is_waiting(task)
    await engine.cut()
    failed = await owner.until(task["id"], is_over)
    assert state_of(failed) == "failed"
    assert await project.questions() == []
    await engine.mend()
    assert state_of(await owner.send("say hi")) == "completed"
    assert not (project.root / "never.txt").exists()


async def test_an_agent_cut_off_from_its_server_ends_by_itself(project: Project, engine: EngineProxy) -> None:
    """Nobody can stop its container through an engine that is away: what it runs must not go on unwatched."""
    owner = await project.caller()
    task = await owner.send("run echo begun > begun.txt; sleep 1234.5; touch never.txt")
    await project.must("answer", (await project.questions())[0]["id"], "allow")
    assert await eventually((project.root / "begun.txt").exists)
    await engine.cut()
    await owner.until(task["id"], is_over)
    assert await eventually(lambda: not any("sleep 1234.5" in line for line in project.command_lines()))
    assert not (project.root / "never.txt").exists()
    await engine.mend()
    assert state_of(await owner.send("say hi")) == "completed"


async def test_away_between_two_messages_nobody_notices(project: Project, engine: EngineProxy) -> None:
    owner = await project.caller()
    assert state_of(await owner.send("say hi", contextId="c1")) == "completed"
    await engine.cut()
    await engine.mend()
    assert "hi" in text_of(await owner.send("recall", contextId="c1"))


async def test_a_container_that_is_killed_from_outside(project: Project) -> None:
    owner = await project.caller()
    task = await owner.send("say I begin\nsleep 600", wait=False, contextId="c1")
    await owner.until(task["id"], lambda task: "I begin" in text_of(task))
    (container,) = project.containers()
    await project.shell("docker", "kill", container["Id"], DOCKER_HOST=f"unix://{ENGINE}")
    failed = await owner.until(task["id"], is_over)
    assert (state_of(failed), reason_of(failed)) == ("failed", "agent_exited")
    assert "signal 9" in failed["status"]["message"]["parts"][0]["text"]
    assert "I begin" in text_of(await owner.send("recall", contextId="c1"))


async def test_an_agent_that_needs_too_much_memory(folders: MakeProject) -> None:
    made = await folders("small", "docker", A2A_SERVE_SANDBOX__MEMORY="64m")
    await made.start()
    owner = await made.caller()
    hungry = "python3 -c \"import os; os.execvp('python3', ['python3', '-c', 'x = bytearray(1 << 30)'])\""
    task = await owner.send(f"run {hungry}; echo exit=$?")
    done = await owner.answer(task, "allow")
    done = await owner.until(done["id"], is_over)
    assert state_of(done) == "completed" or reason_of(done) == "out_of_memory", done["status"]
    assert state_of(await owner.send("say hi")) == "completed"


if os.environ.get("CI") == "true":  # on a machine of its own: everybody's containers end with the engine

    async def test_the_engine_itself_stops_and_starts_again(folders: MakeProject) -> None:
        """The last of all tests (conftest.py moves it there)."""
        await tell_of_an_engine_that_restarts(await folders("project", "docker"), stop_engine, start_engine)


async def tell_of_an_engine_that_restarts(
    made: Project, stop: Callable[[], Awaitable[None]], start: Callable[[], Awaitable[None]]
) -> None:
    await made.start()
    owner = await made.caller()
    task = await owner.send("say the word is plum\nrun touch never.txt", contextId="c1")
    assert is_waiting(task)
    try:
        await stop()
        failed = await owner.until(task["id"], is_over)
        assert state_of(failed) == "failed"
        assert (await made.status())["questions"] == {"open": 0}
        away = await owner.send("say hi", contextId="c1")
        assert (state_of(away), reason_of(away)) == ("failed", "sandbox_unavailable")
    finally:
        await start()
    assert "plum" in text_of(await owner.send("recall", contextId="c1"))
    await made.must("stop")
    await made.start()
    assert made.containers() == []


async def stop_engine() -> None:
    if Path("/run/systemd/system").is_dir():
        await must_run("systemctl", "stop", "docker.socket", "docker")
    else:
        pid = int(Path("/var/run/docker.pid").read_text(encoding="ascii"))
        os.kill(pid, signal.SIGTERM)
        await gone(pid)


async def start_engine() -> None:
    """As `make test` does it."""
    await must_run(str(Path(__file__).parents[2] / "scripts/engine.sh"))


async def must_run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0, command
