"""Story: an agent that misbehaves in every way we know of. Its own turn ends with the right reason, or goes on where it
should; the server stays up, another person's turn waits on untouched, and the next message is answered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from acceptance.project import Project, eventually, gone
from fakes.bad_agent import PROMPTS, STARTS
from serving import (
    BAD_AGENT,
    Caller,
    Json,
    Refused,
    Serving,
    is_over,
    is_waiting,
    questions_of,
    reason_of,
    serving,
    state_of,
    text_of,
)

SECRET = "secret path"
MEMORY = 64 << 10
"""KiB that one agent may make the server grow for a moment."""


@dataclass
class Street:
    """A server of the bad agent, and two who use it: the caller whose agent misbehaves, and a neighbour."""

    server: Serving
    caller: Caller
    neighbour: Caller
    waiting: Json

    @property
    def root(self) -> Path:
        return self.server.directory.root

    async def must_be_untouched(self) -> None:
        """The neighbour's question still waits, its answer arrives; the caller's next message is answered."""
        assert is_waiting(await self.neighbour.get(self.waiting["id"]))
        done = await self.neighbour.answer(self.waiting, "allow")
        assert (state_of(done), text_of(done)) == ("completed", "ystill here")
        again = await self.caller.send("hello")
        assert (state_of(again), text_of(again)) == ("completed", "still here"), again["status"]
        assert (await self.server.control.get("/questions")).json() == []
        assert (await self.server.control.get("/status")).json()["tasks"] == {"open": 0}


@pytest.fixture
async def street(tmp_path: Path) -> AsyncIterator[Street]:
    async with serving(tmp_path, *BAD_AGENT, turns__cancel_grace=0.3) as server:
        caller, neighbour = await server.caller("alice"), await server.caller("bob")
        yield Street(server, caller, neighbour, await neighbour.send("late-input 1"))


# --- what fails ------------------------------------------------------------------------------------------------------

FAILS = {
    "exit": ("agent_exited", "exit code 7"),
    "flood": ("agent_protocol", "more than 100 lines"),
    "long-line": ("agent_protocol", "longer than 16 MiB"),
    "silent": ("no_answer", "without an answer"),
    "odd-result": ("no_answer", "without an answer"),
    "error -32603": ("agent_error", "-32603"),
    "error -32603 rate_limit": ("rate_limited", "Try again later"),
    "error -32000": ("agent_login_required", "not signed in"),
    "edit-unasked": ("unapproved_tool_call", "unasked.txt"),
    "progress-unasked": ("unapproved_tool_call", "sleep 600"),
    "read-command": ("unapproved_tool_call", "rm -rf /"),
    "unasked-title todowrite": ("unapproved_tool_call", "touch sneaked"),
    "odd-stop cancelled": ("agent_canceled", "by itself"),
}


@pytest.mark.req("Q8", "T6", "S9")
@pytest.mark.parametrize("deed", FAILS)
async def test_its_turn_fails_with_the_reason(street: Street, deed: str) -> None:
    task = await street.caller.send(deed)
    words = task["status"]["message"]["parts"][0]["text"]
    assert (state_of(task), reason_of(task)) == ("failed", FAILS[deed][0])
    assert FAILS[deed][1] in words
    assert SECRET not in json.dumps(task)
    await street.must_be_untouched()


@pytest.mark.req("Q8")
@pytest.mark.parametrize(
    ("deed", "answer", "shown"), [("changed-after", "allow", "rm -rf ."), ("despite-denial", "deny", "touch denied")]
)
async def test_acting_against_its_answer_is_acting_without_asking(
    street: Street, deed: str, answer: str, shown: str
) -> None:
    task = await street.caller.answer(await street.caller.send(deed), answer)
    assert (state_of(task), reason_of(task)) == ("failed", "unapproved_tool_call")
    assert shown in task["status"]["message"]["parts"][0]["text"]
    await street.must_be_untouched()


# --- what goes on ----------------------------------------------------------------------------------------------------

GOES_ON = {
    "noise": "18 19 still here",
    "json-values": "still here",
    "stderr": "still here",
    "odd-updates": "still here",
    "string-ids": "answered",
    "odd-stop": "answered",
    "twice": "first",
    "mode yolo": "still here",
    "controls": "<script>alert(1)</script>\ufffdstill here",
    "ghost": "cancelled",
    "asks-client": "fs/write_text_file=-32601 fs/read_text_file=-32601 terminal/create=-32601",
    "out-of-turn": "ended",
}


@pytest.mark.req("T3")
@pytest.mark.parametrize("deed", GOES_ON)
async def test_its_turn_goes_on(street: Street, deed: str) -> None:
    task = await street.caller.send(deed)
    task = await street.caller.until(task["id"], is_over)
    assert state_of(task) == "completed"
    assert GOES_ON[deed] in text_of(task)
    assert "from nowhere" not in text_of(task)
    assert not (street.root / "written-by-client").exists()
    await street.must_be_untouched()


@pytest.mark.req("A6")
async def test_it_cannot_speak_for_another_session(street: Street) -> None:
    """`_meta` that names the neighbour's session is what it is: meta."""
    task = await street.caller.send("meta-collision")
    (question,) = questions_of(task)
    assert question["action"]["command"] == "touch stolen"
    assert "victim" not in text_of(await street.neighbour.get(street.waiting["id"]))
    done = await street.caller.answer(task, "deny")
    assert text_of(done) == "meant for the victim nstill here"
    await street.must_be_untouched()


