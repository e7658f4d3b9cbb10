"""Further callers: each a name, a role and the digest of a token (requirements I3, I7)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from a2a_serve.core.errors import ServeError, UsageError
from a2a_serve.core.model import Pairing, Role
from a2a_serve.store.db import Database

USE_NOTED_EVERY = 60.0
"""Seconds: a pairing's last use is stored at most that often, so that signing in costs no write."""

_SELECT = "SELECT name, role, created_at, last_used_at, revoked_at FROM pairings"


class Pairings:
    """`clock` gives seconds since the epoch."""

    def __init__(self, db: Database, clock: Callable[[], float] = time.time) -> None:
        self._db = db
        self._clock = clock

    async def add(self, name: str, role: Role, digest: bytes, now: float) -> None:
        """Store a new pairing. Raises UsageError when the name, in whatever case, was ever given out."""

        def work(connection: sqlite3.Connection) -> None:
            if connection.execute("SELECT 1 FROM pairings WHERE name = ?", (name,)).fetchone():
                raise UsageError(
                    f"The name {name!r} is taken.", "Choose another: a revoked name stays with the tasks it started."
                )
            connection.execute(
                "INSERT INTO pairings (name, role, digest, created_at) VALUES (?, ?, ?, ?)", (name, role, digest, now)
            )

        await self._db.write(work)

    async def find(self, digest: bytes) -> Pairing | None:
        """Whose token has this digest; None when it is unknown or revoked."""

        def work(connection: sqlite3.Connection) -> Pairing | None:
            row = connection.execute(_SELECT + " WHERE digest = ? AND revoked_at IS NULL", (digest,)).fetchone()
            return _pairing(row) if row else None

        found = await self._db.read(work)
        if found is not None:
            await self._note_use(found)
        return found

    async def list(self) -> _Listed:
        """All of them, revoked ones too, oldest first."""

        def work(connection: sqlite3.Connection) -> _Listed:
            return [_pairing(row) for row in connection.execute(_SELECT + " ORDER BY created_at, name")]

        return await self._db.read(work)

    async def revoke(self, name: str, now: float) -> bool:
        """End a pairing at once; False when there is none of that name that is still good."""

        def work(connection: sqlite3.Connection) -> bool:
            changed = connection.execute(
                "UPDATE pairings SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL", (now, name)
            )
            return changed.rowcount == 1

        return await self._db.write(work)

    async def _note_use(self, pairing: Pairing) -> None:
        now = self._clock()
        if pairing.last_used_at is not None and now - pairing.last_used_at < USE_NOTED_EVERY:
            return

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE pairings SET last_used_at = ? WHERE name = ?", (now, pairing.name))

        with suppress(ServeError):  # a full disk keeps nobody out
            await self._db.write(work)


_Listed = list[Pairing]


def _pairing(row: tuple[Any, ...]) -> Pairing:
    name, role, *times = row
    return Pairing(name, Role(role), *times)
