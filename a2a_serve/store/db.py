"""One SQLite file, written by one thread.

Not aiosqlite, which commits for one caller at a time and whose thread keeps a process alive that forgot to close.
Here a writer thread takes everything queued, runs it in one transaction and commits once (group commit), so that
`synchronous=FULL` costs one fsync for all callers that wait. Reads have a second thread and a connection of their own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from a2a_serve.store import schema
from a2a_serve.store.worker import Work, Worker

T = TypeVar("T")

QUEUE_LIMIT = 4096


class Database:
    """The opened file. Use it in the event loop that opened it.

    Work is a plain function of a connection. It must not begin, commit or roll back, and it may still be run after its
    caller was cancelled.
    """

    def __init__(self, path: Path, migrations: Sequence[str], queue_limit: int) -> None:
        self.path = path
        self._migrations = migrations
        worker = partial(Worker, limit=queue_limit, explain=partial(schema.as_serve_error, path=path))
        self._writer = worker("store-writer", connect=self._connect, begin="BEGIN IMMEDIATE")
        self._reader = worker("store-reader", connect=partial(schema.connect_query_only, path), begin="BEGIN")

    @classmethod
    async def open(
        cls, path: Path, *, migrations: Sequence[str] | None = None, queue_limit: int = QUEUE_LIMIT
    ) -> Database:
        """Open `path`, made or migrated where need be. `migrations` are the package's own unless given.

        Raises StateCorrupt (the file is left as it was), SchemaNewer, DirectoryNotWritable, DiskFull.
        """
        database = cls(path, schema.shipped_migrations() if migrations is None else migrations, queue_limit)
        await database._writer.start()
        try:
            await database._reader.start()
        except BaseException:
            await database._writer.stop()
            raise
        return database

    async def write(self, work: Work[T]) -> T:
        """Run `work` and return its result once it is on disk.

        What `work` raises undoes it alone. Raises DiskFull (later writes work again once there is room), StoreBusy.
        """
        return await self._writer.submit(work)

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one moment of the database, which has every write that returned before. Raises StoreBusy."""
        return await self._reader.submit(work)

    async def close(self) -> None:
        """Finish what is queued and end both threads. The writer is last: it folds the log into the file."""
        await self._reader.stop()
        await self._writer.stop()

    def _connect(self) -> sqlite3.Connection:
        schema.prepare(self.path, self._migrations)
        return schema.connect(self.path)
