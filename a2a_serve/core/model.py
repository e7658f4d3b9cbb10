"""The values everything else speaks of. Words as in docs/architecture.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

READ_KINDS = frozenset({"read", "search", "think"})
"""ACP tool kinds that change nothing; every other kind, and a missing one, counts as changing."""


class Role(StrEnum):
    OWNER = "owner"
    USER = "user"
    GUEST = "guest"
    AGENT = "agent"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is asking. `id` is namespaced by method (`local:owner`, `pair:alice`), so no method can claim another's."""

    id: str
    name: str
    role: Role
    method: str

    @property
    def is_owner(self) -> bool:
        return self.role is Role.OWNER


@dataclass(frozen=True, slots=True)
class Diff:
    """One file's change: `old` is None for a file that did not exist."""

    path: str
    old: str | None
    new: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as announced so far; updates are merged into a new value (`merge`)."""

    id: str
    kind: str = ""
    title: str = ""
    status: str = "pending"
    raw_input: Any = None
    paths: tuple[str, ...] = ()
    diffs: tuple[Diff, ...] = ()
    output: str = ""

    @property
    def command(self) -> str | None:
        """The shell command in the call's own input, whatever the call says its kind is."""
        if not isinstance(self.raw_input, dict):
            return None
        value = self.raw_input.get("command", self.raw_input.get("cmd"))
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return " ".join(value)
        return value if isinstance(value, str) and value else None

    @property
    def changes_something(self) -> bool:
        """Requirement Q1: reading does not ask. A `read` that carries a command counts as execute."""
        return self.kind not in READ_KINDS or self.command is not None


@dataclass(frozen=True, slots=True)
class Option:
    """One way to answer. `kind` is ACP's: allow_once, reject_once (the server offers no other kind)."""

    id: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Action:
    """What will happen, rendered by the server from the tool call's own input (requirement Q2).

    `text` is the whole action for people with control characters escaped; `digest` is SHA-256 over the canonical
    form, so an answer is for exactly what was shown.
    """

    kind: str
    title: str
    text: str
    digest: str
    command: str | None = None
    path: str | None = None
    diff: str | None = None


class QuestionState(StrEnum):
    PENDING = "pending"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Question:
    """A permission request as a person sees it. Times are seconds since the epoch."""

    id: str
    task_id: str
    context_id: str
    starter: str
    """Identity id of the task's starter: the one who, beside an owner, may answer."""
    starter_name: str
    action: Action
    options: tuple[Option, ...]
    created_at: float
    expires_at: float
    state: QuestionState = QuestionState.PENDING
    answered_by: str = ""
    option_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it arrives: by option id, or the words `allow` and `deny`, with the answerer's own words beside."""

    question_id: str
    option_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A context: who opened it, and the agent session that holds its memory ('' until the first turn)."""

    id: str
    opener: str
    handle: str
    session_id: str = ""
    agent: str = ""
    session_at: float = 0
    """When the session was made, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a turn used; None where the agent did not say. `cost` in `currency`."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    context_used: int | None = None
    context_size: int | None = None
    cost: float | None = None
    currency: str = ""

    def to_metadata(self) -> dict[str, Any]:
        named = {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "totalTokens": self.total_tokens,
            "contextUsed": self.context_used,
            "contextSize": self.context_size,
            "cost": self.cost,
            "currency": self.currency or None,
        }
        return {key: value for key, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PlanEntry:
    content: str
    priority: str = "medium"
    status: str = "pending"


@dataclass(frozen=True, slots=True)
class Pairing:
    """One further caller: named, with a role; its token is stored only as a digest."""

    name: str
    role: Role
    created_at: float
    last_used_at: float | None = None
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A file in an agent's answer: its bytes, or where it is (`url`). `name` is one segment of a path."""

    name: str
    media_type: str
    data: bytes = b""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one message asks of the agent: content blocks in ACP's form, and ids for `_meta.a2a`."""

    blocks: tuple[dict[str, Any], ...]
    meta: dict[str, str] = field(default_factory=dict)
