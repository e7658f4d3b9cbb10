from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import Task, TaskState

from a2a_serve.core.model import Action, Option, Question
from a2a_serve.store.db import Database

MakeTask = Callable[..., Task]
MakeQuestion = Callable[..., Question]


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "server.db")
    yield database
    await database.close()


@pytest.fixture
def make_task() -> MakeTask:
    def make(
        task_id: str, *, context_id: str = "c", state: int = TaskState.TASK_STATE_WORKING, at: int = 0, text: str = ""
    ) -> Task:
        """A task whose status is `at` milliseconds old since the epoch."""
        task = Task(id=task_id, context_id=context_id)
        task.status.state = state  # type: ignore[assignment]
        task.status.timestamp.FromMilliseconds(at)
        if text:
            task.artifacts.add(artifact_id="response").parts.add(text=text)
        return task

    return make


@pytest.fixture
def make_question() -> MakeQuestion:
    def make(question_id: str, task_id: str = "t", *, at: float = 1.5) -> Question:
        return Question(
            id=question_id,
            task_id=task_id,
            context_id="c",
            starter="pair:alice",
            starter_name="Alice ✓",
            action=Action("execute", "Run: ls", "Run this command:\n  ls", "ab" * 32, command="ls"),
            options=(Option("yes\ud800", "allow_once", "Allow"), Option("no", "reject_once", "Deny")),
            created_at=at,
            expires_at=at + 60,
        )

    return make
