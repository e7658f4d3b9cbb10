"""The file before it is used: made whole, copied before a migration, refused untouched when something is wrong (R3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from a2a_serve.core.errors import DirectoryNotWritable, SchemaNewer, StateCorrupt
from a2a_serve.store import schema
from a2a_serve.store.db import Database

FIRST = "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;"
SECOND = "ALTER TABLE notes ADD COLUMN author TEXT NOT NULL DEFAULT 'me';"


async def made(path: Path, *migrations: str, notes: int = 1) -> None:
    db = await Database.open(path, migrations=migrations)
    for _ in range(notes):
        await db.write(lambda connection: connection.execute("INSERT INTO notes (text) VALUES (hex(randomblob(500)))"))
    await db.close()


def facts(path: Path) -> tuple[int, int]:
    """The version and the number of notes."""
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (count,) = connection.execute("SELECT count(*) FROM notes").fetchone()
    return version, count


def test_the_shipped_migrations_are_numbered_without_a_gap() -> None:
    folder = Path(schema.__file__).parent / "migrations"
    numbers = [int(path.name.partition("_")[0]) for path in sorted(folder.glob("*.sql"))]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(schema.shipped_migrations()) == len(numbers)


async def test_every_shipped_table_is_strict(tmp_path: Path) -> None:
    await (await Database.open(tmp_path / "server.db")).close()
    with closing(sqlite3.connect(tmp_path / "server.db")) as connection:
        tables = connection.execute(
            "SELECT name, strict FROM pragma_table_list WHERE name NOT LIKE 'sqlite_%'"
        ).fetchall()
    assert {name for name, _ in tables} == {"tasks", "messages", "conversations", "questions", "pairings"}
    assert all(strict for _, strict in tables)


@pytest.mark.req("R3")
async def test_a_migration_keeps_a_copy_of_what_was(tmp_path: Path) -> None:
    path = tmp_path / "server.db"
    await made(path, FIRST, notes=3)
    await made(path, FIRST, SECOND)
    assert facts(path) == (2, 4)
    copy = tmp_path / "server.db.v1"
    assert facts(copy) == (1, 3)
    assert copy.stat().st_mode & 0o777 == 0o600
    await made(copy, FIRST)  # the copy is itself a database of the older version


async def test_no_copy_without_a_migration(tmp_path: Path) -> None:
    await made(tmp_path / "server.db", FIRST)
    await made(tmp_path / "server.db", FIRST)
    assert [path.name for path in tmp_path.iterdir()] == ["server.db"]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("DELETE FROM notes; CREATE NONSENSE;", sqlite3.OperationalError),
        (
            "CREATE TABLE marks (note INTEGER REFERENCES notes (id)) STRICT; INSERT INTO marks VALUES (99);",
            StateCorrupt,
        ),
    ],
)
async def test_a_migration_that_fails_changes_nothing(tmp_path: Path, script: str, error: type[Exception]) -> None:
    path = tmp_path / "server.db"
    await made(path, FIRST, notes=2)
    with pytest.raises(error):
        await Database.open(path, migrations=(FIRST, SECOND, script))
    assert facts(path) == (2, 2)  # the second migration is a step of its own
    assert facts(tmp_path / "server.db.v1") == (1, 2)


@pytest.mark.req("R3")
async def test_a_newer_schema_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "server.db"
    await made(path, FIRST, SECOND)
    before = path.read_bytes()
    with pytest.raises(SchemaNewer) as refused:
        await Database.open(path, migrations=(FIRST,))
    assert refused.value.exit_status == 78
    assert "2" in refused.value.sentence
    assert path.read_bytes() == before


def not_a_database(path: Path) -> None:
    path.write_bytes(b"these are not the rows you are looking for\n" * 300)


def of_another_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE tasks (id TEXT)")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10_000])


def damaged_inside(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[8192:16384] = b"\xff" * 8192
    path.write_bytes(whole)


def gone_but_its_log(path: Path) -> None:
    path.unlink()
    path.with_name("server.db-wal").write_bytes(b"frames")


BROKEN = [not_a_database, of_another_program, empty, cut, damaged_inside, gone_but_its_log]


@pytest.mark.req("R3")
@pytest.mark.parametrize("breaking", BROKEN)
async def test_a_broken_file_is_refused_and_left_as_it_is(tmp_path: Path, breaking: Callable[[Path], None]) -> None:
    path = tmp_path / "server.db"
    await made(path, FIRST, notes=50)
    breaking(path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    for _ in range(2):
        with pytest.raises(StateCorrupt) as refused:
            await Database.open(path, migrations=(FIRST,))
        assert refused.value.exit_status == 65
        assert str(path) in refused.value.sentence
        assert refused.value.hint
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


async def test_a_refused_file_with_a_log_is_not_even_checkpointed(tmp_path: Path) -> None:
    path, left = tmp_path / "server.db", tmp_path / "left"
    left.mkdir()
    db = await Database.open(path, migrations=(FIRST,))
    await db.write(lambda connection: connection.execute("INSERT INTO notes (text) VALUES ('logged')"))
    for each in tmp_path.glob("server.db*"):  # as a kill leaves them
        (left / each.name).write_bytes(each.read_bytes())
    await db.close()
    assert (left / "server.db-wal").stat().st_size
    (left / "server.db-shm").unlink()
    broken = left / "server.db"
    broken.write_bytes(broken.read_bytes() + b"\xff" * 4096)
    with closing(sqlite3.connect(f"{broken.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT text FROM notes").fetchall() == [("logged",)]
    before = {each.name: each.read_bytes() for each in left.iterdir()}
    with pytest.raises(SchemaNewer):
        await Database.open(broken, migrations=())
    after = {name: (left / name).read_bytes() for name in before}
    assert {name for name in before if name != "server.db-shm" and before[name] != after[name]} == set()


async def test_a_crash_while_making_the_file_does_not_block_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "server.db.new").write_bytes(b"half a databa")
    await made(tmp_path / "server.db", FIRST)
    assert [path.name for path in tmp_path.iterdir()] == ["server.db"]


async def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(DirectoryNotWritable) as refused:
        await Database.open(tmp_path / "nowhere" / "server.db")
    assert refused.value.exit_status == 73


async def test_a_folder_in_place_of_the_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "server.db").mkdir()
    with pytest.raises(StateCorrupt, match="not a file"):
        await Database.open(tmp_path / "server.db")