@pytest.mark.req("T5")
async def test_what_it_left_behind_ends_with_its_process(street: Street) -> None:
    await street.caller.send("grandchild")
    pid = int((street.root / "grandchild.pid").read_text(encoding="ascii"))
    assert Path(f"/proc/{pid}").exists()
    assert reason_of(await street.caller.send("exit")) == "agent_exited"
    await gone(pid)
    await street.must_be_untouched()


# --- how it asks -----------------------------------------------------------------------------------------------------


@pytest.mark.req("Q2", "Q4")
async def test_a_command_that_changes_while_it_is_asked_for_is_asked_anew(street: Street) -> None:
    first = await street.caller.send("changed-input")
    task = await street.caller.until(first["id"], lambda task: "rm -rf ." in json.dumps(questions_of(task)))
    (question,) = questions_of(task)
    assert question["action"]["command"] == "rm -rf ."
    if questions_of(first) != [question]:  # an answer to what was shown before does not count for what is shown now
        with pytest.raises(Refused) as refused:
            await street.caller.answer(first, "allow")
        assert "newer question" in refused.value.message
    assert text_of(await street.caller.answer(task, "deny")) == "nstill here"
    await street.must_be_untouched()


@pytest.mark.req("Q2", "Q4")
async def test_one_call_that_asks_twice_shows_only_what_it_says_last(street: Street) -> None:
    first = await street.caller.send("ask-twice")
    task = await street.caller.until(first["id"], lambda task: len(questions_of(task)) == 2)
    assert [question["action"]["command"] for question in questions_of(task)] == ["echo second"] * 2
    task = await street.caller.answer(task, "deny")
    assert text_of(await street.caller.answer(task, "allow")).endswith("still here")
    await street.must_be_untouched()


@pytest.mark.req("Q2")
async def test_the_command_is_shown_whole_whatever_it_hides(street: Street) -> None:
    task = await street.caller.send("lying-title")
    action = questions_of(task)[0]["action"]
    assert action["kind"] == "execute"
    assert "List files" not in action["title"]
    assert "; rm -rf ~" in action["command"]
    assert not any(char in json.dumps(task, ensure_ascii=False) for char in "\x1b\u202e")
    await street.caller.answer(task, "deny")
    await street.must_be_untouched()


@pytest.mark.req("Q5")
@pytest.mark.parametrize("deed", ["blank-ask", "only-always", "no-options", "odd-options"])
async def test_what_cannot_be_allowed_once_can_only_be_denied(street: Street, deed: str) -> None:
    task = await street.caller.send(deed)
    (question,) = questions_of(task)
    assert [option["kind"] for option in question["options"]] == ["reject_once"]
    with pytest.raises(Refused) as refused:
        await street.caller.answer(task, "allow")
    assert "no such option" in refused.value.message
    done = await street.caller.answer(task, "deny")
    assert text_of(done) in ("nstill here", "cancelledstill here")
    await street.must_be_untouched()


@pytest.mark.req("Q3", "Q4")
async def test_many_questions_at_once_are_answered_by_their_ids(street: Street) -> None:
    first = await street.caller.send("many-asks 3")
    task = await street.caller.until(first["id"], lambda task: len(questions_of(task)) == 3)
    asked = [question["questionId"] for question in questions_of(task)]
    with pytest.raises(Refused):
        await street.caller.send("yes", taskId=task["id"])
    for number, option in ((1, "deny"), (0, "allow")):
        answer = {"questionId": asked[number], "optionId": option}
        task = await street.caller.send(data=answer, taskId=task["id"])
        assert asked[number] not in json.dumps(questions_of(task))
        assert is_waiting(task)
    done = await street.caller.send("yes", taskId=task["id"])
    assert text_of(done) == "y n ystill here"
    await street.must_be_untouched()


@pytest.mark.req("Q9")
async def test_a_question_that_it_withdraws_is_closed(street: Street) -> None:
    task = await street.caller.send("withdraw")
    done = await street.caller.until(task["id"], is_over)
    assert text_of(done) == "cancelledstill here"
    await street.must_be_untouched()


