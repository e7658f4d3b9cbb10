"""A thread that owns one SQLite connection and runs what is queued for it, all of it in one transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from a2a_serve.core.errors import StoreBusy

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


@dataclass(slots=True)
class _Piece:
    """One caller's work and, once it has run, what came of it."""

    work: Work[Any]
    future: asyncio.Future[Any]
    value: Any = None
    error: Exception | None = None


class Worker:
    """`connect` opens the connection, `begin` starts a transaction, `explain` turns SQLite's errors into ours.

    At most `limit` pieces wait. Belongs to the event loop it was made in. The thread is a daemon, so that a process
    which forgot `stop` can still exit.
    """

    def __init__(
        self,
        name: str,
        *,
        connect: Callable[[], sqlite3.Connection],
        begin: str,
        explain: Callable[[Exception], Exception],
        limit: int,
    ) -> None:
        self._connect = connect
        self._begin = begin
        self._explain = explain
        self._limit = limit
        self._waiting = 0
        self._stopping = False
        self._queue: SimpleQueue[_Piece | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def start(self) -> None:
        """Returns when the connection is open. Raises what `connect` raised, explained."""
        self._thread.start()
        try:
            await self._opened
        except BaseException:
            await self.stop()
            raise

    def submit(self, work: Work[T]) -> asyncio.Future[T]:
        """Queue `work`. Raises StoreBusy when too much waits, RuntimeError after `stop`."""
        if self._stopping:
            raise RuntimeError("the database is closed")
        if self._waiting >= self._limit:
            raise StoreBusy("The server has more to store than it can write right now.", "Try again in a moment.")
        self._waiting += 1
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Piece(work, future))
        return future

    async def stop(self) -> None:
        """Run what is queued, close the connection, end the thread."""
        if not self._stopping:
            self._stopping = True
            self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:
            self._in_loop(_settle, self._opened, self._explain(error))
        else:
            self._in_loop(_settle, self._opened)
            with closing(connection):
                while pieces := self._take():
                    self._perform(connection, pieces)
                    self._in_loop(self._deliver, pieces)
        self._in_loop(_settle, self._ended)

    def _take(self) -> list[_Piece]:
        """Everything queued, at least one piece; nothing at the end."""
        pieces: list[_Piece] = []
        for _ in range(max(1, self._queue.qsize())):
            piece = self._queue.get()
            if piece is None:
                if pieces:
                    self._queue.put(None)
                break
            pieces.append(piece)
        return pieces

    def _perform(self, connection: sqlite3.Connection, pieces: list[_Piece]) -> None:
        """All in one transaction. When that cannot be committed, every piece fails."""
        try:
            connection.execute(self._begin)
            for piece in pieces:
                _run_piece(connection, piece)
            connection.execute("COMMIT")
        except Exception as error:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            for piece in pieces:
                piece.error = error
        for piece in pieces:
            if piece.error is not None:
                piece.error = self._explain(piece.error)

    def _in_loop(self, function: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop was closed without `stop`: nobody waits any more
            self._loop.call_soon_threadsafe(function, *args)

    # --- back in the loop --------------------------------------------------------------------------------------------

    def _deliver(self, pieces: list[_Piece]) -> None:
        self._waiting -= len(pieces)
        for piece in pieces:
            _settle(piece.future, piece.error, piece.value)


def _run_piece(connection: sqlite3.Connection, piece: _Piece) -> None:
    """A piece that fails undoes itself alone, unless SQLite has given up the whole transaction (disk full)."""
    connection.execute("SAVEPOINT piece")
    try:
        piece.value = piece.work(connection)
    except Exception as error:
        if not connection.in_transaction:
            raise
        connection.execute("ROLLBACK TO piece")
        piece.error = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
    connection.execute("RELEASE piece")


def _settle(future: asyncio.Future[Any], error: Exception | None = None, value: Any = None) -> None:
    if future.done():  # its caller was cancelled
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
