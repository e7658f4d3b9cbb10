"""The store against a model of it: any order of calls, restarts in between, the same answers (A6, A7, Q4, R1)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from a2a.types.a2a_pb2 import Task, TaskState
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from a2a_serve.core.errors import MessageReused
from a2a_serve.core.model import Action, Question, QuestionState
from a2a_serve.store.conversations import Conversations, Questions
from a2a_serve.store.db import Database
from a2a_serve.store.tasks import Tasks

T = TypeVar("T")

OWNERS = st.sampled_from(["pair:alice", "pair:bob"])
CONTEXTS = st.sampled_from(["c1", "c2"])
MESSAGES = st.sampled_from(["m1", "m2", "m3"])
DIGESTS = st.sampled_from([b"1", b"2"])
STATES = st.sampled_from([state for state in TaskState.values() if state])
CLOSED = st.sampled_from([state for state in QuestionState if state is not QuestionState.PENDING])
ENDED = {"COMPLETED", "FAILED", "CANCELED", "REJECTED"}


def is_open(task: Task) -> bool:
    return TaskState.Name(task.status.state).removeprefix("TASK_STATE_") not in ENDED


class StoreMachine(RuleBasedStateMachine):
    known = Bundle("known")
    asked = Bundle("asked")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.clock = self.number = 0
        self.tasks: dict[str, tuple[str, Task]] = {}
        self.messages: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.questions: dict[str, Question] = {}
        self.conversations: dict[tuple[str, str], str] = {}
        self.open()

    def open(self) -> None:
        self.db = self.run(Database.open(self.folder / "server.db"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.db.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    def next_id(self) -> str:
        self.number += 1
        return f"id{self.number}"

    @rule()
    def restart(self) -> None:
        self.run(self.db.close())
        self.open()

    @rule(target=known, owner=OWNERS, context=CONTEXTS, message=MESSAGES, digest=DIGESTS, tick=st.booleans())
    def create(self, owner: str, context: str, message: str, digest: bytes, tick: bool) -> str:
        self.clock += tick
        task = Task(id=self.next_id(), context_id=context)
        task.status.state = TaskState.TASK_STATE_SUBMITTED
        task.status.timestamp.FromSeconds(self.clock)
        before = self.messages.get((owner, message))
        try:
            earlier = self.run(Tasks(self.db).create(task, owner, message, digest))
        except MessageReused:
            assert before is not None
            assert before[0] != digest
            return before[1]
        assert earlier == (before[1] if before else None)
        assert before is None or before[0] == digest
        if earlier is None:
            self.tasks[task.id] = (owner, task)
            self.messages[owner, message] = (digest, task.id)
        return earlier or task.id

    @rule(owner=OWNERS, message=MESSAGES, digest=DIGESTS, task_id=known)
    def note(self, owner: str, message: str, digest: bytes, task_id: str) -> None:
        before = self.messages.get((owner, message))
        try:
            is_new = self.run(Tasks(self.db).note(owner, message, digest, task_id))
        except MessageReused:
            assert before is not None
            assert before != (digest, task_id)
            return
        assert is_new == (before is None)
        assert before in (None, (digest, task_id))
        self.messages[owner, message] = (digest, task_id)

    @rule(task_id=known, state=STATES, text=st.text(), tick=st.booleans())
    def save(self, task_id: str, state: TaskState, text: str, tick: bool) -> None:
        self.clock += tick
        _, task = self.tasks[task_id]
        task.status.state = state
        task.status.timestamp.FromSeconds(self.clock)
        task.artifacts.add(artifact_id=text)
        self.run(Tasks(self.db).save(task))

    @rule(target=asked, task_id=known)
    def ask(self, task_id: str) -> str:
        action = Action("execute", "Run: ls", "ls", "digest")
        question = Question(self.next_id(), task_id, "c", "o", "O", action, (), float(self.clock), self.clock + 60.0)
        self.run(Questions(self.db).add(question))
        self.questions[question.id] = question
        return question.id

    @rule(question_id=asked, state=CLOSED, by=OWNERS, reason=st.text())
    def decide(self, question_id: str, state: QuestionState, by: str, reason: str) -> None:
        before = self.questions[question_id]
        won = self.run(Questions(self.db).decide(question_id, state, by=by, option_id="o", reason=reason))
        assert won == (before.state is QuestionState.PENDING)
        if won:
            self.questions[question_id] = replace(before, state=state, answered_by=by, option_id="o", reason=reason)

    @rule(state=CLOSED)
    def close_all(self, state: QuestionState) -> None:
        closed = [replace(each, state=state) for each in self.pending()]
        assert self.run(Questions(self.db).close_all(state)) == closed
        self.questions.update({each.id: each for each in closed})

    @rule(owner=OWNERS, context=CONTEXTS)
    def converse(self, owner: str, context: str) -> None:
        handle = self.run(Conversations(self.db).open(owner, context)).handle
        assert handle == self.conversations.setdefault((owner, context), f"k{len(self.conversations) + 1}")

    def pending(self) -> list[Question]:
        return [each for each in self.questions.values() if each.state is QuestionState.PENDING]

    @invariant()
    def questions_agree(self) -> None:
        store = Questions(self.db)
        assert self.run(store.open()) == self.pending()
        assert self.run(store.count_open()) == len(self.pending())
        for question_id, question in self.questions.items():
            assert self.run(store.get(question_id)) == question

    @invariant()
    def tasks_agree(self) -> None:
        store = Tasks(self.db)
        assert sorted((owner, task.id) for owner, task in self.run(store.open_tasks())) == sorted(
            (owner, task.id) for owner, task in self.tasks.values() if is_open(task)
        )
        for task_id, (owner, task) in self.tasks.items():
            assert self.run(store.get(task_id, owner)) == task
            assert self.run(store.get(task_id, owner + "x")) is None

    @rule(owner=OWNERS, size=st.integers(1, 3))
    def list_all(self, owner: str, size: int) -> None:
        mine = [task for each, task in self.tasks.values() if each == owner]
        mine.sort(key=lambda task: (task.status.timestamp.ToNanoseconds(), task.id), reverse=True)
        listed, token = list[Task](), ""
        while not listed or token:
            page = self.run(Tasks(self.db).list(owner, page_size=size, page_token=token))
            assert page.total == len(mine)
            listed, token = listed + page.tasks, page.next_token
            if not page.tasks:
                break
        assert listed == mine


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
