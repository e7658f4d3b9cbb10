"""Agent processes: one for each user, started on demand; in it one session for each conversation (requirement T2)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from a2a_serve.agents import AgentKind
from a2a_serve.agents.acp import Agent, Session
from a2a_serve.agents.launch import ProcessName
from a2a_serve.core.errors import AgentFailure
from a2a_serve.core.model import Conversation
from a2a_serve.listeners import ASGIApp, Listener
from a2a_serve.sandbox import Sandbox, SandboxSpec

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0


@dataclass(slots=True)
class _Slot:
    """One user's place: at most one process, its door, its sessions by conversation."""

    name: ProcessName
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    agent: Agent | None = None
    door: Listener | None = None
    sessions: dict[str, Session] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    """Conversations whose turn runs now; the turns of one conversation never overlap."""
    idle_timer: asyncio.TimerHandle | None = None


def user_key(identity_id: str) -> str:
    """A short name for a user's home, container and door: readable, safe in a path, unique."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", identity_id).strip("-")[:24]
    return f"{readable}-{hashlib.sha256(identity_id.encode()).hexdigest()[:8]}"


class Pool:
    """Gives each conversation its session.

    `describe(name)` makes the sandbox spec of a user's process; `door(name)` is the application behind its agent
    socket and `open_door(path, app)` serves it there; both are handed in, so this package knows neither A2A nor HTTP.
    """

    def __init__(
        self,
        kind: AgentKind,
        sandbox: Sandbox,
        *,
        cwd: str,
        homes: Path,
        doors: Path,
        describe: Callable[[ProcessName], SandboxSpec],
        door: Callable[[ProcessName], ASGIApp],
        open_door: Callable[[Path], Listener],
        idle_stop: float,
    ) -> None:
        self._kind, self._sandbox, self._cwd = kind, sandbox, cwd
        self._homes, self._doors = homes, doors
        self._describe, self._door, self._open_door = describe, door, open_door
        self._idle_stop = idle_stop
        self._slots: dict[str, _Slot] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def session(self, conversation: Conversation) -> AsyncIterator[Session]:
        """The conversation's session, its process kept alive meanwhile. Raises AgentFailure or SandboxUnavailable."""
        slot = self._slot(conversation.opener)
        slot.held.add(conversation.id)
        if slot.idle_timer:
            slot.idle_timer.cancel()
        try:
            yield await self._session(slot, conversation)
        finally:
            slot.held.discard(conversation.id)
            self._rest(slot)

    async def _session(self, slot: _Slot, conversation: Conversation) -> Session:
        async with slot.starting:
            if slot.agent is None or slot.agent.lost:
                await self._start(slot)
            known = slot.sessions.pop(conversation.id, None)
            if known is None or known.id != conversation.session_id:
                await self._make_room(slot)
                known = await self._open(slot, conversation)
            slot.sessions[conversation.id] = known  # at the end: the first is the one unused for longest
            return known

    async def _make_room(self, slot: _Slot) -> None:
        """Close the sessions unused for longest where the kind keeps only so many; they are restored when needed."""
        idle = [each for each in slot.sessions if each not in slot.held]
        for each in idle[: max(0, len(slot.sessions) + 1 - self._kind.open_sessions)]:
            await slot.sessions.pop(each).close()

    async def _open(self, slot: _Slot, conversation: Conversation) -> Session:
        assert slot.agent is not None
        if conversation.session_id and conversation.agent == self._kind.name:
            try:
                return await slot.agent.restore_session(conversation.session_id)
            except AgentFailure as failure:
                if slot.agent.lost:
                    raise
                log.warning("conversation %s starts afresh: %s", conversation.id, failure)
        return await slot.agent.new_session()

    async def _start(self, slot: _Slot) -> None:
        await self._stop(slot, 0)
        spec = self._describe(slot.name)
        slot.door = self._open_door(slot.name.door / "a2a.sock")
        await slot.door.start(self._door(slot.name))
        try:
            process = await self._sandbox.start(spec)
            slot.agent = await Agent.connect(process, self._kind, self._cwd)
        except BaseException:
            await self._stop(slot, 0)
            raise

    async def _stop(self, slot: _Slot, grace: float) -> None:
        agent, door = slot.agent, slot.door
        slot.agent = slot.door = None
        slot.sessions.clear()
        if agent:
            await agent.close(grace)
        if door:
            await door.stop(0)

    def _slot(self, user: str) -> _Slot:
        if user not in self._slots:
            key = user_key(user)
            name = ProcessName(key, self._doors / key, self._homes / key)
            for path in (name.door, name.home):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._slots[user] = _Slot(name)
        return self._slots[user]

    def _rest(self, slot: _Slot) -> None:
        """An idle process stops after a while, with its container; its sessions are restored when needed."""
        if slot.held or not self._idle_stop:
            return
        loop = asyncio.get_running_loop()
        slot.idle_timer = loop.call_later(self._idle_stop, self._stop_idle, slot)

    def _stop_idle(self, slot: _Slot) -> None:
        task = asyncio.create_task(self._stop_if_idle(slot))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _stop_if_idle(self, slot: _Slot) -> None:
        async with slot.starting:
            if not slot.held:
                await self._stop(slot, STOP_SECONDS)

    async def forget(self, conversation: Conversation) -> None:
        """Let the agent close the conversation's session; its next turn opens a new one."""
        slot = self._slots.get(conversation.opener)
        session = slot.sessions.pop(conversation.id, None) if slot else None
        if session and session.alive:
            await session.close()

    async def close(self) -> None:
        """End every process."""
        slots = list(self._slots.values())
        for slot in slots:
            if slot.idle_timer:
                slot.idle_timer.cancel()
        await asyncio.gather(*self._stopping, *(self._stop(slot, STOP_SECONDS) for slot in slots))
