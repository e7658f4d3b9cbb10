"""One process a user, one session a conversation: what is kept, restored, closed (requirement T2)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from serving import pids_of

from a2a_serve import agents
from a2a_serve.agents import AgentKind
from a2a_serve.agents.acp import Session
from a2a_serve.agents.launch import ProcessName
from a2a_serve.agents.pool import Pool, user_key
from a2a_serve.core.errors import AgentFailure, SandboxUnavailable
from a2a_serve.core.model import Conversation
from a2a_serve.listeners import Scope
from a2a_serve.listeners.local import UnixListener
from a2a_serve.sandbox import SandboxSpec
from a2a_serve.sandbox.local import LocalSandbox

DEMO = str(resources.files(agents) / "demo.py")


async def nothing(scope: Scope, receive: object, send: object) -> None: ...


@asynccontextmanager
async def pool_in(root: Path, kind: AgentKind | None = None, idle_stop: float = 0) -> AsyncIterator[Pool]:
    kind = kind or AgentKind.load("demo")
    command = (sys.executable, DEMO) if kind.name == "demo" else kind.command

    def describe(name: ProcessName) -> SandboxSpec:
        home = {"HOME": str(name.home)}
        return SandboxSpec("pool", "boot", name.user, root, name.home, name.door, "", command, home)

    made = Pool(
        kind,
        LocalSandbox(),
        cwd=str(root),
        homes=root / "homes",
        doors=root / "doors",
        describe=describe,
        door=lambda name: nothing,
        open_door=lambda path: UnixListener("agent", path),
        idle_stop=idle_stop,
    )
    yield made
    await made.close()


def talk(context: str, opener: str = "pair:alice", session: str = "") -> Conversation:
    return Conversation(context, opener, "k1", session, "demo" if session else "")


async def session_of(pool: Pool, conversation: Conversation) -> Session:
    async with pool.session(conversation) as session:
        return session


async def test_a_user_has_one_process_and_each_conversation_its_session(tmp_path: Path) -> None:
    async with pool_in(tmp_path) as pool:
        one, two = await session_of(pool, talk("a")), await session_of(pool, talk("b"))
        bob = await session_of(pool, talk("a", "pair:bob"))
        assert len({one.id, two.id, bob.id}) == 3
        assert one._agent is two._agent is not bob._agent
        assert sorted(each.name for each in (tmp_path / "homes").iterdir()) == sorted(
            [user_key("pair:alice"), user_key("pair:bob")]
        )
        assert await session_of(pool, talk("a", session=one.id)) is one


async def test_a_conversation_without_its_session_starts_afresh(tmp_path: Path) -> None:
    async with pool_in(tmp_path) as pool:
        one = await session_of(pool, talk("a"))
        assert (await session_of(pool, talk("a"))).id != one.id
        assert (await session_of(pool, talk("b", session="lost"))).id != "lost"


async def test_a_dead_process_is_replaced_and_its_sessions_restored(tmp_path: Path) -> None:
    async with pool_in(tmp_path) as pool:
        one = await session_of(pool, talk("a"))
        await one.stop_process()
        again = await session_of(pool, talk("a", session=one.id))
        assert again is not one
        assert again.id == one.id


async def test_the_sessions_unused_for_longest_make_room(tmp_path: Path) -> None:
    kind = replace(AgentKind.load("demo"), open_sessions=2)
    async with pool_in(tmp_path, kind) as pool:
        ids = {name: (await session_of(pool, talk(name))).id for name in "ab"}
        a = await session_of(pool, talk("a", session=ids["a"]))
        await session_of(pool, talk("c"))
        assert await session_of(pool, talk("a", session=ids["a"])) is a
        restored = await session_of(pool, talk("b", session=ids["b"]))
        assert restored.id == ids["b"]


async def test_a_session_in_use_is_never_closed_to_make_room(tmp_path: Path) -> None:
    kind = replace(AgentKind.load("demo"), open_sessions=1)
    async with pool_in(tmp_path, kind) as pool, pool.session(talk("a")) as held:
        await session_of(pool, talk("b"))
        assert await session_of(pool, talk("c"))
        slot = next(iter(pool._slots.values()))
        assert slot.sessions["a"] is held


async def test_an_idle_process_stops_by_itself(tmp_path: Path) -> None:
    async with pool_in(tmp_path, idle_stop=0.05) as pool:
        session = await session_of(pool, talk("a"))
        await session._agent.process.wait()
        restored = await session_of(pool, talk("a", session=session.id))
        assert restored.id == session.id


@pytest.mark.parametrize("command", [("/no/such/agent",), (sys.executable, "-c", "raise SystemExit(3)")])
async def test_what_cannot_start_leaves_nothing_behind(tmp_path: Path, command: tuple[str, ...]) -> None:
    kind = AgentKind("broken", "Broken", command)
    async with pool_in(tmp_path, kind) as pool:
        for _ in range(2):
            with pytest.raises((SandboxUnavailable, AgentFailure)) as raised:
                await session_of(pool, talk("a"))
            assert raised.value.sentence
    assert not pids_of(str(tmp_path))


@pytest.mark.parametrize(("one", "other"), [("pair:a b", "pair:a-b"), ("a" * 80, "a" * 81), ("pair:ä", "pair:ö")])
def test_a_users_key_is_safe_short_and_their_own(one: str, other: str) -> None:
    keys = {user_key(one), user_key(other)}
    assert len(keys) == 2
    assert all(len(key) <= 33 and key.replace("-", "").isalnum() and key.isascii() for key in keys)
