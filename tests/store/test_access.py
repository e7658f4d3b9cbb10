"""Pairings: found by digest, never twice by one name, gone at once when revoked."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from a2a_serve.core.errors import UsageError
from a2a_serve.core.model import Pairing, Role
from a2a_serve.store.access import Pairings
from a2a_serve.store.db import Database

ONE, TWO = b"1" * 32, b"2" * 32


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pairings(db: Database, clock: Clock) -> Pairings:
    return Pairings(db, clock)


async def test_a_pairing_is_found_by_its_digest_only(pairings: Pairings) -> None:
    await pairings.add("alice", Role.USER, ONE, 10.5)
    assert await pairings.find(ONE) == Pairing("alice", Role.USER, 10.5)
    assert await pairings.find(TWO) is None
    assert await pairings.find(b"") is None
    assert await pairings.find(ONE[:-1]) is None


@pytest.mark.parametrize("name", ["alice", "Alice", "ALICE"])
async def test_a_name_is_given_out_once(pairings: Pairings, name: str) -> None:
    await pairings.add("alice", Role.USER, ONE, 1)
    with pytest.raises(UsageError):
        await pairings.add(name, Role.OWNER, TWO, 2)
    assert await pairings.revoke("alice", 3)
    with pytest.raises(UsageError):  # its tasks still belong to it
        await pairings.add(name, Role.OWNER, TWO, 4)
    assert await pairings.find(TWO) is None


async def test_of_twenty_at_once_one_gets_the_name(pairings: Pairings) -> None:
    calls = (pairings.add("alice", Role.USER, bytes([n]), 1) for n in range(20))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results.count(None) == 1
    assert sum(isinstance(result, UsageError) for result in results) == 19
    assert len(await pairings.list()) == 1


async def test_a_digest_belongs_to_one_name(pairings: Pairings) -> None:
    await pairings.add("alice", Role.USER, ONE, 1)
    with pytest.raises(sqlite3.IntegrityError):
        await pairings.add("bob", Role.USER, ONE, 1)


@pytest.mark.req("I2")
async def test_a_revoked_pairing_is_gone_at_once(pairings: Pairings) -> None:
    await pairings.add("alice", Role.USER, ONE, 1)
    assert await pairings.find(ONE)
    assert await pairings.revoke("Alice", 5) is True
    assert await pairings.find(ONE) is None
    assert await pairings.revoke("alice", 6) is False
    assert await pairings.revoke("nobody", 6) is False
    assert await pairings.list() == [Pairing("alice", Role.USER, 1, 1000, 5)]


async def test_the_last_use_is_written_at_most_once_a_minute(pairings: Pairings, db: Database, clock: Clock) -> None:
    await pairings.add("alice", Role.USER, ONE, 1)
    statements: list[str] = []
    await db.write(lambda connection: connection.set_trace_callback(statements.append))
    for clock.now in (1000, 1001, 1059, 1060, 1061):
        await pairings.find(ONE)
    assert sum(statement.startswith("UPDATE pairings") for statement in statements) == 2
    assert [each.last_used_at for each in await pairings.list()] == [1060]


@pytest.mark.req("R2")
async def test_a_full_disk_keeps_nobody_out(pairings: Pairings, db: Database) -> None:
    await pairings.add("alice", Role.USER, ONE, 1)

    def fill(connection: sqlite3.Connection) -> None:
        """A use then needs more room than the file may take."""
        connection.execute(
            "CREATE TEMP TRIGGER more AFTER UPDATE ON pairings "
            "BEGIN INSERT INTO conversations (owner, context_id) VALUES (hex(zeroblob(100000)), ''); END"
        )
        connection.execute("PRAGMA max_page_count = 1").fetchall()

    await db.write(fill)
    assert await pairings.find(ONE) == Pairing("alice", Role.USER, 1)
    assert [each.last_used_at for each in await pairings.list()] == [None]


async def test_pairings_are_listed_oldest_first(pairings: Pairings) -> None:
    await pairings.add("b", Role.USER, ONE, 1)
    await pairings.add("a", Role.OWNER, TWO, 2)
    assert await pairings.list() == [Pairing("b", Role.USER, 1), Pairing("a", Role.OWNER, 2)]
