"""What happens in a turn (events in) and what a turn wants done (effects out)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from a2a_serve.core.model import Action, File, Option, PlanEntry, ToolCall, Usage

# --- events: from the agent ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """Part of the answer that is no text: a file, an image, a link."""

    file: File


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    entries: tuple[PlanEntry, ...]


@dataclass(frozen=True, slots=True)
class ToolUpdate:
    """A tool call announced or changed. `changes` holds only the ToolCall fields that this update carries."""

    call_id: str
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """The agent asks before a tool call. `options` are as the agent offered them, of every kind."""

    request_id: str
    call_id: str
    changes: dict[str, Any] = field(default_factory=dict)
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class PermissionWithdrawn:
    request_id: str


@dataclass(frozen=True, slots=True)
class UsageUpdate:
    usage: Usage


@dataclass(frozen=True, slots=True)
class PromptEnded:
    stop_reason: str
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class PromptFailed:
    """The agent answered the prompt with an error. `code` is ours (rate_limited, agent_login_required, agent_error)."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The process, its container or its protocol ended. `code` names the cause (agent_exited, out_of_memory ...)."""

    code: str
    sentence: str


# --- events: from the host -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt has been handed to the agent."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A permission request has waited long enough for its tool call's input: ask with what is known."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ProgressOverdue:
    """A tool call has been under way for the grace of its kind; by now a request for it must have come."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A person's answer to an open request. `allow` is what the option means; `words` are theirs."""

    request_id: str
    option_id: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class QuestionExpired:
    request_id: str


@dataclass(frozen=True, slots=True)
class CancelRequested: ...


@dataclass(frozen=True, slots=True)
class DeadlinePassed: ...


@dataclass(frozen=True, slots=True)
class CancelOverdue:
    """The agent did not end its prompt in time after a cancel."""


Event = (
    Text
    | Attachment
    | Thought
    | Plan
    | ToolUpdate
    | PermissionRequest
    | PermissionWithdrawn
    | UsageUpdate
    | PromptEnded
    | PromptFailed
    | AgentLost
    | Started
    | Settled
    | ProgressOverdue
    | Answered
    | QuestionExpired
    | CancelRequested
    | DeadlinePassed
    | CancelOverdue
)

AgentEvent = (
    Text
    | Attachment
    | Thought
    | Plan
    | ToolUpdate
    | PermissionRequest
    | PermissionWithdrawn
    | UsageUpdate
    | PromptEnded
    | PromptFailed
    | AgentLost
)

# --- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Working:
    """The turn runs: say so, with the server's one-line rendering of what it does ('' for nothing particular)."""

    line: str = ""
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class PublishText:
    """Append to artifact `response`; `last` ends the artifact of this round."""

    text: str
    last: bool = False


@dataclass(frozen=True, slots=True)
class PublishFile:
    file: File


@dataclass(frozen=True, slots=True)
class PublishThought:
    text: str


@dataclass(frozen=True, slots=True)
class PublishPlan:
    entries: tuple[PlanEntry, ...]


@dataclass(frozen=True, slots=True)
class PublishDiff:
    path: str
    unified: str


@dataclass(frozen=True, slots=True)
class SettleSoon:
    """Feed `Settled(request_id)` after the settle time, unless the turn has asked by then."""

    request_id: str


@dataclass(frozen=True, slots=True)
class CheckSoon:
    """Feed `ProgressOverdue(call_id)` after the turn's progress grace."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Ask:
    request_id: str
    action: Action
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class CloseQuestion:
    """The question of this request is over without an answer; `state` is a QuestionState value."""

    request_id: str
    state: str


@dataclass(frozen=True, slots=True)
class Reply:
    """Tell the agent: the option chosen, or None for the outcome `cancelled`; `words` go along where it can hear."""

    request_id: str
    option_id: str | None
    words: str = ""


@dataclass(frozen=True, slots=True)
class PromptAgain:
    """Send these words as the next prompt of the same task (a round)."""

    text: str


@dataclass(frozen=True, slots=True)
class CancelPrompt: ...


@dataclass(frozen=True, slots=True)
class StopProcess:
    """End the agent's process now: it can no longer be trusted, or does not listen."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The turn's one final state: completed, failed, canceled or rejected."""

    state: str
    reason: str = ""
    sentence: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


Effect = (
    Working
    | PublishText
    | PublishFile
    | PublishThought
    | PublishPlan
    | PublishDiff
    | SettleSoon
    | CheckSoon
    | Ask
    | CloseQuestion
    | Reply
    | PromptAgain
    | CancelPrompt
    | StopProcess
    | Finish
)
