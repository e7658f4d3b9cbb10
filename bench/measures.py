"""The measurements. Each takes a warmed system and gives metrics by name; a wrong answer ends the run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.client import BenchError, Connection, Turn, message, result, rpc, streamed_text, task_text
from bench.load import Subject, blocking_turns, digest, percentile, say_turn, streaming_turns, timed
from bench.systems import Running, System

Metrics = dict[str, float]
SETTLE_SECONDS = 1.0
SLOW_BUFFER = 4096
WAIT_SECONDS = 120.0


async def idle(subject: Subject) -> Metrics:
    """Start to first served card, and memory before any request."""
    await asyncio.sleep(SETTLE_SECONDS)
    return {"start_ms": subject.running.started * 1000, "idle_mib": subject.running.resident()}


async def one_caller(subject: Subject) -> Metrics:
    """Whole turns and first events, one caller."""
    took = await blocking_turns(subject, 1, subject.sizes.turns)
    streamed = await streaming_turns(subject, 1, subject.sizes.turns // 2)
    return {
        "turn_1_ms": percentile(took, 0.5),
        "turn_1_p99_ms": percentile(took, 0.99),
        **_firsts(streamed, 1),
    }


async def many_callers(subject: Subject) -> Metrics:
    """Thousands of turns by all callers at once: throughput, and what the tasks leave in memory."""
    sizes, running = subject.sizes, subject.running
    before, begun = running.resident(), time.perf_counter()
    took = await blocking_turns(subject, sizes.callers, sizes.loaded_turns)
    seconds = time.perf_counter() - begun
    await asyncio.sleep(SETTLE_SECONDS)
    after = running.resident()
    streamed = await streaming_turns(subject, sizes.callers, sizes.first * sizes.callers)
    return {
        "turn_32_ms": percentile(took, 0.5),
        "turn_32_p99_ms": percentile(took, 0.99),
        "turns_32_s": len(took) / seconds,
        "after_mib": after,
        "added_mib": after - before,
        **_firsts(streamed, 32),
    }


def _firsts(turns: list[Turn], callers: int) -> Metrics:
    return {
        f"first_{callers}_ms": percentile((turn.first for turn in turns), 0.5) * 1000,
        f"text_{callers}_ms": percentile((turn.first_text for turn in turns), 0.5) * 1000,
    }


async def chunks(subject: Subject) -> Metrics:
    """Agent chunks a second through whole streaming turns of growing length, and that no text was lost."""
    rates: Metrics = {}
    connection = await subject.running.connect()
    for length in subject.sizes.lengths:
        took = []
        for _ in range(3):
            turn = await connection.turn(subject.running.system.chunks(length), subject.contexts[0])
            if not turn.ended:
                raise BenchError(f"a stream of {length} chunks ended without its end")
            took.append(turn.total)
            subject.texts[length] = digest(streamed_text(turn.events))
        rates[f"chunks_{length}_s"] = length / statistics.median(took)
    connection.close()
    return rates


async def get_task(subject: Subject) -> Metrics:
    """GetTask of a finished turn."""
    connection = await subject.running.connect()
    task = result(await connection.call(say_turn(subject.contexts[0])))["task"]
    took = await timed(connection, rpc("GetTask", id=task["id"]), subject.sizes.gets, b"TASK_STATE_COMPLETED")
    return {"get_ms": percentile(took, 0.5)}


async def list_tasks(subject: Subject) -> Metrics:
    """One page of 50, over the thousands of tasks that the turns before have left."""
    connection = await subject.running.connect()
    body = rpc("ListTasks", pageSize=50)
    found = result(await connection.call(body))
    if len(found["tasks"]) != 50:
        raise BenchError(f"a page of 50 has {len(found['tasks'])} tasks")
    took = await timed(connection, body, subject.sizes.lists, b"TASK_STATE_COMPLETED")
    return {"list_ms": percentile(took, 0.5)}


async def slow_reader(subject: Subject) -> Metrics:
    """A reader that takes the first event, sleeps while the turn runs to its end, then reads on."""
    sizes, running = subject.sizes, subject.running
    connection = await running.connect(SLOW_BUFFER)
    stream = connection.events(message("SendStreamingMessage", f"chunks {sizes.behind}", subject.contexts[0]))
    events = list(await anext(stream))
    task = await _finished(running, result(events[0])["task"]["id"])
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            async for found in stream:
                events += found
    except (BenchError, TimeoutError):
        pass  # a stream that breaks off has not brought the end, which is the metric
    seconds = time.perf_counter() - begun
    connection.close()
    whole = Turn(events=events).ended
    same = streamed_text(events).strip() == task_text(task).strip()
    return {"slow_end": float(whole), "slow_text": float(same), "slow_ms": seconds * 1000, "slow_events": len(events)}


async def _finished(running: Running, task_id: str) -> dict[str, Any]:
    """The task once it is over."""
    connection = await running.connect()
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            task = result(await connection.call(rpc("GetTask", id=task_id)))
            if task["status"]["state"] == "TASK_STATE_COMPLETED":
                connection.close()
                return task
            await asyncio.sleep(0.02)


async def open_streams(subject: Subject) -> Metrics:
    """Hundreds of SubscribeToTask streams on waiting turns: memory each, turns meanwhile, and everyone's end."""
    sizes, running = subject.sizes, subject.running
    calls = await running.connect()
    waiting = [await _park(calls, context) for context in subject.contexts[: sizes.parked]]
    readers: list[asyncio.Task[bool]] = []
    before, begun = running.resident(), time.perf_counter()
    try:
        for number in range(sizes.streams):
            readers.append(await _reader(running, waiting[number % len(waiting)]))
        opened, after = time.perf_counter() - begun, running.resident()
        took = await blocking_turns(_last_caller(subject), 1, min(sizes.turns, 100))
        ended, seconds = await _all_ended(calls, waiting, readers)
    finally:
        for reader in readers:
            reader.cancel()
    return {
        "stream_kib": (after - before) * 1024 / sizes.streams,
        "streams_open_s": opened,
        "streams_turn_ms": percentile(took, 0.5),
        "streams_ended": ended / sizes.streams,
        "streams_end_s": seconds,
    }


