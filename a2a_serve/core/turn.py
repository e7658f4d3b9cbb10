"""A turn as a table of legal state and event pairs: events in, effects out. No I/O, no clock.

One turn per task. The executor feeds it what the agent and the host do, in order, and performs the effects it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from a2a_serve.core import approvals
from a2a_serve.core import events as e
from a2a_serve.core.calls import Calls
from a2a_serve.core.model import Option, QuestionState, ToolCall, Usage


class State(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """At least one question is open; the prompt timeout stands still."""
    ENDING = "ending"
    """Canceled or out of time: the agent has been told, its last words are awaited."""
    DONE = "done"


class TurnError(Exception):
    """A host's mistake: an event that this state does not allow, or an answer to no open request."""


_FROM_AGENT = {
    e.Text,
    e.Attachment,
    e.Thought,
    e.Plan,
    e.ToolUpdate,
    e.PermissionRequest,
    e.PermissionWithdrawn,
    e.UsageUpdate,
    e.PromptEnded,
    e.PromptFailed,
    e.AgentLost,
}
_FROM_HOST = {e.Settled, e.ProgressOverdue, e.CancelRequested, e.DeadlinePassed}

ALLOWED: dict[State, set[type[Any]]] = {
    State.QUEUED: {e.Started, e.CancelRequested, e.AgentLost, e.PromptFailed},
    State.RUNNING: _FROM_AGENT | _FROM_HOST,
    State.WAITING: (_FROM_AGENT | _FROM_HOST | {e.Answered, e.QuestionExpired}) - {e.DeadlinePassed},
    State.ENDING: _FROM_AGENT | _FROM_HOST | {e.CancelOverdue},
    State.DONE: set(),
}

NO_CHANGES = "Changes are not allowed here; say what you would change instead."
STOPPED_BY_DENIAL = "The agent stopped after the denial."


@dataclass(slots=True)
class _Request:
    """A permission request: its call as it is known by now, what the agent offered, the call as a person was asked."""

    call: ToolCall
    options: tuple[Option, ...]
    asked: ToolCall | None = None


@dataclass(slots=True)
class _Ending:
    state: str
    reason: str
    sentence: str


