"""In the place of the server's `Tasks`, where a test is about the way to it: no agent, no disk."""

from __future__ import annotations

import asyncio
import itertools

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotFoundError

from a2a_serve.core.model import Identity
from a2a_serve.server import surface
from a2a_serve.server.live import LiveTask, Subscriber
from a2a_serve.server.tasks import Accepted

WORKING, DONE = pb.TASK_STATE_WORKING, pb.TASK_STATE_COMPLETED


async def forget(task: pb.Task) -> None:
    """No disk here."""


class Followed(LiveTask):
    """Tells when a reader has left."""

    def __init__(self, task: pb.Task, owner: str) -> None:
        super().__init__(task, owner, forget)
        self.left = asyncio.Event()

    def unsubscribe(self, subscriber: Subscriber) -> None:
        super().unsubscribe(subscriber)
        self.left.set()


class Desk:
    """In the place of `Tasks`: completes `hello`, keeps `wait` open, breaks at `break`."""

    def __init__(self) -> None:
        self.live: dict[str, Followed] = {}
        self.seen: list[tuple[Identity, pb.Message]] = []
        self._ids = itertools.count(1)

    async def submit(self, identity: Identity, message: pb.Message) -> Accepted:
        self.seen.append((identity, message))
        text = message.parts[0].text
        if text == "break":
            raise RuntimeError("/home/alice/.ssh is in the way")
        task = pb.Task(id=f"t{next(self._ids)}", context_id=message.context_id or "c1")
        task.status.CopyFrom(surface.status(WORKING, 1.0))
        task.history.add().CopyFrom(message)
        live = self.live[task.id] = Followed(task, identity.id)
        live.append_text("response", text, last=True)
        if text == "hello":
            await live.settle(DONE, 2.0, [], "m", {})
        return Accepted(live.snapshot(), live)

    async def get(self, identity: Identity, task_id: str) -> pb.Task:
        if task_id not in self.live:
            raise TaskNotFoundError
        return self.live[task_id].snapshot()

    async def follow(self, identity: Identity, task_id: str) -> LiveTask:
        if task_id not in self.live:
            raise TaskNotFoundError
        return self.live[task_id]