async def _all_ended(calls: Connection, waiting: list[str], readers: list[asyncio.Task[bool]]) -> tuple[int, float]:
    """Cancel the waiting turns; how many readers saw their end, and the seconds until the last stream was over."""
    begun = time.perf_counter()
    for task_id in waiting:
        await calls.call(rpc("CancelTask", id=task_id))
    calls.close()
    async with asyncio.timeout(WAIT_SECONDS):
        ended = await asyncio.gather(*readers)
    return sum(ended), time.perf_counter() - begun


def _last_caller(subject: Subject) -> Subject:
    """The same system seen by its last caller, whose conversation is free while the first ones wait."""
    return Subject(subject.running, subject.sizes, subject.contexts[-1:])


async def _park(connection: Connection, context: str) -> str:
    """The id of a turn that waits until it is cancelled."""
    answer = await connection.call(message("SendMessage", "sleep 600", context, returnImmediately=True))
    task_id: str = result(answer)["task"]["id"]
    return task_id


async def _reader(running: Running, task_id: str) -> asyncio.Task[bool]:
    """An open stream on a task: its first event is here; the task tells whether it saw the end."""
    connection = await running.connect()
    stream = connection.events(rpc("SubscribeToTask", id=task_id))
    events = list(await anext(stream))

    async def to_the_end() -> bool:
        async for found in stream:
            events.extend(found)
        connection.close()
        return Turn(events=events).ended

    return asyncio.create_task(to_the_end())


Measure = Callable[[Subject], Awaitable[Metrics]]
MEASURES: dict[str, Measure] = {
    "idle": idle,
    "one": one_caller,
    "many": many_callers,
    "get": get_task,
    "list": list_tasks,
    "chunks": chunks,
    "slow": slow_reader,
    "streams": open_streams,
}
GROUPS = (("idle", "one", "many", "get", "list"), ("streams",), ("chunks", "slow"))
"""Each group has a server process of its own: what one leaves in memory must not hide what the next one needs."""
NEEDS_AGENT, NEEDS_TASKS = {"slow", "streams"}, {"get", "list", "slow", "streams"}


def groups_of(system: System, wanted: set[str]) -> list[list[str]]:
    """The wanted measurements that make sense for this system, by group, in the order in which they run."""
    senseless = (set() if system.agent else NEEDS_AGENT) | (set() if system.tasks else NEEDS_TASKS)
    groups = [[name for name in group if name in wanted - senseless] for group in GROUPS]
    return [group for group in groups if group]
