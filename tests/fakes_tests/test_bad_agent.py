"""The bad agent does what its table says: a test that relies on a misbehaviour must not pass for want of one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fakes.bad_agent
import pytest
from fakes.acp_driver import Answer, Driver, allow, blocks, deny, driving
from fakes.bad_agent import PROMPTS, STARTS

FILE = fakes.bad_agent.__file__
PERMISSION = "session/request_permission"
ENDS_ITSELF = {"flood", "long-line", "endless-line", "exit", "hang", "deaf", "close-stdin", "ignore-cancel"}
OWN_ANSWER = {"error", "string-ids", "odd-stop", "odd-result", "silent", "twice", "out-of-turn"}
SLOW = {"progress-unasked"}
ONCE = (
    "blank-ask changed-after changed-input despite-denial ghost late-input lying-title meta-collision no-options "
    "odd-options only-always reordered withdraw"
)
ASKS = {**dict.fromkeys(ONCE.split(), 1), "ask-twice": 2, "many-asks": 3}
"""How many permission requests it makes; those that are not here make none."""
SECRET = "secret path /home/me/.key"
ARGUMENTS = {
    "error": "error -32603 rate_limit",
    "mode": "mode yolo",
    "unasked-title": "unasked-title todowrite",
    "many-asks": "many-asks 3",
}


@pytest.fixture
async def agent() -> AsyncIterator[Driver]:
    async with driving([sys.executable, FILE]) as driver:
        await driver.initialize()
        driver.answers[PERMISSION] = allow
        yield driver


def updates(driver: Driver, kind: str) -> list[dict[str, Any]]:
    return [update for update in driver.updates() if update and update.get("sessionUpdate") == kind]


async def begin(driver: Driver, work: Path, text: str) -> asyncio.Future[dict[str, Any]]:
    session = await driver.open(work)
    driver.forget()
    return await driver.begin("session/prompt", sessionId=session, prompt=blocks("host", text))


async def test_without_a_word_of_the_table_it_is_honest(agent: Driver, tmp_path: Path) -> None:
    session = await agent.open(tmp_path)
    answer = await agent.prompt(session, "hello")
    assert answer["result"] == {"stopReason": "end_turn"}
    assert agent.text() == "still here"


@pytest.mark.parametrize("answer", [allow, deny], ids=["allow", "deny"])
@pytest.mark.parametrize("name", sorted(set(PROMPTS) - ENDS_ITSELF - OWN_ANSWER - SLOW - {"odd-updates"}))
async def test_it_goes_on_afterwards(agent: Driver, tmp_path: Path, name: str, answer: Answer) -> None:
    agent.answers[PERMISSION] = answer
    response = await asyncio.wait_for(await begin(agent, tmp_path, ARGUMENTS.get(name, name)), 20)
    assert response["result"] == {"stopReason": "end_turn"}
    assert "still here" in json.dumps(agent.received)
    assert len(agent.requests()) == ASKS.get(name, 0)


@pytest.mark.parametrize("name", sorted(OWN_ANSWER - {"string-ids", "twice"}))
async def test_it_answers_in_its_own_way(agent: Driver, tmp_path: Path, name: str) -> None:
    response = await asyncio.wait_for(
        await begin(agent, tmp_path, "error -32603 rate_limit" if name == "error" else name), 10
    )
    assert response.get("result") != {"stopReason": "end_turn"} or name in {"silent", "out-of-turn"}


async def test_string_ids(agent: Driver, tmp_path: Path) -> None:
    await begin(agent, tmp_path, "string-ids")
    assert (await agent.wait_for(lambda message: "result" in message))["id"] == "3"


async def test_wrong_lines(agent: Driver, tmp_path: Path) -> None:
    await begin(agent, tmp_path, "odd-updates")
    await agent.wait_for(lambda message: "still here" in json.dumps(message))
    assert len(agent.received) >= 18


async def test_it_ends(agent: Driver, tmp_path: Path) -> None:
    await begin(agent, tmp_path, "exit")
    assert await asyncio.wait_for(agent.process.wait(), 10) == 7


async def test_it_leaves_a_grandchild(agent: Driver, tmp_path: Path) -> None:
    await (await begin(agent, tmp_path, "grandchild"))
    pid = int((tmp_path / "grandchild.pid").read_text(encoding="ascii"))
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    ignored = int(next(line for line in status.splitlines() if line.startswith("SigIgn")).split()[1], 16)
    os.kill(pid, signal.SIGKILL)
    assert ignored & 1 << (signal.SIGTERM - 1)


async def test_it_completes_an_edit_without_asking(agent: Driver, tmp_path: Path) -> None:
    await (await begin(agent, tmp_path, "edit-unasked"))
    assert (tmp_path / "unasked.txt").exists()
    assert updates(agent, "tool_call_update")[-1]["status"] == "completed"
    assert not agent.requests()


@pytest.mark.parametrize("start", sorted(STARTS))
async def test_starts(tmp_path: Path, start: str) -> None:
    async with driving([sys.executable, FILE, start]) as driver:
        if start == "exit":
            assert await asyncio.wait_for(driver.process.wait(), 10) == 3
            return
        first = await driver.begin("initialize", protocolVersion=1)
        session = await driver.begin("session/new", cwd=str(tmp_path))
        await driver.ask("no/such/method")
        assert first.done() is (start != "mute-initialize")
        assert session.done() is (start != "mute-session")
        if start == "no-session":
            assert "error" in await session
        if start == "no-version":
            assert (await first)["result"] == "hello"
