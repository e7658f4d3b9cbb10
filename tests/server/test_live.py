"""A live task and its readers: late ones get the whole, slow ones a snapshot, everybody the end (requirement A10)."""

from __future__ import annotations

import asyncio

import pytest
from a2a.types.a2a_pb2 import Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent
from google.protobuf.json_format import MessageToDict

from a2a_serve.core.model import PlanEntry
from a2a_serve.server import surface
from a2a_serve.server.live import LiveTask, Subscriber, WireEvent

WORKING, DONE = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED
WAITING = TaskState.TASK_STATE_INPUT_REQUIRED


class Disk:
    """Remembers what was committed, and when relative to what was published."""

    def __init__(self) -> None:
        self.saved: list[Task] = []

    async def save(self, task: Task) -> None:
        copy = Task()
        copy.CopyFrom(task)
        self.saved.append(copy)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def live(disk: Disk) -> LiveTask:
    task = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED))
    return LiveTask(task, "pair:a", disk.save)


async def read_all(subscriber: Subscriber) -> list[WireEvent]:
    async with asyncio.timeout(5):
        return [event async for event in subscriber.events()]


def text_of(events: list[WireEvent]) -> str:
    return "".join(event.artifact.parts[0].text for event in events if isinstance(event, TaskArtifactUpdateEvent))


async def finish(live: LiveTask) -> None:
    await live.settle(DONE, 2.0, [], "m", {"turns": 1})


async def test_a_question_and_an_end_are_committed_before_they_are_seen(live: LiveTask, disk: Disk) -> None:
    seen_after: list[int] = []

    class Watching(Subscriber):
        def push(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
            seen_after.append(len(disk.saved))

    live._subscribers.append(Watching(live, until_question=False))
    await live.settle(WAITING, 1.0, [surface.text_part("ok?")], "m1", {})
    await finish(live)
    assert seen_after == [1, 2]
    assert [task.status.state for task in disk.saved] == [WAITING, DONE]


async def test_text_grows_in_one_part(live: LiveTask) -> None:
    reader = live.subscribe(until_question=False)
    for piece in ("a", "b", "c"):
        live.append_text("response", piece, last=False)
    live.append_text("response", "", last=True)
    await finish(live)
    assert [len(artifact.parts) for artifact in live.task.artifacts] == [1]
    assert live.task.artifacts[0].parts[0].text == "abc"
    assert text_of(await read_all(reader)) == "abc"


async def test_waiting_deltas_are_merged_without_touching_another_readers(live: LiveTask) -> None:
    slow, slower = live.subscribe(until_question=False), live.subscribe(until_question=False)
    for piece in ("a", "b", "c", "d"):
        live.append_text("response", piece, last=False)
    await finish(live)
    first, second = await read_all(slow), await read_all(slower)
    assert text_of(first) == text_of(second) == "abcd"
    assert [type(each) for each in first] == [TaskArtifactUpdateEvent, TaskStatusUpdateEvent]


async def test_a_reader_far_behind_gets_one_snapshot_and_the_end(live: LiveTask) -> None:
    slow = live.subscribe(until_question=False)
    for number in range(2000):
        live.append_text("response", f"{number} ", last=False)
        live.show_working(1.0, f"step {number}", "m", {})
    await finish(live)
    events = await read_all(slow)
    assert len(events) <= Subscriber.MAX_EVENTS + 1
    snapshots = [event for event in events if isinstance(event, Task)]
    assert snapshots
    whole = snapshots[-1].artifacts[0].parts[0].text + text_of(events[events.index(snapshots[-1]) :])
    assert whole == "".join(f"{number} " for number in range(2000))
    assert not isinstance(events[-1], TaskArtifactUpdateEvent)
    assert events[-1].status.state == DONE


async def test_a_reader_far_behind_in_bytes(live: LiveTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subscriber, "MAX_BYTES", 1000)
    slow = live.subscribe(until_question=False)
    for _ in range(50):
        live.append_text("response", "x" * 100, last=False)
    await finish(live)
    events = await read_all(slow)
    assert isinstance(events[0], Task)


async def test_streams_end_at_a_question_only_where_asked(live: LiveTask) -> None:
    sender, follower = live.subscribe(until_question=True), live.subscribe(until_question=False)
    await live.settle(WAITING, 1.0, [surface.text_part("ok?")], "m1", {})
    assert [event.status.state for event in await read_all(sender)] == [WAITING]  # type: ignore[union-attr]
    following = asyncio.create_task(read_all(follower))
    await asyncio.sleep(0)
    assert not following.done()
    live.show_working(2.0, "", "m2", {})
    await finish(live)
    states = [event.status.state for event in await following if isinstance(event, TaskStatusUpdateEvent)]
    assert states == [WAITING, WORKING, DONE]


async def test_a_reader_that_leaves_is_forgotten(live: LiveTask) -> None:
    reader = live.subscribe(until_question=False)
    live.show_working(1.0, "", "m", {})
    events = reader.events()
    await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    assert live._subscribers == []


async def test_an_answered_question_stays_in_the_history(live: LiveTask) -> None:
    await live.settle(WAITING, 1.0, [surface.text_part("ok?")], "m1", {})
    live.show_working(2.0, "", "m2", {})
    assert [message.message_id for message in live.task.history] == ["m1"]


async def test_who_waits_for_the_task_to_settle_waits_again_after_an_answer(live: LiveTask) -> None:
    await live.settle(WAITING, 1.0, [surface.text_part("ok?")], "m1", {})
    await live.settled()
    live.resume(1.5, "m2")
    waiting = asyncio.create_task(live.settled())
    await asyncio.sleep(0)
    assert not waiting.done()
    await finish(live)
    await waiting
    await live.ended()


async def test_a_plan_is_replaced(live: LiveTask) -> None:
    live.put_artifact(surface.plan_artifact([PlanEntry("A")]))
    live.put_artifact(surface.plan_artifact([PlanEntry("A", status="completed"), PlanEntry("B")]))
    assert len(live.task.artifacts) == 1
    (plan,) = live.task.artifacts
    assert len(MessageToDict(plan.parts[0].data)["entries"]) == 2
