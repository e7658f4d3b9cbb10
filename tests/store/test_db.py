"""The database: one writer, group commit, bounded, and whole after whatever happens (R1, R2)."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from a2a_serve.core.errors import DiskFull, StoreBusy
from a2a_serve.store.db import Database

NOTES = ("CREATE TABLE notes (text TEXT NOT NULL UNIQUE) STRICT;",)


@pytest.fixture
async def notes(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "notes.db", migrations=NOTES)
    yield database
    await database.close()


async def add(db: Database, text: str) -> None:
    await db.write(lambda connection: connection.execute("INSERT INTO notes VALUES (?)", (text,)))


async def all_of(db: Database) -> set[str]:
    return {
        text for (text,) in await db.read(lambda connection: connection.execute("SELECT text FROM notes").fetchall())
    }


@asynccontextmanager
async def writer_held(db: Database) -> AsyncIterator[None]:
    """The writer's thread stands still in here, so that what is queued waits."""
    running, release = threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        running.set()
        assert release.wait(10)

    holding = asyncio.ensure_future(db.write(hold))
    assert await asyncio.to_thread(running.wait, 10)
    try:
        yield
    finally:
        release.set()
        await holding


async def test_a_write_is_seen_by_the_next_read(notes: Database) -> None:
    for text in "abc":
        await add(notes, text)
        assert text in await all_of(notes)


async def test_settings_of_the_file(notes: Database) -> None:
    """WAL and FULL: an acknowledged write survives a power cut (R1)."""

    def settings(connection: sqlite3.Connection) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "application_id", "user_version")
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}

    assert await notes.write(settings) == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "application_id": 0x61326173,
        "user_version": 1,
    }
    assert notes.path.stat().st_mode & 0o777 == 0o600


async def test_writes_that_wait_share_one_commit(notes: Database) -> None:
    statements: list[str] = []
    await notes.write(lambda connection: connection.set_trace_callback(statements.append))
    async with writer_held(notes):
        waiting = [asyncio.ensure_future(add(notes, str(number))) for number in range(20)]
        await asyncio.sleep(0)
        statements.clear()
    await asyncio.gather(*waiting)
    assert len(await all_of(notes)) == 20
    assert [each for each in statements if each.startswith(("BEGIN", "COMMIT"))] == [
        "COMMIT",
        "BEGIN IMMEDIATE",
        "COMMIT",
    ]


async def test_a_failing_piece_spoils_nothing_else(notes: Database) -> None:
    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES ('half')")
        raise KeyError("no")

    async with writer_held(notes):
        pieces = [add(notes, "a"), notes.write(half), add(notes, "a"), add(notes, "b")]
        waiting = [asyncio.ensure_future(piece) for piece in pieces]
        await asyncio.sleep(0)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), KeyError, sqlite3.IntegrityError, type(None)]
    assert await all_of(notes) == {"a", "b"}


async def test_stop_iteration_reaches_its_caller_as_an_error(notes: Database) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await notes.write(lambda connection: next(iter(())))
    await add(notes, "after")


async def test_work_that_ends_the_transaction_fails_and_the_next_works(notes: Database) -> None:
    with pytest.raises(sqlite3.Error):
        await notes.write(lambda connection: connection.execute("ROLLBACK"))
    await add(notes, "after")
    assert await all_of(notes) == {"after"}


async def test_a_cancelled_caller_disturbs_nobody(notes: Database) -> None:
    async with writer_held(notes):
        gone, stays = asyncio.ensure_future(add(notes, "gone")), asyncio.ensure_future(add(notes, "stays"))
        await asyncio.sleep(0)
        gone.cancel()
    await stays
    assert "stays" in await all_of(notes)