@dataclass(slots=True)
class Turn:
    """`timeout` in seconds, 0 for none: armed once, spans rounds, stands still while a question is open (T6).

    `hears_reason`: the agent hears a denial's words with the outcome; otherwise they become a further prompt of the
    same task. `progress_grace`: seconds for which a changing call may say it is in progress before its request comes
    (opencode says so first); 0 for an agent that never does. `denies_changes`: the answer to every request for a
    change is no, and nobody is asked. `max_rounds`: prompts a task may take, 0 for any. `budget`: the cost, as the
    agent counts it for its session, at which the turn is ended; 0 for none.
    """

    timeout: float = 0
    hears_reason: bool = False
    progress_grace: float = 0
    denies_changes: bool = False
    max_rounds: int = 0
    budget: float = 0
    state: State = State.QUEUED
    calls: Calls = field(default_factory=Calls)
    usage: Usage = field(default_factory=Usage)
    _requests: dict[str, _Request] = field(default_factory=dict)
    _words: list[str] = field(default_factory=list)
    _answered: bool = False
    _rounds: int = 0
    _ending: _Ending | None = None
    _started_at: float = 0
    _spent: float = 0
    _running_since: float | None = None

    def receive(self, event: e.Event, now: float) -> list[e.Effect]:
        """Take one event at time `now` (seconds, monotonic) and tell what to do. Raises TurnError on illegal pairs."""
        if type(event) not in ALLOWED[self.state]:
            raise TurnError(f"{type(event).__name__} while {self.state.value}")
        before = self.state
        effects = _HANDLERS[type(event)](self, event, now)
        self._keep_time(before, now)
        return effects

    def deadline(self) -> float | None:
        """When the prompt timeout passes, on the clock of `now`; None while it stands still or there is none."""
        if not self.timeout or self._running_since is None:
            return None
        return self._running_since + self.timeout - self._spent

    def _keep_time(self, before: State, now: float) -> None:
        if self.state is before:
            return
        if self._running_since is not None and self.state is not State.RUNNING:
            self._spent += now - self._running_since
            self._running_since = None
        elif self.state is State.RUNNING:
            self._running_since = now

    # --- what the agent says ---------------------------------------------------------------------------------------

    def _on_started(self, event: e.Started, now: float) -> list[e.Effect]:
        self.state, self._started_at, self._rounds = State.RUNNING, now, 1
        return [e.Working()]

    def _on_text(self, event: e.Text, now: float) -> list[e.Effect]:
        self._answered = self._answered or bool(event.text.strip())
        return [e.PublishText(event.text)]

    def _on_attachment(self, event: e.Attachment, now: float) -> list[e.Effect]:
        self._answered = True
        return [e.PublishFile(event.file)]

    def _on_thought(self, event: e.Thought, now: float) -> list[e.Effect]:
        return [e.PublishThought(event.text)]

    def _on_plan(self, event: e.Plan, now: float) -> list[e.Effect]:
        return [e.PublishPlan(event.entries)]

    def _on_usage(self, event: e.UsageUpdate, now: float) -> list[e.Effect]:
        self.usage = merge_usage(self.usage, event.usage)
        if not self.budget or (self.usage.cost or 0) <= self.budget:
            return []
        sentence = f"This conversation has cost {self.usage.cost:g} {self.usage.currency}, more than {self.budget:g}."
        return self._begin_ending(_Ending("failed", "budget", sentence))

    def _on_tool_update(self, event: e.ToolUpdate, now: float) -> list[e.Effect]:
        before = self.calls.get(event.call_id)
        call = self.calls.merge(event.call_id, event.changes)
        is_ahead = self._is_ahead(call)
        if self._is_unapproved(call) or (is_ahead and not self.progress_grace):
            return self._stop_unapproved(call)
        effects: list[e.Effect] = self._ask_again(call)
        if is_ahead:
            effects.append(e.CheckSoon(call.id))
        if before is None or before.status != call.status:
            effects.append(e.Working(approvals.describe(call), call))
        if call.status == "completed" and (before is None or before.status != "completed"):
            effects += [e.PublishDiff(diff.path, approvals.unified(diff)) for diff in call.diffs]
        return effects

    def _on_permission(self, event: e.PermissionRequest, now: float) -> list[e.Effect]:
        if self.state is State.ENDING:
            return [e.Reply(event.request_id, None)]
        call = self.calls.merge(event.call_id, event.changes)
        effects = self._ask_again(call)
        self._requests[event.request_id] = _Request(call, event.options)
        if call.raw_input or call.diffs:
            return [*effects, *self._ask(event.request_id)]
        return [*effects, e.SettleSoon(event.request_id)]

    def _on_settled(self, event: e.Settled, now: float) -> list[e.Effect]:
        request = self._requests.get(event.request_id)
        return self._ask(event.request_id) if request and request.asked is None else []

    def _on_withdrawn(self, event: e.PermissionWithdrawn, now: float) -> list[e.Effect]:
        if event.request_id not in self._requests:
            return []
        return self._close(event.request_id, QuestionState.CANCELED)

    # --- questions -------------------------------------------------------------------------------------------------

    def _ask(self, request_id: str) -> list[e.Effect]:
        request = self._requests[request_id]
        if self.denies_changes and request.call.changes_something:
            return self._deny(request_id, NO_CHANGES)
        request.asked = request.call
        self.state = State.WAITING
        return [e.Ask(request_id, approvals.render(request.call), approvals.offer(request.call, request.options))]

    def _ask_again(self, call: ToolCall) -> list[e.Effect]:
        """Input that arrives late makes the question; input that changes under a question replaces it."""
        effects: list[e.Effect] = []
        for request_id, request in list(self._requests.items()):
            if request.call.id != call.id:
                continue
            request.call = call
            if request.asked is None:
                effects += self._ask(request_id) if call.raw_input or call.diffs else []
            elif not approvals.same_action(request.asked, call):
                request.asked = None
                effects += [e.CloseQuestion(request_id, QuestionState.SUPERSEDED), *self._ask(request_id)]
        return effects

    def _on_answered(self, event: e.Answered, now: float) -> list[e.Effect]:
        request = self._requests.get(event.request_id)
        if request is None or request.asked is None:
            raise TurnError("answer to no open request")
        option = approvals.choose(event.option_id, approvals.offer(request.asked, request.options))
        if option.kind == "allow_once":
            self.calls.allow(request.asked)
        else:
            self.calls.deny(request.call.id)
            if event.words and not self.hears_reason:
                self._words.append(event.words)
        return self._resolve(event.request_id, option, event.words)

    def _on_expired(self, event: e.QuestionExpired, now: float) -> list[e.Effect]:
        request = self._requests.get(event.request_id)
        if request is None or request.asked is None:
            return []
        closed = e.CloseQuestion(event.request_id, QuestionState.EXPIRED)
        return [closed, *self._deny(event.request_id, "Nobody answered in time.")]

    def _deny(self, request_id: str, words: str) -> list[e.Effect]:
        """By the host's own rule, not by a person."""
        request = self._requests[request_id]
        self.calls.deny(request.call.id)
        deny = approvals.choose(approvals.DENY, approvals.offer(request.call, request.options))
        return self._resolve(request_id, deny, words)

    def _resolve(self, request_id: str, choice: Option, words: str = "") -> list[e.Effect]:
        request = self._requests.pop(request_id)
        self._leave_waiting()
        return [e.Reply(request_id, approvals.reply_id(choice, request.options), words)]

    def _close(self, request_id: str, state: QuestionState) -> list[e.Effect]:
        request = self._requests.pop(request_id)
        self._leave_waiting()
        effects: list[e.Effect] = [e.CloseQuestion(request_id, state)] if request.asked else []
        return [*effects, e.Reply(request_id, None)]

    def _close_all(self) -> list[e.Effect]:
        return [effect for each in list(self._requests) for effect in self._close(each, QuestionState.CANCELED)]

    def _leave_waiting(self) -> None:
        if self.state is State.WAITING and not any(request.asked for request in self._requests.values()):
            self.state = State.RUNNING

    # --- the tripwire (Q8) -----------------------------------------------------------------------------------------

    def _is_unapproved(self, call: ToolCall) -> bool:
        return self.state is not State.ENDING and self.calls.is_unapproved(call, is_pending=self._is_pending(call))

    def _is_ahead(self, call: ToolCall) -> bool:
        return self.state is not State.ENDING and self.calls.is_ahead(call, is_pending=self._is_pending(call))

    def _is_pending(self, call: ToolCall) -> bool:
        return any(request.call.id == call.id for request in self._requests.values())

    def _on_progress_overdue(self, event: e.ProgressOverdue, now: float) -> list[e.Effect]:
        call = self.calls.get(event.call_id)
        return self._stop_unapproved(call) if call and self._is_ahead(call) else []

    def _stop_unapproved(self, call: ToolCall) -> list[e.Effect]:
        sentence = f"The agent acted without asking: {approvals.describe(call)}"
        return [
            *self._close_all(),
            e.StopProcess("unapproved_tool_call", sentence),
            *self._finish("failed", "unapproved_tool_call", sentence),
        ]

    # --- ends ------------------------------------------------------------------------------------------------------

    def _on_prompt_ended(self, event: e.PromptEnded, now: float) -> list[e.Effect]:
        if event.usage:
            self.usage = merge_usage(self.usage, event.usage)
        if self._ending:
            return self._end_as_decided()
        closed = self._close_all()
        if self._words and self._rounds == self.max_rounds:
            return [*closed, *self._finish("failed", "turn_limit", f"The task has had its {self._rounds} prompts.")]
        if self._words:
            text, self._words = "\n".join(self._words), []
            self.state, self._rounds = State.RUNNING, self._rounds + 1
            return [*closed, e.PublishText("", last=True), e.PromptAgain(text)]
        return [*closed, *self._end_by_itself(event.stop_reason)]

    def _end_by_itself(self, stop_reason: str) -> list[e.Effect]:
        extra = {"stopReason": stop_reason}
        if stop_reason == "refusal":
            return self._finish("rejected", "refusal", "The agent refused.", extra)
        if stop_reason == "max_turn_requests":
            return self._finish("failed", "turn_limit", "The agent has reached its own limit of steps.", extra)
        if self.calls.any_denied and (not self._answered or stop_reason == "cancelled"):
            said: list[e.Effect] = [] if self._answered else [e.PublishText(STOPPED_BY_DENIAL, last=True)]
            return [*said, *self._finish("completed", "denied", "", extra)]
        if stop_reason == "cancelled":
            return self._finish("failed", "agent_canceled", "The agent ended its turn as cancelled by itself.", extra)
        if not self._answered:
            return self._finish("failed", "no_answer", "The agent ended its turn without an answer.", extra)
        return self._finish("completed", "", "", extra)

    def _on_prompt_failed(self, event: e.PromptFailed, now: float) -> list[e.Effect]:
        if self._ending:
            return self._end_as_decided()
        return [*self._close_all(), *self._finish("failed", event.code, event.sentence)]

    def _on_lost(self, event: e.AgentLost, now: float) -> list[e.Effect]:
        if self._ending:
            return self._end_as_decided()
        return [*self._close_all(), *self._finish("failed", event.code, event.sentence)]

    def _on_cancel(self, event: e.CancelRequested, now: float) -> list[e.Effect]:
        return self._begin_ending(_Ending("canceled", "canceled", "The task was canceled."))

    def _on_deadline(self, event: e.DeadlinePassed, now: float) -> list[e.Effect]:
        sentence = f"The turn took longer than {self.timeout:g} seconds."
        return self._begin_ending(_Ending("failed", "timeout", sentence))

    def _begin_ending(self, ending: _Ending) -> list[e.Effect]:
        if self.state is State.ENDING:
            return []
        queued, self._ending = self.state is State.QUEUED, ending
        closed = self._close_all()
        self.state = State.ENDING
        return self._end_as_decided() if queued else [*closed, e.CancelPrompt()]

    def _on_overdue(self, event: e.CancelOverdue, now: float) -> list[e.Effect]:
        stop = e.StopProcess("cancel_ignored", "The agent did not stop when it was told to.")
        return [stop, *self._end_as_decided()]

    def _end_as_decided(self) -> list[e.Effect]:
        assert self._ending is not None
        return self._finish(self._ending.state, self._ending.reason, self._ending.sentence)

    def _finish(self, state: str, reason: str, sentence: str, extra: dict[str, Any] | None = None) -> list[e.Effect]:
        self.state = State.DONE
        metadata: dict[str, Any] = {**(extra or {}), "turns": self._rounds}
        if usage := self.usage.to_metadata():
            metadata["usage"] = usage
        last: list[e.Effect] = [e.PublishText("", last=True)] if self._answered else []
        return [*last, e.Finish(state, reason, sentence, metadata)]


