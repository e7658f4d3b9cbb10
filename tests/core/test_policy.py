"""Who may answer (Q1), and how long a conversation is remembered (T1)."""

from __future__ import annotations

import pytest

from a2a_serve.core.model import Action, Conversation, Identity, Question, Role
from a2a_serve.core.policy import Memory, may_answer

QUESTION = Question("q", "t", "c", "pair:alice", "Alice", Action("execute", "ls", "ls", ""), (), 0, 1)


@pytest.mark.req("Q1")
@pytest.mark.parametrize("identity", [("pair:alice", Role.USER), ("pair:alice", Role.GUEST), ("local:me", Role.OWNER)])
def test_the_starter_and_owners_may(identity: tuple[str, Role]) -> None:
    assert may_answer(Identity(identity[0], "x", identity[1], "token"), QUESTION)


@pytest.mark.req("Q1")
@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OWNER])
@pytest.mark.parametrize("identity_id", ["pair:bob", "pair:Alice", "alice", "pair:alice ", "oidc:alice", ""])
def test_nobody_else_may(identity_id: str, role: Role) -> None:
    """Not by a name alike, nor by the starter's display name."""
    assert not may_answer(Identity(identity_id, "Alice", role, "token"), QUESTION)


@pytest.mark.req("T1")
@pytest.mark.parametrize(
    ("memory", "age", "kept"),
    [
        (Memory(), 10**9, True),
        (Memory(ttl=60), 59, True),
        (Memory(ttl=60), 60, False),
        (Memory(reuse=False), 0, False),
        (Memory(reuse=False, ttl=60), 0, False),
    ],
)
def test_how_long_a_session_is_kept(memory: Memory, age: float, kept: bool) -> None:
    """Counted from when the session was made; what else the conversation is stays."""
    conversation = Conversation("c", "pair:alice", "k1", "s1", "demo", session_at=1000)
    expected = conversation if kept else Conversation("c", "pair:alice", "k1", "", "demo", session_at=1000)
    assert memory.keep(conversation, 1000 + age) == expected
