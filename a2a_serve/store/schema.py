"""The database file before it is used: made, checked, migrated. Nothing here ever deletes or repairs one (R3)."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from importlib import resources
from pathlib import Path

from a2a_serve.core.errors import DirectoryNotWritable, DiskFull, SchemaNewer, ServeError, StateCorrupt

APPLICATION_ID = int.from_bytes(b"a2as", "big")

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_UNREADABLE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}
_FORBIDDEN = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


def shipped_migrations() -> tuple[str, ...]:
    """The package's SQL scripts in order: the first makes version 1 of an empty database."""
    folder = resources.files("a2a_serve.store") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(file.read_text(encoding="utf-8") for file in files)


def prepare(path: Path, migrations: Sequence[str]) -> None:
    """Make `path` a checked database of the newest version.

    Raises StateCorrupt (the file is left as it is, byte for byte), SchemaNewer, DirectoryNotWritable, DiskFull.
    """
    try:
        if not path.exists():
            _create(path, migrations)
            return
        version = _inspect(path)
        if version > len(migrations):
            raise SchemaNewer(
                f"{path} was made by a newer a2a-serve: its schema is {version}, this one knows {len(migrations)}.",
                "Install that version again, or put back the copy that it made before it migrated.",
            )
        if version < len(migrations):
            _migrate_existing(path, migrations, version)
    except (sqlite3.Error, OSError) as error:
        raise _why_not_opened(error, path) from error


def connect(path: Path) -> sqlite3.Connection:
    """The one connection that writes and checkpoints (SQLite before 3.51.3 can corrupt a WAL that two reset)."""
    connection = _open(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    return connection


def connect_query_only(path: Path) -> sqlite3.Connection:
    connection = _open(path)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def as_serve_error(error: Exception, path: Path) -> Exception:
    """What an error of SQLite or the file system means to people; itself where that is nothing special."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if _is_full(error, code, path):
        return DiskFull(
            f"The disk that holds {path} is full.", "Make room: nothing is lost, and work goes on by itself."
        )
    if code in _UNREADABLE:
        return _corrupt(path, f"cannot be read ({error})")
    return error


def _is_full(error: Exception, code: int, path: Path) -> bool:
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM
    if code == sqlite3.SQLITE_IOERR:  # all that SQLite says when the log's index finds no room
        disk = os.statvfs(path.parent)
        return disk.f_bavail * disk.f_frsize < 65536
    return code == sqlite3.SQLITE_FULL


def _why_not_opened(error: Exception, path: Path) -> Exception:
    forbidden = getattr(error, "sqlite_errorcode", 0) & 0xFF in _FORBIDDEN
    if forbidden or isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError):
        return DirectoryNotWritable(f"{path} cannot be written ({error}).", "Check its folder's owner and rights.")
    return as_serve_error(error, path)


def _open(path: Path, mode: str = "rw") -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=5)


def _corrupt(path: Path, what: str) -> ServeError:
    hint = "Nothing was changed. Put back a copy, or move the file away to begin anew."
    return StateCorrupt(f"{path} {what}.", hint)


def _create(path: Path, migrations: Sequence[str]) -> None:
    """Made beside and renamed, so that a crash leaves either nothing or a whole database."""
    if (log := _beside(path, "-wal")).exists() and log.stat().st_size:
        raise _corrupt(path, "is gone, but its log is still there")
    fresh = _beside(path, ".new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(_open(fresh)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _migrate(connection, migrations, 0)
    _rename(fresh, path)


def _inspect(path: Path) -> int:
    """The schema version of a sound database. Read-only, so that not even an old log is written back."""
    if not path.is_file() or not path.stat().st_size:
        raise _corrupt(path, "is empty or not a file")
    with closing(_open(path, "ro")) as connection:
        if _number(connection, "application_id") != APPLICATION_ID:
            raise _corrupt(path, "is not a database of a2a-serve")
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _corrupt(path, f"is damaged ({' '.join(str(verdict).split())})")
        return _number(connection, "user_version")


def _migrate_existing(path: Path, migrations: Sequence[str], version: int) -> None:
    with closing(_open(path)) as connection:
        _copy(connection, path, version)
        _migrate(connection, migrations, version)


def _copy(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """A whole copy as `server.db.v1` before the migration from version 1."""
    fresh = _beside(path, ".copy")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(_open(fresh)) as copy:
        connection.backup(copy)
    _rename(fresh, _beside(path, f".v{version}"))


def _migrate(connection: sqlite3.Connection, migrations: Sequence[str], version: int) -> None:
    """One transaction each. Foreign keys are off, as rebuilding a table needs it, and checked before the commit."""
    for number, script in enumerate(migrations[version:], version + 1):
        try:
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}")
            if connection.execute("PRAGMA foreign_key_check").fetchone():
                raise StateCorrupt(
                    f"Migration {number} would leave rows that refer to nothing.", "Nothing was changed."
                )
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    (value,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(value)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _rename(fresh: Path, path: Path) -> None:
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
