"""Every message's one front door (`submit`), and every task that is not over yet."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from a2a.types.a2a_pb2 import Message, Task, TaskState
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

from a2a_serve.core import approvals
from a2a_serve.core.errors import MessageReused, OptionUnknown, QuestionClosed, QuestionUnknown
from a2a_serve.core.model import Answer, Identity
from a2a_serve.core.turn import Turn
from a2a_serve.server import prompt, surface
from a2a_serve.server.executor import Tools, TurnRun
from a2a_serve.server.live import LiveTask
from a2a_serve.store.tasks import TaskPage
from a2a_serve.store.tasks import Tasks as TaskStore

log = logging.getLogger(__name__)

STOPPED = "The server stopped while this task was open; send the message again in the same context."


@dataclass(slots=True)
class Accepted:
    """What became of a message: its task as it stands, and the live task while it is not over."""

    task: Task
    live: LiveTask | None


@dataclass(slots=True)
class _Queue:
    """A conversation's turns run in order; kept while any of them is there."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Tasks:
    """Accepts messages, runs turns, finds tasks. A task is its owner's: for anyone else it does not exist."""

    def __init__(self, store: TaskStore, tools: Tools, new_turn: Callable[[], Turn]) -> None:
        self._store, self._tools, self._new_turn = store, tools, new_turn
        self._runs: dict[str, TurnRun] = {}
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    # --- the front door --------------------------------------------------------------------------------------------

    async def submit(self, identity: Identity, message: Message) -> Accepted:
        """Accept a message from anyone, anywhere: a new turn, or the answer to an open question of its task.

        Task and message are committed before this returns. The same message again gives the same task.
        Raises A2A errors: InvalidParams, TaskNotFound, UnsupportedOperation, ContentTypeNotSupported.
        """
        if self._closed:
            raise UnsupportedOperationError("The server is stopping; try again in a moment.")
        digest = hashlib.sha256(message.SerializeToString(deterministic=True)).digest()
        try:
            if message.task_id:
                return await self._continue(identity, message, digest)
            return await self._begin(identity, message, digest)
        except MessageReused as error:
            raise InvalidParamsError(error.sentence) from error

    async def _begin(self, identity: Identity, message: Message, digest: bytes) -> Accepted:
        self._require_content(message)
        context_id = message.context_id or self._tools.new_id()
        task = Task(id=self._tools.new_id(), context_id=context_id)
        task.status.CopyFrom(surface.status(TaskState.TASK_STATE_SUBMITTED, self._tools.clock()))
        kept = task.history.add()
        kept.CopyFrom(message)
        kept.task_id, kept.context_id = task.id, context_id
        earlier = await self._store.create(task, identity.id, message.message_id, digest)
        if earlier is not None:
            return await self._found(identity, earlier)
        live = LiveTask(task, identity.id, self._store.save)
        self._run(live, message, identity)
        return Accepted(live.snapshot(), live)

    def _run(self, live: LiveTask, message: Message, starter: Identity) -> None:
        run = TurnRun(live, message, starter, self._new_turn(), self._tools)
        self._runs[live.id] = run
        key = (starter.id, live.task.context_id)
        queue = self._queues.setdefault(key, _Queue())
        queue.waiting += 1
        running = run.start(queue.lock)
        self._running.add(running)
        running.add_done_callback(lambda done: self._ended(done, live.id, key))

    def _ended(self, running: asyncio.Task[None], task_id: str, key: tuple[str, str]) -> None:
        self._running.discard(running)
        self._runs.pop(task_id, None)
        self._queues[key].waiting -= 1
        if not self._queues[key].waiting:
            del self._queues[key]
        if not running.cancelled() and (error := running.exception()):
            log.error("a turn ended with an error", exc_info=error)

    async def _found(self, identity: Identity, task_id: str) -> Accepted:
        if run := self._live_run(identity, task_id):
            return Accepted(run.live.snapshot(), run.live)
        return Accepted(await self.get(identity, task_id), None)

    # --- answers ---------------------------------------------------------------------------------------------------

    async def _continue(self, identity: Identity, message: Message, digest: bytes) -> Accepted:
        task = await self.get(identity, message.task_id)
        if message.context_id and message.context_id != task.context_id:
            raise InvalidParamsError("The task belongs to another context.")
        if not await self._store.note(identity.id, message.message_id, digest, task.id):
            return await self._found(identity, task.id)
        run = self._live_run(identity, task.id)
        if run is None:
            raise UnsupportedOperationError(
                "The task is over; send the message without its id to go on in its context."
            )
        for answer in await self._read_answers(message, task.id):
            await self._answer(identity, answer)
        kept = Message()
        kept.CopyFrom(message)
        kept.context_id = task.context_id
        run.live.add_to_history(kept)
        return Accepted(run.live.snapshot(), run.live)

    async def _answer(self, identity: Identity, answer: Answer) -> None:
        try:
            await self._tools.questions.answer(identity, answer)
        except QuestionUnknown as error:
            raise InvalidParamsError(error.sentence) from error
        except OptionUnknown as error:
            raise InvalidParamsError(str(error)) from error
        except QuestionClosed as error:
            raise UnsupportedOperationError(error.sentence) from error

    async def _read_answers(self, message: Message, task_id: str) -> list[Answer]:
        """Data parts that name a question, or plain words when exactly one question is open (requirement Q3)."""
        data = [MessageToDict(part.data) for part in message.parts if part.WhichOneof("content") == "data"]
        named = [_named_answer(each) for each in data if isinstance(each, dict) and "questionId" in each]
        if named:
            return named
        words = " ".join(part.text for part in message.parts if part.text) or _spoken(data)
        questions = await self._tools.questions.list_open(task_id)
        if not questions:
            raise UnsupportedOperationError("The task is working and asks nothing; wait for it, or cancel it.")
        if len(questions) > 1:
            ids = ", ".join(each.id for each in questions)
            raise InvalidParamsError(f"Several questions are open ({ids}); answer with questionId and optionId.")
        if not words.strip():
            raise InvalidParamsError("The answer is empty; say allow or deny.")
        return [Answer(questions[0].id, *approvals.read_words(words))]

    def _require_content(self, message: Message) -> None:
        if not message.parts:
            raise InvalidParamsError("message.parts is empty.")
        try:
            prompt.blocks(message)
        except prompt.PartRefused as error:
            raise ContentTypeNotSupportedError(str(error)) from error

    # --- finding, following, ending --------------------------------------------------------------------------------

    def _live_run(self, identity: Identity, task_id: str) -> TurnRun | None:
        run = self._runs.get(task_id)
        return run if run and run.live.owner == identity.id and not run.live.is_over else None

    async def get(self, identity: Identity, task_id: str) -> Task:
        """The task as it stands. Raises TaskNotFoundError, for another's task too."""
        if run := self._live_run(identity, task_id):
            return run.live.snapshot()
        task = await self._store.get(task_id, identity.id)
        if task is None:
            raise TaskNotFoundError
        return task

    async def list(self, identity: Identity, **query: Any) -> TaskPage:
        """A page of the caller's tasks, newest first. Raises InvalidParamsError on a bad page token."""
        try:
            page = await self._store.list(identity.id, **query)
        except ValueError:
            raise InvalidParamsError("The page token is not one of this caller's.") from None
        tasks = [run.live.snapshot() if (run := self._live_run(identity, each.id)) else each for each in page.tasks]
        return TaskPage(tasks, page.next_token, page.total)

    async def follow(self, identity: Identity, task_id: str) -> LiveTask:
        """The live task to subscribe to. Raises TaskNotFoundError, or UnsupportedOperationError once it is over."""
        if run := self._live_run(identity, task_id):
            return run.live
        await self.get(identity, task_id)
        raise UnsupportedOperationError("The task is over; get it instead.")

    async def cancel(self, identity: Identity, task_id: str) -> Task:
        """Cancel, and wait until nothing of it runs any more (requirement T5)."""
        run = self._live_run(identity, task_id)
        if run is None:
            await self.get(identity, task_id)
            raise TaskNotCancelableError
        run.cancel()
        await run.live.ended()
        return run.live.snapshot()

    async def count_open(self) -> int:
        return await self._store.count_open()

    # --- start and stop --------------------------------------------------------------------------------------------

    async def fail_leftovers(self) -> int:
        """At start: tasks that an earlier server left open have no turn any more (requirement R1)."""
        leftovers = await self._store.open_tasks()
        for owner, task in leftovers:
            live = LiveTask(task, owner, self._store.save)
            metadata = {"reason": "server_restarted"}
            parts = [surface.text_part(STOPPED)]
            state = TaskState.TASK_STATE_FAILED
            await live.settle(state, self._tools.clock(), parts, self._tools.new_id(), metadata)
        return len(leftovers)

    async def close(self) -> None:
        """End every open turn as failed, and take no more."""
        self._closed = True
        for run in list(self._runs.values()):
            run.stop()
        await asyncio.gather(*self._running, return_exceptions=True)


def _named_answer(data: dict[str, Any]) -> Answer:
    option, reason = data.get("optionId"), data.get("reason", "")
    if not (isinstance(data["questionId"], str) and isinstance(option, str) and isinstance(reason, str)):
        raise InvalidParamsError("An answer is {questionId, optionId, reason?}, all of them text.")
    return Answer(data["questionId"], option, reason)


def _spoken(data: list[Any]) -> str:
    return " ".join(str(each["answer"]) for each in data if isinstance(each, dict) and "answer" in each)
