"""Who may do what. Today: who may answer a question, and whose a conversation is."""

from __future__ import annotations

from a2a_serve.core.errors import NotAllowed
from a2a_serve.core.model import Identity, Question


def require_may_answer(identity: Identity, question: Question) -> None:
    """The task's starter or an owner answers (requirement Q1). Raises NotAllowed for anyone else."""
    if identity.is_owner or identity.id == question.starter:
        return
    raise NotAllowed("Only the one who started this task, or an owner, can answer its questions.")
