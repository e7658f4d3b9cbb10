"""A task that is not over yet: its one true copy, and those who follow it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from a2a.types.a2a_pb2 import Artifact, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent

from a2a_serve.core.errors import ServeError
from a2a_serve.server import surface

log = logging.getLogger(__name__)

WireEvent = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class Subscriber:
    """One reader's place in a task's events.

    The buffer is bounded: adjacent text of one artifact is merged; a reader that is still behind gets one snapshot of
    the whole task and goes on from there. The task never waits for a reader, and a reader always gets the end.
    """

    MAX_EVENTS = 256
    MAX_BYTES = 4 << 20

    def __init__(self, live: LiveTask, *, until_question: bool) -> None:
        self._live = live
        self.over = False
        self._until_question = until_question
        self._events: list[WireEvent] = []
        self._bytes = 0
        self._own_last = False
        self._wake = asyncio.Event()

    def push(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        if not self._merge(event):
            self._events.append(event)
            self._own_last = False
        self._bytes += event.ByteSize()
        if len(self._events) > self.MAX_EVENTS or self._bytes > self.MAX_BYTES:
            self._events, self._bytes, self._own_last = [self._live.snapshot()], 0, False
        self._wake.set()

    def _merge(self, event: WireEvent) -> bool:
        """Join text to the last waiting event, which is copied first: other readers share it."""
        last = self._events[-1] if self._events else None
        if not (isinstance(event, TaskArtifactUpdateEvent) and isinstance(last, TaskArtifactUpdateEvent)):
            return False
        if not event.append or last.artifact.artifact_id != event.artifact.artifact_id:
            return False
        if not self._own_last:
            mine = TaskArtifactUpdateEvent()
            mine.CopyFrom(last)
            self._events[-1] = last = mine
            self._own_last = True
        last.artifact.parts[0].text += event.artifact.parts[0].text
        last.last_chunk = event.last_chunk
        return True

    async def events(self) -> AsyncIterator[WireEvent]:
        """Events until the task is over (or waits for an answer, where the subscriber asked to end there)."""
        try:
            while not self.over:
                for event in await self.batch():
                    yield event
        finally:
            self.leave()

    async def batch(self, seconds: float | None = None) -> list[WireEvent]:
        """What has happened since the last call; nothing where `seconds` pass without anything. The last batch, or
        `leave`, sets `over`."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return []
        self._wake.clear()
        waiting, self._events, self._bytes, self._own_last = self._events, [], 0, False
        for count, event in enumerate(waiting, 1):
            if self._ends(event):
                self.over = True
                return waiting[:count]
        return waiting

    def leave(self) -> None:
        """The reader has gone, or has seen the end."""
        self.over = True
        self._wake.set()
        self._live.unsubscribe(self)

    def _ends(self, event: WireEvent) -> bool:
        if isinstance(event, TaskArtifactUpdateEvent):
            return False
        state = event.status.state
        return state in surface.TERMINAL or (self._until_question and state in surface.INTERRUPTED)


