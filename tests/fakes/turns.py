"""Turns to start a test from, and short words for what happens in them."""

from __future__ import annotations

from typing import Any

from a2a_serve.core import approvals
from a2a_serve.core import events as e
from a2a_serve.core.calls import Calls
from a2a_serve.core.model import Diff, Option, ToolCall
from a2a_serve.core.turn import State, Turn

YES = Option("yes", "allow_once", "Allow")
NO = Option("no", "reject_once", "Reject")
ALWAYS = Option("always", "allow_always", "Always")
OPTIONS = (ALWAYS, YES, NO)

RUN_LS: dict[str, Any] = {"kind": "execute", "title": "ls", "raw_input": {"command": "ls"}}
RUN_RM: dict[str, Any] = {"kind": "execute", "title": "ls", "raw_input": {"command": "rm -rf ."}}
EDIT: dict[str, Any] = {"kind": "edit", "paths": ("a.py",), "diffs": (Diff("a.py", "1\n", "2\n"),)}
EDIT_ELSE: dict[str, Any] = {**EDIT, "diffs": (Diff("a.py", "1\n", "666\n"),)}
COMPLETED: dict[str, Any] = {"status": "completed"}
IN_PROGRESS: dict[str, Any] = {"status": "in_progress"}


def asks(request_id: str = "r", call_id: str = "c", changes: dict[str, Any] | None = None) -> e.PermissionRequest:
    return e.PermissionRequest(request_id, call_id, RUN_LS if changes is None else changes, OPTIONS)


def ask_of(request_id: str, changes: dict[str, Any], options: tuple[Option, ...] = (YES, NO)) -> e.Ask:
    return e.Ask(request_id, approvals.render(ToolCall("c", **changes)), options)


def running(*, unasked: frozenset[str] = frozenset(), **settings: Any) -> Turn:
    turn = Turn(calls=Calls(unasked), **settings)
    assert turn.receive(e.Started(), 0) == [e.Working()]
    return turn


def waiting(**settings: Any) -> Turn:
    """One question `r` is open: may the agent run `ls`?"""
    turn = running(**settings)
    assert turn.receive(asks(), 0) == [ask_of("r", RUN_LS)]
    assert turn.state is State.WAITING
    return turn


def ending() -> Turn:
    turn = running()
    assert turn.receive(e.CancelRequested(), 0) == [e.CancelPrompt()]
    return turn


def done() -> Turn:
    turn = ending()
    turn.receive(e.PromptEnded("cancelled"), 0)
    return turn


def play(turn: Turn, *events: e.Event, now: float = 0) -> list[e.Effect]:
    return [effect for event in events for effect in turn.receive(event, now)]


def finish(effects: list[e.Effect]) -> e.Finish:
    (only,) = [effect for effect in effects if isinstance(effect, e.Finish)]
    assert effects[-1] == only
    return only


def of_kind(kind: type[Any], effects: list[e.Effect]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def state_of(turn: Turn) -> State:
    return turn.state
