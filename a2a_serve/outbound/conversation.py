"""Sees one task through: its events, questions, lost connections. Shows and asks nothing itself: that is handed in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value

from a2a_serve.core.errors import RemoteError, StreamLost, Unreachable
from a2a_serve.outbound.client import TERMINAL, Events, RemoteAgent

WAITING = frozenset({pb.TaskState.TASK_STATE_INPUT_REQUIRED, pb.TaskState.TASK_STATE_AUTH_REQUIRED})
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Waits between attempts to get back to a task, after the connection was lost."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question on the wire. `id` is empty when the agent asks in plain words only: any words are the answer."""

    id: str
    text: str
    options: tuple[tuple[str, str, str], ...] = ()
    """(id, kind, name) of each."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a person answers: an option and words, or words alone."""

    option: str = ""
    words: str = ""


class View(Protocol):
    def event(self, event: dict[str, Any]) -> None:
        """Show what is new in an event, a StreamResponse in A2A's JSON; a whole task may repeat what was shown."""

    def note(self, text: str) -> None:
        """Say something of our own."""


Ask = Callable[[Question], Awaitable[Reply | None]]
"""Ask a person; None when they would rather not answer now."""


class Conversation:
    """One task, from a message or an id on. `stream`: show the answer as it comes.

    What happens goes to `view`; questions to `ask`, or to nobody where that is None.
    """

    def __init__(
        self,
        agent: RemoteAgent,
        view: View,
        ask: Ask | None,
        *,
        stream: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._agent, self._view, self._ask = agent, view, ask
        self._stream, self._sleep = stream, sleep
        self._task = pb.Task()
        self._failures = 0

    @property
    def task_id(self) -> str:
        """Empty until the agent has said which task it is, and when it answers with a message instead."""
        return self._task.id

    @property
    def context_id(self) -> str:
        return self._task.context_id

    @property
    def state(self) -> str:
        """`working`, `input-required`, `completed` ..."""
        name = pb.TaskState.Name(self._task.status.state)
        return name.removeprefix("TASK_STATE_").lower().replace("_", "-")

    @property
    def has_ended(self) -> bool:
        return self._task.status.state in TERMINAL

    @property
    def is_waiting(self) -> bool:
        return self._task.status.state in WAITING

    @property
    def questions(self) -> list[Question]:
        """What the task waits for."""
        return questions(self._task.status) if self.is_waiting else []

    async def send(self, text: str, context_id: str = "", task_id: str = "") -> None:
        """Send a message, and stay until the task has ended, or waits for somebody who is not here."""
        message = _message(pb.Part(text=text), context_id, task_id)
        await self._see_through(self._agent.send(message, stream=self._stream))

    async def start(self, text: str, context_id: str = "", task_id: str = "") -> None:
        """Send a message and stay only until the agent has taken it."""
        await self._read(self._agent.send(_message(pb.Part(text=text), context_id, task_id), at_once=True))

    async def resume(self, task_id: str) -> None:
        """Come back to a task."""
        self._task.id = task_id
        await self._see_through(self._agent.follow(task_id))

    async def _see_through(self, events: Events) -> None:
        following: Events | None = events
        while following is not None:
            try:
                replied = await self._read(following)
                following = None if replied else await self._next()
            except StreamLost as lost:
                following = await self._again(lost)

    async def _read(self, events: Events) -> bool:
        """Take events to the end, or to a question. Tells whether a message came instead of a task."""
        async with aclosing(events):
            async for event in events:
                self._take(event)
                if event.HasField("message"):
                    return True
                if self.has_ended or (self.is_waiting and not event.HasField("artifact_update")):
                    return False
        return False

    def _take(self, event: pb.StreamResponse) -> None:
        self._failures = 0
        match event.WhichOneof("payload"):
            case "task":
                self._task = event.task
            case "status_update":
                self._task.id, self._task.context_id = event.status_update.task_id, event.status_update.context_id
                self._task.status.CopyFrom(event.status_update.status)
            case "artifact_update":
                self._task.id, self._task.context_id = event.artifact_update.task_id, event.artifact_update.context_id
        self._view.event(MessageToDict(event))

    async def _next(self) -> Events | None:
        if self.has_ended:
            return None
        if not self.is_waiting:
            return await self._again(StreamLost("The agent's answer broke off.", "Its task may go on."))
        return await self._settle(self.questions[0]) if self._ask else None

    async def _again(self, lost: StreamLost) -> Events:
        """Follow the task anew, after a while that grows. Raises `lost` when that has failed too often."""
        if not self._task.id or self._failures >= len(RETRY_SECONDS):
            raise lost
        await self._sleep(RETRY_SECONDS[self._failures])
        self._failures += 1
        return self._follow()

    async def _follow(self) -> Events:
        try:
            async with aclosing(self._agent.follow(self._task.id)) as events:
                async for event in events:
                    yield event
        except Unreachable as gone:  # it was there a moment ago
            raise StreamLost(gone.sentence, gone.hint) from gone

    async def _settle(self, question: Question) -> Events | None:
        """Ask here, and watch for an answer given elsewhere; go on after whichever is first."""
        assert self._ask is not None
        asking = asyncio.ensure_future(self._ask(question))
        watching = asyncio.ensure_future(self._until_moved(question))
        try:
            await asyncio.wait({asking, watching}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return await self._reply(question, asking.result())
            return self._moved_on(watching)
        finally:
            for each in (asking, watching):
                each.cancel()
            await asyncio.gather(asking, watching, return_exceptions=True)

    async def _reply(self, question: Question, reply: Reply | None) -> Events | None:
        if reply is None:
            return None
        message = _message(_answer_part(question, reply), self._task.context_id, self._task.id)
        return self._after_reply(self._agent.send(message, stream=self._stream))

    async def _after_reply(self, events: Events) -> Events:
        """The answering call streams the rest. One that comes too late is told, and the task goes on."""
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        except RemoteError as refused:
            self._view.note(str(refused))
            async with aclosing(self._follow()) as following:
                async for event in following:
                    yield event

    def _moved_on(self, watching: asyncio.Future[None]) -> Events:
        watching.result()
        self._view.note("This question is settled: answered elsewhere, expired or canceled.")
        return self._follow()

    async def _until_moved(self, question: Question) -> None:
        """Return once the question is no longer open. Without a way to watch, never."""
        failures = 0
        while failures <= len(RETRY_SECONDS):
            try:
                async with aclosing(self._agent.follow(self._task.id)) as events:
                    async for event in events:
                        failures = 0
                        if _is_settled(event, question):
                            return
            except (RemoteError, Unreachable):
                pass
            await self._sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1
        await asyncio.get_running_loop().create_future()


def _message(part: pb.Part, context_id: str, task_id: str) -> pb.Message:
    return pb.Message(
        message_id=uuid4().hex, role=pb.Role.ROLE_USER, parts=[part], context_id=context_id, task_id=task_id
    )


def _is_settled(event: pb.StreamResponse, question: Question) -> bool:
    match event.WhichOneof("payload"):
        case "task":
            status = event.task.status
        case "status_update":
            status = event.status_update.status
        case _:
            return False
    return status.state not in WAITING or question.id not in [each.id for each in questions(status)]


def questions(status: pb.TaskStatus) -> list[Question]:
    """The open questions of a waiting task, as this project puts them on the wire; else its text as one question."""
    parts = [MessageToDict(part.data) for part in status.message.parts if part.HasField("data")]
    found = [_question(part) for part in parts if isinstance(part, dict) and isinstance(part.get("questionId"), str)]
    text = "\n".join(part.text for part in status.message.parts if part.text)
    return found or [Question("", text)]


def _question(data: Mapping[str, Any]) -> Question:
    action, options = data.get("action"), data.get("options")
    known = action if isinstance(action, Mapping) else {}
    text = str(known.get("text") or known.get("title") or "The agent asks.")
    listed = [each for each in options if isinstance(each, Mapping)] if isinstance(options, list) else []
    made = tuple((str(each.get("id", "")), str(each.get("kind", "")), str(each.get("name", ""))) for each in listed)
    return Question(str(data["questionId"]), text, made)


def _answer_part(question: Question, reply: Reply) -> pb.Part:
    if not question.id:
        return pb.Part(text=reply.words)
    data = {"questionId": question.id, "optionId": reply.option}
    if reply.words:
        data["reason"] = reply.words
    return pb.Part(data=ParseDict(data, Value()), media_type="application/json")