class LiveTask:
    """Owns a task's state while its turn runs. Only the turn's executor changes it; anyone may follow it.

    `save` commits the task; what a caller may rely on (a question, an end) is committed before anyone sees it.
    """

    def __init__(self, task: Task, owner: str, save: Callable[[Task], Awaitable[None]]) -> None:
        self.task = task
        self.owner = owner
        self.dirty = False
        self._save = save
        self._subscribers: list[Subscriber] = []
        self._artifacts = {artifact.artifact_id: artifact for artifact in task.artifacts}
        self._settled = asyncio.Event()
        self._over = asyncio.Event()

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def is_over(self) -> bool:
        return self.task.status.state in surface.TERMINAL

    def snapshot(self) -> Task:
        copy = Task()
        copy.CopyFrom(self.task)
        return copy

    def subscribe(self, *, until_question: bool) -> Subscriber:
        subscriber = Subscriber(self, until_question=until_question)
        self._subscribers.append(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)

    async def settled(self) -> None:
        """Wait until the task is over or waits for an answer."""
        await self._settled.wait()

    async def ended(self) -> None:
        """Wait until the task is over."""
        await self._over.wait()

    def resume(self, now: float, message_id: str) -> None:
        """No question is open any more: working again, and who waits for the task to settle waits again."""
        if self.task.status.state in surface.INTERRUPTED:
            self._settled.clear()
            self.show_working(now, "", message_id, {})

    # --- changes, by the executor ----------------------------------------------------------------------------------

    def append_text(self, artifact_id: str, text: str, *, last: bool) -> None:
        """Add to a text artifact; the stored artifact keeps one part, however many deltas came."""
        known = self._artifacts.get(artifact_id)
        if known is None:
            if not text:
                return
            self._add(surface.text_artifact(artifact_id, text))
        else:
            known.parts[0].text += text
        name = "" if known else artifact_id
        delta = Artifact(artifact_id=artifact_id, name=name, parts=[Part(text=text)])
        self._publish_artifact(delta, append=known is not None, last=last)

    def put_artifact(self, artifact: Artifact) -> None:
        """Add an artifact, or replace the one of the same id."""
        known = self._artifacts.get(artifact.artifact_id)
        if known is None:
            self._add(artifact)
        else:
            known.CopyFrom(artifact)
        self._publish_artifact(artifact, append=False, last=True)

    def show_working(self, now: float, line: str, message_id: str, metadata: Mapping[str, object]) -> None:
        """Say what the turn is doing; not committed, it is gone with the next status anyway."""
        message = self._message(message_id, [surface.text_part(line)]) if line else None
        self._set_status(TaskState.TASK_STATE_WORKING, now, message, metadata)
        self._publish_status()

    async def settle(
        self,
        state: TaskState,
        now: float,
        parts: list[Part],
        message_id: str,
        metadata: Mapping[str, object],
    ) -> None:
        """Commit a question or an end, then show it."""
        message = self._message(message_id, parts) if parts else None
        self._set_status(state, now, message, metadata)
        await self._commit_or_tell()
        self._publish_status()
        self._settled.set()
        if self.is_over:
            self._over.set()

    async def _commit_or_tell(self) -> None:
        """An end that cannot be saved is told all the same: who waits must not wait for ever. A restart closes it."""
        try:
            await self.commit()
        except ServeError:
            if not self.is_over:
                raise
            log.exception("the end of task %s could not be saved", self.id)

    async def commit(self) -> None:
        self.dirty = False
        await self._save(self.task)

    def add_to_history(self, message: Message) -> None:
        self.task.history.append(message)
        self.dirty = True

    # --- inside ----------------------------------------------------------------------------------------------------

    def _add(self, artifact: Artifact) -> None:
        self.task.artifacts.append(artifact)
        self._artifacts[artifact.artifact_id] = self.task.artifacts[-1]

    def _message(self, message_id: str, parts: list[Part]) -> Message:
        return surface.agent_message(message_id, self.task.id, self.task.context_id, parts)

    def _set_status(
        self, state: TaskState, now: float, message: Message | None, metadata: Mapping[str, object]
    ) -> None:
        if self.task.status.state in surface.INTERRUPTED and self.task.status.HasField("message"):
            self.task.history.append(self.task.status.message)
        self.task.status.CopyFrom(surface.status(state, now, message))
        self.task.ClearField("metadata")
        if metadata:
            self.task.metadata.CopyFrom(surface.struct(metadata))
        self.dirty = True

    def _publish_status(self) -> None:
        if not self._subscribers:
            return
        event = TaskStatusUpdateEvent(task_id=self.task.id, context_id=self.task.context_id, status=self.task.status)
        if self.task.HasField("metadata"):
            event.metadata.CopyFrom(self.task.metadata)
        self._publish(event)

    def _publish_artifact(self, artifact: Artifact, *, append: bool, last: bool) -> None:
        self.dirty = True
        if not self._subscribers:
            return
        self._publish(
            TaskArtifactUpdateEvent(
                task_id=self.task.id,
                context_id=self.task.context_id,
                artifact=artifact,
                append=append,
                last_chunk=last,
            )
        )

    def _publish(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        for subscriber in self._subscribers:
            subscriber.push(event)
