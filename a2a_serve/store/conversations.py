"""Conversations with their agent sessions, and the questions asked in them."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict
from typing import Any

from a2a_serve.core.model import Action, Conversation, Option, Question, QuestionState
from a2a_serve.store.db import Database


class Conversations:
    """Keyed by (owner, context id): a context id of another caller is that caller's own conversation (A6)."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def open(self, owner: str, context_id: str) -> Conversation:
        """The owner's conversation of this context, made with a new handle (`k1`, `k2` ...) when there is none."""

        def find(connection: sqlite3.Connection) -> Conversation | None:
            row = connection.execute(
                "SELECT number, session_id, agent, session_at FROM conversations WHERE owner = ? AND context_id = ?",
                (owner, context_id),
            ).fetchone()
            return Conversation(context_id, owner, f"k{row[0]}", *row[1:]) if row else None

        def make(connection: sqlite3.Connection) -> Conversation | None:
            connection.execute(
                "INSERT INTO conversations (owner, context_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (owner, context_id),
            )
            return find(connection)

        conversation = await self._db.read(find) or await self._db.write(make)
        assert conversation is not None
        return conversation

    async def set_session(self, owner: str, context_id: str, session_id: str, agent: str, now: float) -> None:
        """Remember the agent session that holds the conversation's memory, made at `now`.

        Raises LookupError when the conversation was never opened.
        """

        def work(connection: sqlite3.Connection) -> None:
            changed = connection.execute(
                "UPDATE conversations SET session_id = ?, agent = ?, session_at = ? WHERE owner = ? AND context_id = ?",
                (session_id, agent, now, owner, context_id),
            )
            if not changed.rowcount:
                raise LookupError(f"no conversation {context_id}")

        await self._db.write(work)

    async def forget_sessions(self, before: float) -> list[Conversation]:
        """Forget every session made before that time; returns the conversations that had them."""

        def work(connection: sqlite3.Connection) -> list[Conversation]:
            rows = connection.execute(
                "UPDATE conversations SET session_id = '' WHERE session_id != '' AND session_at < ? "
                "RETURNING context_id, owner, number",
                (before,),
            ).fetchall()
            return [Conversation(context_id, owner, f"k{number}") for context_id, owner, number in rows]

        return await self._db.write(work)


_SELECT = """
SELECT id, task_id, context_id, starter, starter_name, action, options, created_at, expires_at,
    state, answered_by, option_id, reason
FROM questions
"""
_INSERT = """
INSERT INTO questions (id, task_id, context_id, starter, starter_name, action, options, created_at, expires_at,
    state, answered_by, option_id, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class Questions:
    """A question is decided once: whoever's update finds it pending has decided it (Q4)."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, question: Question) -> None:
        """Store a question before anyone sees it. Its task must be stored. Raises sqlite3.IntegrityError else."""
        values = _to_row(question)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_INSERT, values)

        await self._db.write(work)

    async def decide(
        self, question_id: str, state: QuestionState, *, by: str = "", option_id: str = "", reason: str = ""
    ) -> bool:
        """Close a pending question; False when it is unknown or was decided before."""
        _require_closing(state)

        def work(connection: sqlite3.Connection) -> bool:
            changed = connection.execute(
                "UPDATE questions SET state = ?, answered_by = ?, option_id = ?, reason = ? "
                "WHERE id = ? AND state = 'pending'",
                (state, by, option_id, reason, question_id),
            )
            return changed.rowcount == 1

        return await self._db.write(work)

    async def get(self, question_id: str) -> Question | None:
        def work(connection: sqlite3.Connection) -> Question | None:
            row = connection.execute(_SELECT + "WHERE id = ?", (question_id,)).fetchone()
            return _from_row(row) if row else None

        return await self._db.read(work)

    async def open(self, task_id: str | None = None) -> list[Question]:
        """The pending questions, of one task or of all, in the order they were asked."""

        def work(connection: sqlite3.Connection) -> list[Question]:
            return _pending(connection, task_id)

        return await self._db.read(work)

    async def close_all(self, state: QuestionState) -> list[Question]:
        """Close every pending question, as a restart must; returns them as they are now, oldest first."""
        _require_closing(state)

        def work(connection: sqlite3.Connection) -> list[Question]:
            ids = [question.id for question in _pending(connection, None)]
            connection.execute("UPDATE questions SET state = ? WHERE state = 'pending'", (state,))
            rows = [connection.execute(_SELECT + "WHERE id = ?", (each,)).fetchone() for each in ids]
            return [_from_row(row) for row in rows]

        return await self._db.write(work)

    async def count_open(self) -> int:
        def work(connection: sqlite3.Connection) -> int:
            (count,) = connection.execute("SELECT count(*) FROM questions WHERE state = 'pending'").fetchone()
            return int(count)

        return await self._db.read(work)


def _pending(connection: sqlite3.Connection, task_id: str | None) -> list[Question]:
    if task_id is None:
        rows = connection.execute(_SELECT + "WHERE state = 'pending' ORDER BY number")
    else:
        rows = connection.execute(_SELECT + "WHERE state = 'pending' AND task_id = ? ORDER BY number", (task_id,))
    return [_from_row(row) for row in rows]


def _require_closing(state: QuestionState) -> None:
    if state is QuestionState.PENDING:
        raise ValueError("a question cannot be opened again")


def _to_row(question: Question) -> tuple[Any, ...]:
    return (
        question.id,
        question.task_id,
        question.context_id,
        question.starter,
        question.starter_name,
        json.dumps(asdict(question.action)),
        json.dumps([asdict(option) for option in question.options]),
        question.created_at,
        question.expires_at,
        question.state,
        question.answered_by,
        question.option_id,
        question.reason,
    )


def _from_row(row: tuple[Any, ...]) -> Question:
    question_id, task_id, context_id, starter, starter_name, action, options, created_at, expires_at, state, *answer = (
        row
    )
    return Question(
        question_id,
        task_id,
        context_id,
        starter,
        starter_name,
        Action(**json.loads(action)),
        tuple(Option(**option) for option in json.loads(options)),
        created_at,
        expires_at,
        QuestionState(state),
        *answer,
    )