async def test_a_full_queue_is_a_clear_error_and_passes(tmp_path: Path) -> None:
    """R2: what cannot be stored in time is refused, not piled up."""
    db = await Database.open(tmp_path / "notes.db", migrations=NOTES, queue_limit=5)
    async with writer_held(db):
        waiting = [asyncio.ensure_future(add(db, str(number))) for number in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(StoreBusy) as refused:
            await add(db, "one too many")
    await asyncio.gather(*waiting)
    assert refused.value.code == "store_busy"
    await add(db, "now")
    assert await all_of(db) == {"0", "1", "2", "3", "now"}
    await db.close()


async def test_reads_cannot_write(notes: Database) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await notes.read(lambda connection: connection.execute("INSERT INTO notes VALUES ('x')"))


async def test_a_read_sees_one_moment(notes: Database) -> None:
    loop = asyncio.get_running_loop()

    def count_twice(connection: sqlite3.Connection) -> list[int]:
        counts = [connection.execute("SELECT count(*) FROM notes").fetchone()[0]]
        asyncio.run_coroutine_threadsafe(add(notes, "between"), loop).result(10)
        return [*counts, connection.execute("SELECT count(*) FROM notes").fetchone()[0]]

    assert await notes.read(count_twice) == [0, 0]
    assert await all_of(notes) == {"between"}


async def test_close_finishes_what_is_queued_and_leaves_no_thread(tmp_path: Path) -> None:
    """F19: an open thread would hang the exit."""
    db = await Database.open(tmp_path / "notes.db", migrations=NOTES)
    async with writer_held(db):
        waiting = [asyncio.ensure_future(add(db, str(number))) for number in range(10)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(db.close())
        await asyncio.sleep(0)
    await closing
    await asyncio.gather(*waiting)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("store-")]
    await db.close()
    with pytest.raises(RuntimeError, match="closed"):
        await add(db, "late")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.db"]


async def test_a_failed_open_leaves_no_thread(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        await Database.open(tmp_path / "notes.db", migrations=("CREATE NONSENSE",))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("store-")]


def test_a_process_that_forgets_to_close_still_exits(tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        "from a2a_serve.store.db import Database\n"
        "asyncio.run(Database.open(pathlib.Path(sys.argv[1])))\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "server.db"], check=True, timeout=20)


async def test_a_full_disk_loses_nothing_and_passes(notes: Database) -> None:
    """R2: SQLITE_FULL refuses the write; once there is room, writing goes on."""
    await add(notes, "before")
    await notes.write(lambda connection: connection.execute("PRAGMA max_page_count = 8").fetchall())
    with pytest.raises(DiskFull) as refused:
        await add(notes, "x" * 100_000)
    assert refused.value.code == "disk_full"
    assert str(notes.path) in refused.value.sentence
    assert await all_of(notes) == {"before"}
    await add(notes, "small")
    await notes.write(lambda connection: connection.execute("PRAGMA max_page_count = 100000").fetchall())
    await add(notes, "y" * 100_000)
    assert await all_of(notes) == {"before", "small", "y" * 100_000}


WRITER = """
import asyncio, pathlib, sys
from a2a_serve.store.db import Database

async def main():
    db = await Database.open(pathlib.Path(sys.argv[1]), migrations=(sys.argv[3],))
    async def write(name):
        for number in range(100000):
            text = f"{sys.argv[2]}-{name}-{number}"
            await db.write(lambda connection: connection.execute("INSERT INTO notes VALUES (?)", (text,)))
            print(text, flush=True)
    await asyncio.gather(*(write(name) for name in range(8)))

asyncio.run(main())
"""


def one_life(path: Path, life: int) -> set[str]:
    """Let a writer acknowledge some lines, kill it, and give all that it acknowledged by then."""
    command = [sys.executable, "-c", WRITER, str(path), str(life), NOTES[0]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        seen = [writer.stdout.readline().strip() for _ in range(1 + 37 * life)]
        os.kill(writer.pid, signal.SIGKILL)
        *whole, _ = writer.stdout.read().split("\n")
    return {*seen, *whole}


@pytest.mark.req("R1")
async def test_kill_9_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    acknowledged = set[str]().union(*(one_life(path, life) for life in range(20)))
    assert len(acknowledged) > 1000
    db = await Database.open(path, migrations=NOTES)
    assert acknowledged <= await all_of(db)
    assert await db.read(lambda connection: connection.execute("PRAGMA integrity_check").fetchone()) == ("ok",)
    await db.close()
