"""The tripwire (Q8): an agent that acts without an allow is stopped, an honest one is not."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.turns import (
    COMPLETED,
    EDIT,
    IN_PROGRESS,
    RUN_LS,
    RUN_RM,
    asks,
    ending,
    finish,
    of_kind,
    play,
    running,
    state_of,
    waiting,
)

from a2a_serve.core import approvals
from a2a_serve.core import events as e
from a2a_serve.core.model import ToolCall
from a2a_serve.core.turn import State

# --- the tripwire ----------------------------------------------------------------------------------------------------


@pytest.mark.req("Q8")
@pytest.mark.parametrize(
    "changes",
    [
        {**RUN_LS, **COMPLETED},
        {**RUN_LS, **IN_PROGRESS},
        {**EDIT, **COMPLETED},
        {"kind": "", "title": "Something", **COMPLETED},
        {"kind": "switch_mode", **COMPLETED},
        {"kind": "read", "raw_input": {"command": "rm -rf ."}, **COMPLETED},
        {"kind": "think", "raw_input": {"cmd": ["rm", "-rf", "."]}, **IN_PROGRESS},
    ],
)
def test_a_change_without_asking_stops_the_process(changes: dict[str, Any]) -> None:
    turn = running()
    sentence = f"The agent acted without asking: {approvals.describe(ToolCall('c', **changes))}"
    assert play(turn, e.ToolUpdate("c", changes)) == [
        e.StopProcess("unapproved_tool_call", sentence),
        e.Finish("failed", "unapproved_tool_call", sentence, {"turns": 1}),
    ]
    assert state_of(turn) is State.DONE


@pytest.mark.req("Q8")
@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "read", **COMPLETED},
        {"kind": "search", **IN_PROGRESS},
        {"kind": "think", **COMPLETED},
        {"kind": "other", "title": "todowrite", **COMPLETED},
        {**RUN_LS, "status": "pending"},
        {**RUN_LS, "status": "failed"},
    ],
)
def test_what_needs_no_allow(changes: dict[str, Any]) -> None:
    turn = running(unasked=frozenset({"todowrite"}))
    play(turn, e.ToolUpdate("c", changes))
    assert state_of(turn) is State.RUNNING


@pytest.mark.req("Q8")
def test_a_reading_call_that_turns_out_to_change_something() -> None:
    turn = running()
    play(turn, e.ToolUpdate("c", {"kind": "read", **COMPLETED}))
    assert finish(play(turn, e.ToolUpdate("c", {"kind": "edit"}))).reason == "unapproved_tool_call"


@pytest.mark.req("Q8")
def test_progress_is_fine_while_the_question_is_open_and_completion_is_not() -> None:
    turn = waiting()
    assert not of_kind(e.StopProcess, play(turn, e.ToolUpdate("c", IN_PROGRESS)))
    effects = play(turn, e.ToolUpdate("c", COMPLETED))
    assert effects[:2] == [e.CloseQuestion("r", "canceled"), e.Reply("r", None)]
    assert of_kind(e.StopProcess, effects)
    assert finish(effects).reason == "unapproved_tool_call"


@pytest.mark.req("Q8")
@pytest.mark.parametrize("status", [COMPLETED, IN_PROGRESS])
@pytest.mark.parametrize("end", [e.Answered("r", "no"), e.QuestionExpired("r"), e.PermissionWithdrawn("r")])
def test_a_denied_call_must_not_go_on(end: e.Event, status: dict[str, Any]) -> None:
    turn = waiting()
    play(turn, end)
    assert finish(play(turn, e.ToolUpdate("c", status))).reason == "unapproved_tool_call"


@pytest.mark.req("Q8")
@pytest.mark.parametrize("status", [COMPLETED, IN_PROGRESS])
def test_an_allow_is_for_the_command_that_was_shown(status: dict[str, Any]) -> None:
    turn = waiting()
    play(turn, e.Answered("r", "yes"))
    assert finish(play(turn, e.ToolUpdate("c", {**RUN_RM, **status}))).reason == "unapproved_tool_call"


@pytest.mark.req("Q8")
def test_an_allow_is_for_one_call() -> None:
    turn = waiting()
    play(turn, e.Answered("r", "yes"))
    assert finish(play(turn, e.ToolUpdate("d", {**RUN_LS, **COMPLETED}))).reason == "unapproved_tool_call"


@pytest.mark.req("Q8")
def test_the_tripwire_answers_every_other_open_request() -> None:
    turn = waiting()
    play(turn, asks("r2", "d"), asks("r3", "f", {"kind": "edit"}))
    effects = play(turn, e.ToolUpdate("x", {**RUN_RM, **COMPLETED}))
    assert [reply.request_id for reply in of_kind(e.Reply, effects)] == ["r", "r2", "r3"]
    assert {reply.option_id for reply in of_kind(e.Reply, effects)} == {None}
    assert [closed.request_id for closed in of_kind(e.CloseQuestion, effects)] == ["r", "r2"]


def test_after_a_cancel_there_is_no_tripwire() -> None:
    """The end is decided; what the agent still reports only describes it."""
    turn = ending()
    play(turn, e.ToolUpdate("c", {**RUN_LS, **COMPLETED}))
    assert finish(play(turn, e.PromptEnded("cancelled"))).state == "canceled"


# --- agents that say `in_progress` before they ask --------------------------------------------------------------------


@pytest.mark.req("Q8")
def test_with_a_grace_progress_may_come_before_the_request() -> None:
    turn = running(progress_grace=2.0)
    assert e.CheckSoon("c") in play(turn, e.ToolUpdate("c", {**RUN_LS, **IN_PROGRESS}))
    play(turn, asks("r", "c"))
    assert play(turn, e.ProgressOverdue("c")) == []
    assert state_of(turn) is State.WAITING


@pytest.mark.req("Q8")
def test_with_a_grace_progress_without_a_request_is_stopped_when_it_is_over() -> None:
    turn = running(progress_grace=2.0)
    play(turn, e.ToolUpdate("c", {**RUN_LS, **IN_PROGRESS}))
    effects = play(turn, e.ProgressOverdue("c"))
    assert of_kind(e.StopProcess, effects)[0].code == "unapproved_tool_call"


@pytest.mark.req("Q8")
def test_a_grace_is_none_for_what_completes() -> None:
    turn = running(progress_grace=2.0)
    play(turn, e.ToolUpdate("c", {**RUN_LS, **IN_PROGRESS}))
    assert of_kind(e.StopProcess, play(turn, e.ToolUpdate("c", COMPLETED)))


@pytest.mark.req("Q8")
def test_a_call_that_failed_meanwhile_is_no_offence() -> None:
    turn = running(progress_grace=2.0)
    play(turn, e.ToolUpdate("c", {**RUN_LS, **IN_PROGRESS}))
    play(turn, e.ToolUpdate("c", {"status": "failed"}))
    assert play(turn, e.ProgressOverdue("c")) == []


@pytest.mark.req("Q8")
def test_what_is_unasked_stays_so_when_its_title_becomes_its_result() -> None:
    turn = running(unasked=frozenset({"todowrite"}))
    play(turn, e.ToolUpdate("c", {"title": "todowrite", "kind": "other"}))
    play(turn, e.ToolUpdate("c", {**IN_PROGRESS}))
    play(turn, e.ToolUpdate("c", {"title": "1 todos", **COMPLETED}))
    assert state_of(turn) is State.RUNNING


@pytest.mark.req("Q8")
@pytest.mark.parametrize(
    "late",
    [
        {"title": "todowrite", **COMPLETED},
        {"title": "todowrite", "raw_input": {"command": "rm x"}, **IN_PROGRESS},
        {"title": "todowrite", "kind": "edit", **IN_PROGRESS},
    ],
)
def test_no_call_becomes_unasked_by_a_late_title_or_with_something_to_change(late: dict[str, Any]) -> None:
    turn = running(unasked=frozenset({"todowrite"}))
    play(turn, e.ToolUpdate("c", {"title": "x", "kind": "other"}))
    assert of_kind(e.StopProcess, play(turn, e.ToolUpdate("c", late)))
