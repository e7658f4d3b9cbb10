"""What a turn has yet to take in: the agent's events in wire order, the host's among them, and timers."""

from __future__ import annotations

import asyncio
from collections import deque

from a2a_serve.core.events import AgentEvent, Event


class Mailbox:
    """One reader. The agent's side waits while `bound` events are unread (back-pressure); the host's never does."""

    def __init__(self, bound: int = 1024) -> None:
        self._bound = bound
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    def post(self, event: Event) -> None:
        """From the host."""
        self._events.append(event)
        self._arrived.set()

    async def deliver(self, event: AgentEvent) -> None:
        """From the agent; waits for room."""
        if len(self._events) >= self._bound and not self._closed:
            self._room.clear()
            await self._room.wait()
        self.post(event)

    def close(self) -> None:
        """Nobody reads any more: who waits for room must not wait for ever."""
        self._closed = True
        self._room.set()

    async def next(self, until: float | None) -> Event | None:
        """The next event, or None when the loop's clock reaches `until` first."""
        if not self._events and not await self._arrival(until):
            return None
        event = self._events.popleft()
        if len(self._events) <= self._bound // 2:
            self._room.set()
        return event

    async def _arrival(self, until: float | None) -> bool:
        """Wait for an event; False when the time comes first."""
        self._arrived.clear()
        loop = asyncio.get_running_loop()
        timer = None if until is None else loop.call_at(until, self._arrived.set)  # `asyncio.timeout` adds 3 us
        try:
            await self._arrived.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return bool(self._events)
