"""Questions in a turn: approve, deny, words, late and changed input, and agents that offer bad options."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.turns import (
    ALWAYS,
    COMPLETED,
    EDIT,
    EDIT_ELSE,
    IN_PROGRESS,
    NO,
    RUN_LS,
    RUN_RM,
    ask_of,
    asks,
    finish,
    of_kind,
    play,
    running,
    state_of,
    waiting,
)

from a2a_serve.core import events as e
from a2a_serve.core.errors import OptionUnknown
from a2a_serve.core.model import Option
from a2a_serve.core.turn import State, TurnError

# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q1", "Q2")
@pytest.mark.parametrize("option", ["yes", "allow"])
def test_approve(option: str) -> None:
    turn = waiting()
    assert play(turn, e.Answered("r", option)) == [e.Reply("r", "yes")]
    assert state_of(turn) is State.RUNNING
    effects = play(
        turn,
        e.ToolUpdate("c", IN_PROGRESS),
        e.ToolUpdate("c", COMPLETED),
        e.Text("Done."),
        e.PromptEnded("end_turn"),
    )
    assert finish(effects).state == "completed"
    assert not [effect for effect in effects if isinstance(effect, e.StopProcess)]


@pytest.mark.req("Q3")
@pytest.mark.parametrize("option", ["no", "deny"])
def test_deny(option: str) -> None:
    turn = waiting()
    assert play(turn, e.Answered("r", option)) == [e.Reply("r", "no")]
    assert state_of(turn) is State.RUNNING
    assert finish(play(turn, e.Text("Then not."), e.PromptEnded("end_turn"))).state == "completed"


@pytest.mark.req("Q5")
@pytest.mark.parametrize("option", ["always", "maybe", ""])
def test_an_option_that_was_not_offered_changes_nothing(option: str) -> None:
    turn = waiting()
    with pytest.raises(OptionUnknown, match="yes, no, allow, deny"):
        turn.receive(e.Answered("r", option), 1)
    assert state_of(turn) is State.WAITING
    assert play(turn, e.Answered("r", "yes")) == [e.Reply("r", "yes")]


def test_an_answer_to_no_open_request_is_the_hosts_mistake() -> None:
    turn = waiting()
    play(turn, e.ToolUpdate("d", {"kind": "execute"}), asks("unasked", "d", {}))
    for request_id in ("unasked", "nowhere"):
        with pytest.raises(TurnError, match="no open request"):
            turn.receive(e.Answered(request_id, "yes"), 1)
    play(turn, e.Answered("r", "yes"))
    with pytest.raises(TurnError):
        turn.receive(e.Answered("r", "yes"), 1)


@pytest.mark.req("Q3")
def test_words_of_a_denial_go_along_where_the_agent_hears_them() -> None:
    turn = waiting(hears_reason=True)
    assert play(turn, e.Answered("r", "deny", "use git mv")) == [e.Reply("r", "no", "use git mv")]
    assert finish(play(turn, e.Text("ok"), e.PromptEnded("end_turn"))).metadata["turns"] == 1


@pytest.mark.req("Q3")
def test_words_of_a_denial_become_a_round_where_it_does_not() -> None:
    turn = waiting(hears_reason=False)
    play(turn, e.Answered("r", "deny", "use git mv"))
    assert play(turn, e.PromptEnded("cancelled")) == [e.PublishText("", last=True), e.PromptAgain("use git mv")]
    assert state_of(turn) is State.RUNNING
    effects = play(turn, e.Text("Moved."), e.PromptEnded("end_turn"))
    assert finish(effects) == e.Finish("completed", metadata={"stopReason": "end_turn", "turns": 2})


@pytest.mark.req("Q3")
def test_words_of_two_denials_make_one_round_and_words_of_an_allow_none() -> None:
    turn = waiting()
    play(turn, asks("r2", "d"), asks("r3", "f"))
    play(turn, e.Answered("r", "no", "first"), e.Answered("r3", "yes", "go on"), e.Answered("r2", "no", "second"))
    assert play(turn, e.PromptEnded("end_turn"))[-1] == e.PromptAgain("first\nsecond")


@pytest.mark.req("Q1")
def test_two_open_questions() -> None:
    turn = waiting()
    assert play(turn, asks("r2", "d", RUN_RM)) == [ask_of("r2", RUN_RM)]
    assert play(turn, e.Answered("r2", "deny")) == [e.Reply("r2", "no")]
    assert state_of(turn) is State.WAITING
    assert play(turn, e.Answered("r", "allow")) == [e.Reply("r", "yes")]
    assert state_of(turn) is State.RUNNING


@pytest.mark.req("Q9")
def test_an_expired_question_is_a_denial() -> None:
    turn = waiting()
    assert play(turn, e.QuestionExpired("r")) == [
        e.CloseQuestion("r", "expired"),
        e.Reply("r", "no", "Nobody answered in time."),
    ]
    assert state_of(turn) is State.RUNNING
    effects = play(turn, e.ToolUpdate("c", COMPLETED))
    assert finish(effects).reason == "unapproved_tool_call"


def test_an_expiry_that_comes_after_the_answer_does_nothing() -> None:
    turn = waiting()
    play(turn, asks("r2", "d"), e.Answered("r", "yes"))
    assert play(turn, e.QuestionExpired("r")) == []
    assert state_of(turn) is State.WAITING


@pytest.mark.req("Q9")
def test_a_request_that_the_agent_withdraws() -> None:
    turn = waiting()
    assert play(turn, e.PermissionWithdrawn("r")) == [e.CloseQuestion("r", "canceled"), e.Reply("r", None)]
    assert state_of(turn) is State.RUNNING
    assert play(turn, e.PermissionWithdrawn("r")) == []


def test_a_request_withdrawn_before_anyone_was_asked_closes_no_question() -> None:
    turn = running()
    play(turn, asks(changes={}))
    assert play(turn, e.PermissionWithdrawn("r"), e.Settled("r")) == [e.Reply("r", None)]


# --- when the question is fixed --------------------------------------------------------------------------------------


@pytest.mark.req("Q2")
def test_input_that_arrives_late_makes_the_question() -> None:
    turn = running()
    assert play(turn, asks(changes={"title": "ls"})) == [e.SettleSoon("r")]
    assert state_of(turn) is State.RUNNING
    effects = play(turn, e.ToolUpdate("c", {**RUN_LS, **IN_PROGRESS}))
    assert effects[0] == ask_of("r", {**RUN_LS, **IN_PROGRESS})
    assert state_of(turn) is State.WAITING
    assert play(turn, e.Settled("r")) == []


@pytest.mark.req("Q2")
def test_without_input_the_question_is_what_is_known() -> None:
    turn = running()
    play(turn, asks(changes={"title": "ls", "kind": "execute"}))
    assert play(turn, e.Settled("r")) == [ask_of("r", {"title": "ls", "kind": "execute"})]
    assert state_of(turn) is State.WAITING


@pytest.mark.req("Q2")
def test_a_call_of_which_nothing_is_known_can_only_be_denied() -> None:
    turn = running()
    play(turn, asks(changes={}))
    assert play(turn, e.Settled("r")) == [ask_of("r", {}, (NO,))]
    with pytest.raises(OptionUnknown):
        turn.receive(e.Answered("r", "allow"), 0)


@pytest.mark.req("Q2")
def test_input_that_comes_after_a_blank_question_asks_again_with_it() -> None:
    turn = running()
    play(turn, asks(changes={}), e.Settled("r"))
    asked_again = play(turn, e.ToolUpdate("c", {"raw_input": {"issue": 7}}))
    assert asked_again == [e.CloseQuestion("r", "superseded"), ask_of("r", {"raw_input": {"issue": 7}})]


@pytest.mark.req("Q2", "Q3")
@pytest.mark.parametrize(
    ("asked", "changed"),
    [
        (RUN_LS, RUN_RM),
        (EDIT, EDIT_ELSE),
        (EDIT, {"paths": ("b.py",)}),
        (EDIT, {"raw_input": {"command": "rm"}}),
        ({"raw_input": {"issue": 7}}, {"raw_input": {"issue": 8}}),
    ],
)
def test_input_that_changes_under_a_question_replaces_it(asked: dict[str, Any], changed: dict[str, Any]) -> None:
    turn = running()
    play(turn, asks(changes=asked))
    assert play(turn, e.ToolUpdate("c", changed)) == [
        e.CloseQuestion("r", "superseded"),
        ask_of("r", {**asked, **changed}),
    ]
    assert state_of(turn) is State.WAITING
    assert play(turn, e.Answered("r", "allow")) == [e.Reply("r", "yes")]


@pytest.mark.parametrize(
    ("asked", "more"),
    [
        (RUN_LS, {"raw_input": {"command": "ls", "description": "list"}}),
        (RUN_LS, {"paths": ("a.py",)}),
        (RUN_LS, {"title": "List files", **IN_PROGRESS}),
        (EDIT, {"raw_input": {"oldString": "1", "newString": "2"}}),
    ],
)
def test_what_agents_add_to_the_same_action_replaces_nothing(asked: dict[str, Any], more: dict[str, Any]) -> None:
    """opencode names its input anew while it asks (research/acp.md 4)."""
    turn = running()
    play(turn, asks(changes=asked))
    effects = play(turn, e.ToolUpdate("c", more))
    assert not [effect for effect in effects if isinstance(effect, e.CloseQuestion | e.Ask)]


@pytest.mark.req("Q1")
def test_one_call_can_ask_twice() -> None:
    """opencode asks for a folder outside and then for the command, both with one call id."""
    turn = running()
    play(turn, asks("r", changes={"kind": "other", "raw_input": {"directories": ["/opt"]}}), e.Answered("r", "yes"))
    assert play(turn, asks("r2", changes=RUN_LS)) == [ask_of("r2", RUN_LS)]
    play(turn, e.ToolUpdate("c", IN_PROGRESS), e.Answered("r2", "yes"))
    assert not of_kind(e.StopProcess, play(turn, e.ToolUpdate("c", COMPLETED)))


@pytest.mark.req("Q2", "Q8")
def test_a_second_request_on_a_call_replaces_what_the_first_one_shows() -> None:
    turn = waiting()
    assert play(turn, asks("r2", changes=RUN_RM)) == [
        e.CloseQuestion("r", "superseded"),
        ask_of("r", RUN_RM),
        ask_of("r2", RUN_RM),
    ]


@pytest.mark.req("Q8")
@pytest.mark.parametrize("answers", [("yes", "no"), ("no", "yes"), ("yes",), ("no",)])
def test_a_call_that_asked_twice_needs_both_allows(answers: tuple[str, ...]) -> None:
    turn = waiting()
    play(turn, asks("r2"))
    for request_id, answer in zip(("r", "r2"), answers, strict=False):
        play(turn, e.Answered(request_id, answer))
    assert finish(play(turn, e.ToolUpdate("c", COMPLETED))).reason == "unapproved_tool_call"


# --- options of a bad agent ------------------------------------------------------------------------------------------


@pytest.mark.req("Q5", "Q8")
@pytest.mark.parametrize(
    "options",
    [
        (Option("deny", "allow_once", "Yes"),),
        (Option("deny", "allow_always", "Yes"),),
        (Option("deny", "allow_once", "Yes"), Option("deny", "reject_once", "No")),
        (Option("x", "allow_once", "Yes"), Option("x", "reject_once", "No")),
        (ALWAYS,),
        (),
    ],
)
@pytest.mark.parametrize("end", [e.Answered("r", "deny"), e.QuestionExpired("r")])
def test_a_denial_never_sounds_like_an_allow(options: tuple[Option, ...], end: e.Event) -> None:
    """Where the agent has no clear way to hear no, it hears `cancelled`."""
    turn = running()
    play(turn, e.PermissionRequest("r", "c", RUN_LS, options))
    (reply,) = of_kind(e.Reply, play(turn, end))
    assert reply.option_id is None


@pytest.mark.req("H1")
def test_where_changes_are_denied_nobody_is_asked() -> None:
    turn = running(denies_changes=True)
    effects = play(turn, asks())
    assert [type(each) for each in effects] == [e.Reply]
    assert state_of(turn) is State.RUNNING
    reading = e.PermissionRequest("r2", "d", {"kind": "read", "paths": (".env",), "raw_input": {"p": 1}}, (NO,))
    assert [type(each) for each in play(turn, reading)] == [e.Ask]
    changed = play(turn, e.ToolUpdate("d", {"raw_input": {"command": "rm .env"}}))
    assert [type(each) for each in changed] == [e.CloseQuestion, e.Reply]
    assert state_of(turn) is State.RUNNING