def merge_usage(old: Usage, new: Usage) -> Usage:
    """`new` over `old`, keeping what `new` does not say."""
    changed = {name: getattr(new, name) for name in Usage.__dataclass_fields__ if getattr(new, name) not in (None, "")}
    return replace(old, **changed)


_HANDLERS: dict[type[Any], Callable[[Turn, Any, float], list[e.Effect]]] = {
    e.Started: Turn._on_started,
    e.Text: Turn._on_text,
    e.Attachment: Turn._on_attachment,
    e.Thought: Turn._on_thought,
    e.Plan: Turn._on_plan,
    e.ToolUpdate: Turn._on_tool_update,
    e.PermissionRequest: Turn._on_permission,
    e.PermissionWithdrawn: Turn._on_withdrawn,
    e.UsageUpdate: Turn._on_usage,
    e.PromptEnded: Turn._on_prompt_ended,
    e.PromptFailed: Turn._on_prompt_failed,
    e.AgentLost: Turn._on_lost,
    e.Settled: Turn._on_settled,
    e.ProgressOverdue: Turn._on_progress_overdue,
    e.Answered: Turn._on_answered,
    e.QuestionExpired: Turn._on_expired,
    e.CancelRequested: Turn._on_cancel,
    e.DeadlinePassed: Turn._on_deadline,
    e.CancelOverdue: Turn._on_overdue,
}
