"""Rules of the owner's: who may answer a question, how long a conversation is remembered."""

from __future__ import annotations

from dataclasses import dataclass, replace

from a2a_serve.core.model import Conversation, Identity, Question


@dataclass(frozen=True, slots=True)
class Memory:
    """How long a conversation's agent session is kept (T1). `ttl` in seconds from its making, 0 for ever."""

    reuse: bool = True
    ttl: float = 0

    def keep(self, conversation: Conversation, now: float) -> Conversation:
        """The conversation with the session that its next turn may go on with, or with none."""
        is_old = bool(self.ttl) and now - conversation.session_at >= self.ttl
        return conversation if self.reuse and not is_old else replace(conversation, session_id="")


def may_answer(identity: Identity, question: Question) -> bool:
    """The task's starter and owners (requirement Q1); for anyone else the question does not exist."""
    return identity.is_owner or identity.id == question.starter
