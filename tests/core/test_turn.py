"""The turn's table: what each event means in each state, what is published, and how turns end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from fakes.turns import COMPLETED, EDIT, IN_PROGRESS, asks, done, ending, finish, play, running, state_of, waiting

from a2a_serve.core import events as e
from a2a_serve.core.model import File, PlanEntry, ToolCall, Usage
from a2a_serve.core.turn import ALLOWED, STOPPED_BY_DENIAL, State, Turn, TurnError

# --- every pair is decided -------------------------------------------------------------------------------------------

IN_STATE: dict[State, Callable[[], Turn]] = {
    State.QUEUED: Turn,
    State.RUNNING: running,
    State.WAITING: waiting,
    State.ENDING: ending,
    State.DONE: done,
}
EVENTS: list[e.Event] = [
    e.Text("x"),
    e.Attachment(File("a.txt", "text/plain", b"x")),
    e.Thought("x"),
    e.Plan(()),
    e.ToolUpdate("d", {"kind": "read"}),
    asks("r2", "d"),
    e.PermissionWithdrawn("r"),
    e.UsageUpdate(Usage(input_tokens=1)),
    e.PromptEnded("end_turn"),
    e.PromptFailed("agent_error", "It broke."),
    e.AgentLost("agent_exited", "It is gone."),
    e.Started(),
    e.Settled("r"),
    e.ProgressOverdue("c"),
    e.Answered("r", "allow"),
    e.QuestionExpired("r"),
    e.CancelRequested(),
    e.DeadlinePassed(),
    e.CancelOverdue(),
]
LEGAL = {
    State.QUEUED: "Started CancelRequested AgentLost PromptFailed",
    State.RUNNING: "Text Attachment Thought Plan ToolUpdate PermissionRequest PermissionWithdrawn UsageUpdate "
    "PromptEnded PromptFailed AgentLost Settled ProgressOverdue CancelRequested DeadlinePassed",
    State.WAITING: "Text Attachment Thought Plan ToolUpdate PermissionRequest PermissionWithdrawn UsageUpdate "
    "PromptEnded PromptFailed AgentLost Settled ProgressOverdue Answered QuestionExpired CancelRequested",
    State.ENDING: "Text Attachment Thought Plan ToolUpdate PermissionRequest PermissionWithdrawn UsageUpdate "
    "PromptEnded PromptFailed AgentLost Settled ProgressOverdue CancelRequested DeadlinePassed CancelOverdue",
    State.DONE: "",
}


def test_the_table_names_every_event() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(e.Event))
    assert {state: {kind.__name__ for kind in kinds} for state, kinds in ALLOWED.items()} == {
        state: set(names.split()) for state, names in LEGAL.items()
    }


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("state", State)
def test_every_pair_is_decided(state: State, event: e.Event) -> None:
    turn = IN_STATE[state]()
    assert turn.state is state
    if type(event).__name__ in LEGAL[state].split():
        turn.receive(event, 1)
    else:
        with pytest.raises(TurnError, match=f"{type(event).__name__} while {state.value}"):
            turn.receive(event, 1)
        assert turn.state is state


# --- what the agent says ---------------------------------------------------------------------------------------------


@pytest.mark.req("T3")
def test_a_plain_turn() -> None:
    entries = (PlanEntry("one"),)
    assert play(
        Turn(),
        e.Started(),
        e.Thought("hm"),
        e.Plan(entries),
        e.Text("Hello"),
        e.Text(" you"),
        e.UsageUpdate(Usage(input_tokens=3, cost=0.5, currency="USD")),
        e.PromptEnded("end_turn", Usage(output_tokens=4)),
    ) == [
        e.Working(),
        e.PublishThought("hm"),
        e.PublishPlan(entries),
        e.PublishText("Hello"),
        e.PublishText(" you"),
        e.PublishText("", last=True),
        e.Finish(
            "completed",
            metadata={
                "stopReason": "end_turn",
                "turns": 1,
                "usage": {"inputTokens": 3, "outputTokens": 4, "cost": 0.5, "currency": "USD"},
            },
        ),
    ]


@pytest.mark.req("T3")
def test_a_reading_call_shows_each_status_once_and_never_asks() -> None:
    read: dict[str, Any] = {"kind": "read", "paths": ("a.py",)}
    turn = running()
    assert [play(turn, e.ToolUpdate("c", changes)) for changes in (read, {}, IN_PROGRESS, COMPLETED, COMPLETED)] == [
        [e.Working("Read a.py", ToolCall("c", **read))],
        [],
        [e.Working("Read a.py", ToolCall("c", **read, **IN_PROGRESS))],
        [e.Working("Read a.py", ToolCall("c", **read, **COMPLETED))],
        [],
    ]


@pytest.mark.req("T3")
def test_an_allowed_edit_publishes_its_diff_when_it_is_done() -> None:
    turn = running()
    play(turn, e.ToolUpdate("c", EDIT), asks(changes={}), e.Answered("r", "yes"))
    call = ToolCall("c", **EDIT, **COMPLETED)
    assert play(turn, e.ToolUpdate("c", COMPLETED)) == [
        e.Working("Edit a.py", call),
        e.PublishDiff("a.py", "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n"),
    ]
    assert play(turn, e.ToolUpdate("c", COMPLETED)) == []


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("T5")
def test_cancel_before_the_prompt() -> None:
    finished = e.Finish("canceled", "canceled", "The task was canceled.", {"turns": 0})
    assert play(Turn(), e.CancelRequested()) == [finished]


@pytest.mark.req("T5", "Q9")
def test_cancel_while_questions_wait() -> None:
    turn = waiting()
    play(turn, asks("r2", "d", {}))
    assert play(turn, e.CancelRequested()) == [
        e.CloseQuestion("r", "canceled"),
        e.Reply("r", None),
        e.Reply("r2", None),
        e.CancelPrompt(),
    ]
    assert state_of(turn) is State.ENDING
    assert play(turn, e.CancelRequested(), e.DeadlinePassed(), e.Settled("r2")) == []
    assert play(turn, asks("r3", "f")) == [e.Reply("r3", None)]
    assert play(turn, e.Text("so far"), e.PromptEnded("cancelled")) == [
        e.PublishText("so far"),
        e.PublishText("", last=True),
        e.Finish("canceled", "canceled", "The task was canceled.", {"turns": 1}),
    ]


@pytest.mark.req("T5")
@pytest.mark.parametrize("stop", ["end_turn", "cancelled", "refusal"])
def test_however_the_prompt_ends_after_a_cancel_the_task_is_canceled(stop: str) -> None:
    assert finish(play(ending(), e.PromptEnded(stop))).state == "canceled"


@pytest.mark.req("T5")
def test_cancel_that_the_agent_ignores() -> None:
    effects = play(ending(), e.CancelOverdue())
    assert effects[0] == e.StopProcess("cancel_ignored", "The agent did not stop when it was told to.")
    assert finish(effects).state == "canceled"


@pytest.mark.req("T6")
def test_the_deadline_ends_the_turn() -> None:
    turn = running(timeout=600)
    assert turn.deadline() == 600
    assert turn.receive(e.DeadlinePassed(), 600) == [e.CancelPrompt()]
    assert turn.deadline() is None
    assert finish(play(turn, e.PromptEnded("cancelled"))) == e.Finish(
        "failed", "timeout", "The turn took longer than 600 seconds.", {"turns": 1}
    )


@pytest.mark.req("T6")
def test_the_deadline_stands_still_while_a_question_is_open() -> None:
    turn = Turn(timeout=100)
    assert turn.deadline() is None
    turn.receive(e.Started(), 1000)
    turn.receive(e.Text("x"), 1030)
    assert turn.deadline() == 1100
    turn.receive(asks(), 1040)
    assert turn.deadline() is None
    turn.receive(asks("r2", "d"), 1500)
    turn.receive(e.Answered("r", "yes"), 2000)
    assert turn.deadline() is None
    turn.receive(e.Answered("r2", "yes"), 3000)
    assert turn.deadline() == 3060


@pytest.mark.req("T6")
def test_the_deadline_is_armed_once_and_spans_rounds() -> None:
    turn = Turn(timeout=100)
    turn.receive(e.Started(), 0)
    turn.receive(asks(), 10)
    turn.receive(e.Answered("r", "deny", "other way"), 20)
    turn.receive(e.PromptEnded("end_turn"), 50)
    assert turn.deadline() == 110


def test_no_timeout_has_no_deadline() -> None:
    assert running(timeout=0).deadline() is None


@pytest.mark.req("S9")
@pytest.mark.parametrize(
    ("make", "before", "state", "reason"),
    [
        (Turn, [], "failed", "out_of_memory"),
        (running, [], "failed", "out_of_memory"),
        (waiting, [e.CloseQuestion("r", "canceled"), e.Reply("r", None)], "failed", "out_of_memory"),
        (ending, [], "canceled", "canceled"),
    ],
)
@pytest.mark.parametrize("kind", [e.AgentLost, e.PromptFailed])
def test_the_agent_is_lost_in_each_state(make: Any, before: list[e.Effect], state: str, reason: str, kind: Any) -> None:
    turn = make()
    effects = play(turn, kind("out_of_memory", "It ran out of memory."))
    assert effects[:-1] == before
    assert (finish(effects).state, finish(effects).reason) == (state, reason)
    assert state_of(turn) is State.DONE


@pytest.mark.req("T6")
@pytest.mark.parametrize("said", [[], [e.Text("")], [e.Text(" \n")], [e.Thought("hm")]])
def test_no_answer(said: list[e.Event]) -> None:
    assert finish(play(running(), *said, e.PromptEnded("end_turn"))).reason == "no_answer"


@pytest.mark.parametrize(
    ("stop", "state", "reason"),
    [
        ("end_turn", "completed", ""),
        ("max_tokens", "completed", ""),
        ("refusal", "rejected", "refusal"),
        ("cancelled", "failed", "agent_canceled"),
    ],
)
def test_how_the_agent_ends_it(stop: str, state: str, reason: str) -> None:
    ended = finish(play(running(), e.Text("x"), e.PromptEnded(stop)))
    assert (ended.state, ended.reason, ended.metadata) == (state, reason, {"stopReason": stop, "turns": 1})


@pytest.mark.req("Q3")
@pytest.mark.parametrize("stop", ["end_turn", "cancelled"])
def test_a_silent_end_after_a_denial_says_so(stop: str) -> None:
    turn = waiting()
    play(turn, e.Answered("r", "deny"))
    assert play(turn, e.PromptEnded(stop)) == [
        e.PublishText(STOPPED_BY_DENIAL, last=True),
        e.Finish("completed", "denied", "", {"stopReason": stop, "turns": 1}),
    ]


def test_a_prompt_that_ends_under_an_open_question_closes_it() -> None:
    assert play(waiting(), e.Text("never mind"), e.PromptEnded("end_turn"))[1:] == [
        e.CloseQuestion("r", "canceled"),
        e.Reply("r", None),
        e.PublishText("", last=True),
        e.Finish("completed", "", "", {"stopReason": "end_turn", "turns": 1}),
    ]


@pytest.mark.req("T6")
def test_a_conversation_over_its_budget_ends_and_one_within_does_not() -> None:
    turn = running(budget=1.0)
    assert play(turn, e.UsageUpdate(Usage(cost=1.0, currency="USD"))) == []
    assert play(turn, e.UsageUpdate(Usage(cost=1.5, currency="USD"))) == [e.CancelPrompt()]
    assert finish(play(turn, e.PromptEnded("cancelled"))).reason == "budget"


@pytest.mark.req("T6")
@pytest.mark.parametrize(("max_rounds", "ended"), [(1, True), (2, False), (0, False)])
def test_a_task_has_so_many_prompts(max_rounds: int, ended: bool) -> None:
    turn = waiting(max_rounds=max_rounds)
    play(turn, e.Answered("r", "no", "do it otherwise"))
    effects = play(turn, e.PromptEnded("end_turn"))
    assert any(isinstance(each, e.PromptAgain) for each in effects) is not ended
    if ended:
        assert finish(effects).reason == "turn_limit"


@pytest.mark.req("T6")
def test_the_agents_own_limit_of_steps_is_told() -> None:
    ended = finish(play(running(), e.Text("so far"), e.PromptEnded("max_turn_requests")))
    assert (ended.state, ended.reason) == ("failed", "turn_limit")
