"""Whatever the agent and the people do, in any legal order: what must never happen in a turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_serve.core import events as e
from a2a_serve.core.calls import Calls
from a2a_serve.core.errors import OptionUnknown
from a2a_serve.core.model import Diff, File, Option, Usage
from a2a_serve.core.turn import ALLOWED, State, Turn, TurnError

CALLS = st.sampled_from(["c1", "c2"])
KINDS = ["allow_once", "allow_always", "reject_once", "reject_always"]
OPTIONS = st.lists(
    st.builds(Option, st.sampled_from(["allow", "deny", "a", "b", "c"]), st.sampled_from(KINDS), st.just("Name")),
    max_size=4,
).map(tuple)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["", "read", "edit", "execute"]),
        "title": st.sampled_from(["", "todo", "ls"]),
        "status": st.sampled_from(["pending", "in_progress", "completed", "failed"]),
        "raw_input": st.sampled_from([None, {}, {"command": "ls"}, {"command": "rm"}, {"file": "x"}]),
        "paths": st.sampled_from([(), ("a",), ("b",)]),
        "diffs": st.sampled_from([(), (Diff("a", None, "x\n"),)]),
    },
)
STOPS = st.sampled_from(["end_turn", "cancelled", "refusal", "max_tokens"])
ANSWERS = st.sampled_from(["allow", "deny", "a", "b", "c", "zzz"])


@dataclass
class Play:
    """A host that does what the effects say, and remembers."""

    turn: Turn
    now: float = 0
    asked: dict[str, tuple[Option, ...]] = field(default_factory=dict)  # what the agent offered, by request
    allowed: set[str] = field(default_factory=set)  # requests that a person allowed
    open: dict[str, e.Ask] = field(default_factory=dict)
    replies: dict[str, list[e.Reply]] = field(default_factory=dict)
    effects: list[e.Effect] = field(default_factory=list)

    def feed(self, event: e.Event) -> None:
        if type(event) not in ALLOWED[self.turn.state]:
            with pytest.raises(TurnError):
                self.turn.receive(event, self.now)
            return
        for effect in self.turn.receive(event, self.now):
            self.effects.append(effect)
            match effect:
                case e.Ask(request_id):
                    self.open[request_id] = effect
                case e.CloseQuestion(request_id):
                    del self.open[request_id]  # only what is open is closed
                case e.Reply(request_id):
                    self.open.pop(request_id, None)
                    self.replies.setdefault(request_id, []).append(effect)

    def answer(self, request_id: str, option_id: str) -> None:
        offered = self.open[request_id].options
        try:
            self.feed(e.Answered(request_id, option_id, "words"))
        except OptionUnknown:
            assert option_id not in {option.id for option in offered}
            return
        meant = option_id if option_id in ("allow", "deny") else None
        kinds = {"allow_once"} if meant == "allow" else {"reject_once"} if meant == "deny" else set()
        kinds = kinds or {option.kind for option in offered if option.id == option_id}
        if kinds == {"allow_once"}:
            self.allowed.add(request_id)


def step(play: Play, data: st.DataObject) -> None:
    """One thing that can happen now, legal or not."""
    play.now += data.draw(st.integers(0, 5))
    request_ids = st.sampled_from(sorted(play.asked) or ["none"])
    kind = data.draw(st.sampled_from(["agent", "agent", "agent", "ask", "ask", "answer", "answer", "host", "end"]))
    if kind == "ask":
        request_id = f"r{len(play.asked)}"
        request = e.PermissionRequest(request_id, data.draw(CALLS), data.draw(CHANGES), data.draw(OPTIONS))
        if type(request) in ALLOWED[play.turn.state]:
            play.asked[request_id] = request.options
        play.feed(request)
    elif kind == "answer" and play.open:
        play.answer(data.draw(st.sampled_from(sorted(play.open))), data.draw(ANSWERS))
    else:
        play.feed(data.draw({"host": from_host, "end": from_the_end}.get(kind, from_agent)(request_ids)))


def from_agent(request_ids: st.SearchStrategy[str]) -> st.SearchStrategy[e.Event]:
    return st.one_of(
        st.builds(e.ToolUpdate, CALLS, CHANGES),
        st.builds(e.Text, st.sampled_from(["", "x"])),
        st.builds(e.PermissionWithdrawn, request_ids),
        st.just(e.Attachment(File("a.png", "image/png", b"x"))),
        st.just(e.Started()),
        st.just(e.UsageUpdate(Usage(input_tokens=1))),
    )


def from_host(request_ids: st.SearchStrategy[str]) -> st.SearchStrategy[e.Event]:
    return st.one_of(
        st.builds(e.Settled, request_ids),
        st.builds(e.ProgressOverdue, CALLS),
        st.builds(e.QuestionExpired, request_ids),
        st.just(e.CancelRequested()),
        st.just(e.DeadlinePassed()),
        st.just(e.CancelOverdue()),
    )


def from_the_end(_: st.SearchStrategy[str]) -> st.SearchStrategy[e.Event]:
    return st.one_of(
        st.builds(e.PromptEnded, STOPS),
        st.just(e.PromptFailed("agent_error", "x")),
        st.just(e.AgentLost("agent_exited", "x")),
    )


@pytest.mark.req("Q5", "Q8", "T5")
@settings(max_examples=120, deadline=None)
@given(st.data(), st.booleans(), st.sampled_from([0, 1]))
def test_any_interleaving(data: st.DataObject, hears_reason: bool, progress_grace: float) -> None:
    turn = Turn(
        timeout=100,
        calls=Calls(frozenset({"todo"})),
        hears_reason=hears_reason,
        progress_grace=progress_grace,
        denies_changes=data.draw(st.booleans()),
    )
    play = Play(turn)
    if data.draw(st.booleans()):
        play.feed(e.Started())
    for _ in range(data.draw(st.integers(0, 40))):
        step(play, data)
        assert (play.turn.state is State.WAITING) == bool(play.open)
        assert play.turn.state is State.RUNNING or play.turn.deadline() is None
    if play.turn.state is State.QUEUED:
        play.feed(e.Started())
    play.feed(e.AgentLost("agent_exited", "x"))
    check(play)


def check(play: Play) -> None:
    kinds = [type(effect) for effect in play.effects]
    assert play.turn.state is State.DONE
    assert kinds.count(e.Finish) == 1
    assert kinds[-1] is e.Finish
    assert not play.open
    assert set(play.replies) == set(play.asked)
    for request_id, (reply,) in ((request_id, replies) for request_id, replies in play.replies.items()):
        said = {option.kind for option in play.asked[request_id] if option.id == reply.option_id}
        if reply.option_id is None:
            continue
        assert said in ({"reject_once"}, {"allow_once"})
        assert said == {"reject_once"} or request_id in play.allowed


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(CALLS, CHANGES)))
def test_nothing_that_changes_is_completed_without_an_allow(updates: list[tuple[str, dict[str, Any]]]) -> None:
    """Q8, said the other way round: an agent that never asks and was not stopped has completed no change."""
    turn = Turn()
    turn.receive(e.Started(), 0)
    for call_id, changes in updates:
        turn.receive(e.ToolUpdate(call_id, changes), 0)
        if turn.state is State.DONE:
            return
        call = turn.calls.get(call_id)
        assert call
        assert not (call.changes_something and call.status in ("in_progress", "completed"))


@given(st.lists(st.tuples(st.sampled_from(["ask", "answer", "wait"]), st.integers(0, 50)), max_size=30))
def test_the_deadline_counts_exactly_the_time_without_an_open_question(steps: list[tuple[str, int]]) -> None:
    """T6: armed once, it stands still only while a question is open."""
    turn, now, spent, open_requests, number = Turn(timeout=10_000), 0, 0, list[str](), 0
    turn.receive(e.Started(), 0)
    for what, seconds in steps:
        now += seconds
        spent += 0 if open_requests else seconds
        if what == "ask":
            number += 1
            changes = {"kind": "execute", "raw_input": {"command": "ls"}}
            turn.receive(e.PermissionRequest(f"r{number}", f"c{number}", changes), now)
            open_requests.append(f"r{number}")
        elif what == "answer" and open_requests:
            turn.receive(e.Answered(open_requests.pop(), "deny"), now)
        assert turn.deadline() == (None if open_requests else now + 10_000 - spent)
