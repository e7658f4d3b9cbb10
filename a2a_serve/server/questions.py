"""Questions: opened by a turn, shown on every surface, answered once by someone who may (requirements Q1 to Q4, Q9)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from a2a_serve.core import approvals
from a2a_serve.core.errors import QuestionClosed, QuestionUnknown
from a2a_serve.core.events import Ask
from a2a_serve.core.model import Answer, Identity, Question, QuestionState
from a2a_serve.core.policy import may_answer
from a2a_serve.server import surface
from a2a_serve.store.conversations import Questions as QuestionStore

log = logging.getLogger(__name__)

Answerer = Callable[[Question], Awaitable[None]]
Observer = Callable[[Question], Awaitable[None]]

CLOSED = {
    QuestionState.EXPIRED: "Nobody answered this question in time.",
    QuestionState.CANCELED: "This question's turn has ended.",
    QuestionState.SUPERSEDED: "The agent has changed what it wants to do; answer the newer question.",
}


class Questions:
    """Keeps every question. `observers` (messengers, the page) hear of each change; none of them can hold it up."""

    def __init__(self, store: QuestionStore, *, clock: Callable[[], float], new_id: Callable[[], str]) -> None:
        self._store, self._clock, self._new_id = store, clock, new_id
        self._answerers: dict[str, Answerer] = {}
        self._observers: list[Observer] = []

    def observe(self, observer: Observer) -> None:
        self._observers.append(observer)

    def draft(self, ask: Ask, task_id: str, context_id: str, starter: Identity, expire: float) -> Question:
        """A question that will stand for `expire` seconds, not yet open."""
        now = self._clock()
        return Question(
            id=self._new_id(),
            task_id=task_id,
            context_id=context_id,
            starter=starter.id,
            starter_name=starter.name,
            action=ask.action,
            options=ask.options,
            created_at=now,
            expires_at=now + expire,
        )

    async def open(self, question: Question, answerer: Answerer) -> None:
        """Commit a question; `answerer` hears its answer, which may come the moment it is stored."""
        self._answerers[question.id] = answerer
        await self._store.add(question)
        await self._tell(question)

    async def answer(self, identity: Identity, answer: Answer) -> Question:
        """Take an answer from any surface. The first valid one wins, by one conditional update, and is told the turn.

        Raises QuestionUnknown (also for a stranger), OptionUnknown, QuestionClosed with who answered it.
        """
        question = await self.get(identity, answer.question_id)
        if question.state is not QuestionState.PENDING:
            raise _closed(question)
        option = approvals.choose(answer.option_id, question.options)
        await self._decide(question.id, QuestionState.ANSWERED, identity.id, option.id, answer.reason)
        decided = await self._store.get(question.id)
        assert decided is not None
        if answerer := self._answerers.pop(question.id, None):
            await answerer(decided)
        await self._tell(decided)
        return decided

    async def close(self, question_id: str, state: QuestionState) -> None:
        """End a question without an answer; one that has been answered meanwhile stays answered."""
        self._answerers.pop(question_id, None)
        if await self._store.decide(question_id, state) and (question := await self._store.get(question_id)):
            await self._tell(question)

    async def get(self, identity: Identity, question_id: str) -> Question:
        """A question as its starter or an owner sees it; for anyone else it does not exist."""
        question = await self._store.get(question_id)
        if question is None or not may_answer(identity, question):
            raise QuestionUnknown("There is no such question.", "`a2a-serve questions` lists the open ones.")
        return question

    async def list_open(self, task_id: str | None = None) -> list[Question]:
        return await self._store.open(task_id)

    async def count_open(self) -> int:
        return await self._store.count_open()

    async def close_leftovers(self) -> int:
        """At start: what an earlier server left open has no turn any more."""
        return len(await self._store.close_all(QuestionState.CANCELED))

    async def _decide(self, question_id: str, state: QuestionState, by: str, option_id: str, reason: str) -> None:
        if not await self._store.decide(question_id, state, by=by, option_id=option_id, reason=reason):
            question = await self._store.get(question_id)
            assert question is not None
            raise _closed(question)

    async def _tell(self, question: Question) -> None:
        for observer in self._observers:
            try:
                await observer(question)
            except Exception:
                log.exception("an observer of questions failed")


def _closed(question: Question) -> QuestionClosed:
    if question.state is QuestionState.ANSWERED:
        return QuestionClosed(f"This question was already answered by {question.answered_by}: {question.option_id}.")
    return QuestionClosed(CLOSED[question.state])


def to_json(question: Question) -> dict[str, Any]:
    """A question as the control socket lists it."""
    shown = surface.question_data(question)
    return {
        "id": shown.pop("questionId"),
        "taskId": question.task_id,
        "contextId": question.context_id,
        "from": question.starter_name,
        "text": question.action.text,
        "createdAt": surface.timestamp(question.created_at),
        **shown,
    }
