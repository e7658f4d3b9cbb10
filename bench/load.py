"""Load on a running system: how much of it, and the loops that make turns and time them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from bench.client import BenchError, Connection, Turn, message, result
from bench.systems import Running

PROMPT = "say hello world"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything one round does."""

    callers: int = 32
    turns: int = 300
    loaded_turns: int = 5000
    first: int = 20
    """Streaming turns of each caller."""
    lengths: tuple[int, ...] = (1000, 2000, 4000, 8000)
    gets: int = 500
    lists: int = 30
    streams: int = 500
    parked: int = 20
    behind: int = 6000

    @classmethod
    def quick(cls) -> Sizes:
        """Enough to see that all of it works; the numbers mean nothing."""
        few = {"callers": 8, "turns": 30, "loaded_turns": 200, "first": 2, "gets": 50, "lists": 5}
        return cls(**few, lengths=(1000, 2000), streams=40, parked=4, behind=3000)


@dataclass(slots=True)
class Subject:
    """A running system, warmed: one conversation and one connection for each caller."""

    running: Running
    sizes: Sizes
    contexts: list[str] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    """Digest of the final text by turn length: the same for every system that drives the agent."""

    async def warm(self) -> None:
        """Open every caller's conversation with two turns, then put the agents on the client's core."""
        connection = await self.running.connect()
        for _ in range(self.sizes.callers):
            task = result(await connection.call(message("SendMessage", PROMPT)))["task"]
            await connection.call(say_turn(task["contextId"]))
            self.contexts.append(task["contextId"])
        connection.close()
        self.running.pin_agents()


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie, by the nearest rank. Raises ValueError for none."""
    ranked = sorted(values)
    if not ranked:
        raise ValueError("no values")
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


def say_turn(context: str) -> bytes:
    return message("SendMessage", PROMPT, context)


async def _shared(
    subject: Subject, callers: int, count: int, once: Callable[[Connection, str], Awaitable[None]]
) -> None:
    """Do `once` `count` times, shared by `callers`, each with its own connection and conversation."""
    left = count

    async def caller(context: str) -> None:
        nonlocal left
        connection = await subject.running.connect()
        while left > 0:
            left -= 1
            await once(connection, context)
        connection.close()

    await asyncio.gather(*(caller(context) for context in subject.contexts[:callers]))


async def blocking_turns(subject: Subject, callers: int, count: int) -> list[float]:
    """Milliseconds of each turn sent with a blocking SendMessage."""
    took: list[float] = []

    async def once(connection: Connection, context: str) -> None:
        body, begun = say_turn(context), time.perf_counter()
        answer = await connection.call(body)
        took.append((time.perf_counter() - begun) * 1000)
        if b"TASK_STATE_COMPLETED" not in answer or b"hello world" not in answer:
            raise BenchError(f"a turn did not complete: {answer[:300]!r}")

    await _shared(subject, callers, count, once)
    return took


async def streaming_turns(subject: Subject, callers: int, count: int) -> list[Turn]:
    turns: list[Turn] = []

    async def once(connection: Connection, context: str) -> None:
        turn = await connection.turn(PROMPT, context)
        if not turn.ended or not turn.first_text:
            raise BenchError(f"a stream ended without text and end: {turn.events[-1:]!r}")
        turns.append(turn)

    await _shared(subject, callers, count, once)
    return turns


async def timed(connection: Connection, body: bytes, count: int, expected: bytes) -> list[float]:
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        answer = await connection.call(body)
        took.append((time.perf_counter() - begun) * 1000)
        if expected not in answer:
            raise BenchError(f"unexpected answer {answer[:300]!r}")
    connection.close()
    return took


def digest(text: str) -> str:
    """A short name for a text, to compare texts of systems by; trailing space does not count."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]