@pytest.mark.req("Q8")
@pytest.mark.parametrize("deed", ["reordered", "late-input 100"])
async def test_an_honest_agent_in_an_odd_order_is_not_stopped(street: Street, deed: str) -> None:
    done = await street.caller.answer(await street.caller.send(deed), "allow")
    assert (state_of(done), text_of(done)) == ("completed", "ystill here")
    await street.must_be_untouched()


# --- what does not end by itself -------------------------------------------------------------------------------------


@pytest.mark.req("T5")
@pytest.mark.parametrize("deed", ["hang", "deaf", "ignore-cancel", "close-stdin"])
async def test_a_cancel_ends_it_whether_it_listens_or_not(street: Street, deed: str) -> None:
    task = await street.caller.send(deed, wait=False)
    await street.caller.until(task["id"], lambda task: bool(text_of(task)))
    canceled = await street.caller.cancel(task["id"])
    assert state_of(canceled) == "canceled"
    assert text_of(await street.caller.get(task["id"])) == text_of(canceled), "nothing is said after `canceled`"
    await street.must_be_untouched()


@pytest.mark.req("T6")
@pytest.mark.parametrize("deed", ["hang", "ignore-cancel"])
async def test_the_prompt_timeout_ends_it(tmp_path: Path, deed: str) -> None:
    async with serving(tmp_path, *BAD_AGENT, turns__timeout=0.5, turns__cancel_grace=0.3) as server:
        task = await server.owner.send(deed)
        assert (state_of(task), reason_of(task)) == ("failed", "timeout")
        assert text_of(await server.owner.send("hello")) == "still here"


# --- how it starts ---------------------------------------------------------------------------------------------------

STARTING = {
    "no-session": ("agent_failed", "could not open a session"),
    "no-version": ("agent_failed", "version 1 of ACP"),
    "exit": ("agent_exited", "exit code 3"),
}


@pytest.mark.req("S9")
@pytest.mark.parametrize("start", STARTING)
async def test_one_that_does_not_start_fails_the_task_and_not_the_server(tmp_path: Path, start: str) -> None:
    async with serving(tmp_path, *BAD_AGENT, start) as server:
        for _ in range(2):
            task = await server.owner.send("hello")
            assert (state_of(task), reason_of(task)) == ("failed", STARTING[start][0])
            assert STARTING[start][1] in task["status"]["message"]["parts"][0]["text"]
            assert "no session today" not in json.dumps(task)


@pytest.mark.req("T5")
@pytest.mark.parametrize("start", ["mute-initialize", "mute-session", "mute-prompt"])
async def test_one_that_says_nothing_can_be_canceled(tmp_path: Path, start: str) -> None:
    async with serving(tmp_path, *BAD_AGENT, start, turns__cancel_grace=0.3) as server:
        task = await server.owner.send("hello", wait=False)
        assert await eventually(lambda: started(tmp_path))
        async with asyncio.timeout(5):
            assert state_of(await server.owner.cancel(task["id"])) == "canceled"


def started(root: Path) -> bool:
    return any(entry.is_dir() for entry in (root / ".a2a/state/homes").iterdir())


async def test_one_that_greets_first_is_understood(tmp_path: Path) -> None:
    async with serving(tmp_path, *BAD_AGENT, "junk") as server:
        assert text_of(await server.owner.send("hello")) == "still here"


async def test_what_it_says_cannot_steer_a_terminal(plain: Project) -> None:
    await plain.start(A2A_SERVE_AGENT__COMMAND=" ".join(BAD_AGENT))
    async with plain.terminal("send", "controls") as person:
        await person.until("State: completed")
        shown = person.raw
    assert b"\\u{1b}[2J" in shown
    for steering in (b"\x1b[2J", b"\x1b]0;", b"\x07", "\u202e".encode(), b"\0"):
        assert steering not in shown
    async with plain.terminal("send", "lying-title") as person:
        await person.until("allow? [y/n/words] ")
        person.type("n\n")
        await person.until("State: completed")
        assert b"\x1b[2K" not in person.raw
        assert "\\u{202e}; rm -rf ~" in person.text


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("R2")
async def test_a_line_of_600_megabytes_does_not_fill_the_memory(plain: Project) -> None:
    status = await plain.start(A2A_SERVE_AGENT__COMMAND=" ".join(BAD_AGENT))
    owner = await plain.caller()
    assert text_of(await owner.send("hello")) == "still here"
    before = peak(status["pid"], reset=True)
    task = await owner.send("endless-line")
    assert (state_of(task), reason_of(task)) == ("failed", "agent_protocol")
    assert peak(status["pid"]) - before < MEMORY
    assert text_of(await owner.send("hello")) == "still here"


def peak(pid: int, *, reset: bool = False) -> int:
    """The most memory that a process has had resident, in KiB; `reset` counts from now."""
    if reset:
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def test_every_misbehaviour_is_told_here() -> None:
    """A deed that is added to the bad agent needs a test."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in (*PROMPTS, *STARTS) if f'"{name}' not in text] == []
