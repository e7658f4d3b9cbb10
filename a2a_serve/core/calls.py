"""The tool calls of a turn and the tripwire over them (Q8): what may go on, and what has acted without asking."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from a2a_serve.core.model import ToolCall


@dataclass(slots=True)
class Calls:
    """Every call as announced so far, which were allowed and denied.

    `unasked`: titles of calls that need no permission. They count only for a call that shows nothing that could change
    anything, by the title it had before its end: some agents put their result into it.
    """

    unasked: frozenset[str] = frozenset()
    _known: dict[str, ToolCall] = field(default_factory=dict)
    _allowed: dict[str, ToolCall] = field(default_factory=dict)
    _denied: set[str] = field(default_factory=set)
    _plain: set[str] = field(default_factory=set)

    def get(self, call_id: str) -> ToolCall | None:
        return self._known.get(call_id)

    def merge(self, call_id: str, changes: dict[str, Any]) -> ToolCall:
        """The call with the changes of one message."""
        before = self._known.get(call_id)
        call = self._known[call_id] = replace(before or ToolCall(call_id), **changes)
        if call.title in self.unasked and (before is None or call.status != "completed"):
            self._plain.add(call_id)
        return call

    def allow(self, shown: ToolCall) -> None:
        """A person has allowed the call as it was shown."""
        self._allowed[shown.id] = shown

    def deny(self, call_id: str) -> None:
        """One call can ask twice: a denial outweighs any allow."""
        self._denied.add(call_id)

    @property
    def any_denied(self) -> bool:
        return bool(self._denied)

    def is_unapproved(self, call: ToolCall, *, is_pending: bool) -> bool:
        """It has completed without an allow, or while it still asks."""
        return call.status == "completed" and self._needs_allow(call) and (is_pending or not self._is_allowed(call))

    def is_ahead(self, call: ToolCall, *, is_pending: bool) -> bool:
        """It makes progress with no allow and no request."""
        if call.status != "in_progress" or is_pending:
            return False
        return self._needs_allow(call) and not self._is_allowed(call)

    def _needs_allow(self, call: ToolCall) -> bool:
        names_nothing = call.kind in ("", "other") and not (call.command or call.diffs or call.paths)
        return call.changes_something and not (names_nothing and call.id in self._plain)

    def _is_allowed(self, call: ToolCall) -> bool:
        """Its command must have stayed the one that was shown."""
        shown = self._allowed.get(call.id)
        return shown is not None and call.id not in self._denied and shown.command in (None, call.command)
