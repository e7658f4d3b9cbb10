"""A2A tasks, and the messages that were accepted for them (requirements A5 to A7)."""

from __future__ import annotations

import hashlib
import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Any

from a2a.types.a2a_pb2 import Task, TaskState
from google.protobuf.timestamp_pb2 import Timestamp

from a2a_serve.core.errors import MessageReused
from a2a_serve.store.db import Database

TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)

_FIRST, _LAST = -(2**63), 2**63 - 1
_COUNT = """
SELECT count(*) FROM tasks
WHERE owner = :owner AND updated_at >= :after
    AND (:context_id = '' OR context_id = :context_id) AND (:state = 0 OR state = :state)
"""
_PAGE = """
SELECT updated_at, id, body FROM tasks
WHERE owner = :owner AND updated_at >= :after AND (updated_at, id) < (:updated_at, :id)
    AND (:context_id = '' OR context_id = :context_id) AND (:state = 0 OR state = :state)
ORDER BY updated_at DESC, id DESC LIMIT :limit
"""
_SEAL_LENGTH = 12


@dataclass(frozen=True, slots=True)
class TaskPage:
    """`total` counts all tasks that match, on every page. `next_token` is '' on the last one."""

    tasks: list[Task]
    next_token: str
    total: int


class Tasks:
    """Every task has one owner, the id of the identity that started it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(self, task: Task, owner: str, message_id: str, digest: bytes) -> str | None:
        """Store a new task with the message that starts it; None when both are new.

        A message that came before, with the same `digest` of its content, makes no task: the id of its earlier task is
        returned. Raises MessageReused when the content differs.
        """
        row = _row(task)

        def work(connection: sqlite3.Connection) -> str | None:
            if earlier := _seen(connection, owner, message_id, digest):
                return earlier
            connection.execute(
                "INSERT INTO tasks (id, owner, context_id, state, is_open, updated_at, body) "
                "VALUES (:id, :owner, :context_id, :state, :is_open, :updated_at, :body)",
                {**row, "owner": owner},
            )
            _note(connection, owner, message_id, digest, row["id"])
            return None

        return await self._db.write(work)

    async def note(self, owner: str, message_id: str, digest: bytes, task_id: str) -> bool:
        """Record a message to an existing task: True when it is new, False when it came before.

        Raises MessageReused when it came with other content, or to another task.
        """

        def work(connection: sqlite3.Connection) -> bool:
            if earlier := _seen(connection, owner, message_id, digest):
                if earlier != task_id:
                    raise _reused()
                return False
            _note(connection, owner, message_id, digest, task_id)
            return True

        return await self._db.write(work)

    async def save(self, task: Task) -> None:
        """Store the task as it is at this call. Raises LookupError for a task that was never created."""
        row = _row(task)

        def work(connection: sqlite3.Connection) -> None:
            changed = connection.execute(
                "UPDATE tasks SET state = :state, is_open = :is_open, updated_at = :updated_at, body = :body "
                "WHERE id = :id",
                row,
            )
            if not changed.rowcount:
                raise LookupError(f"no task {row['id']}")

        await self._db.write(work)

    async def get(self, task_id: str, owner: str | None) -> Task | None:
        """The task, if it is the owner's; whoever's it is for None."""

        def work(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute("SELECT owner, body FROM tasks WHERE id = ?", (task_id,)).fetchone()
            return row[1] if row and owner in (None, row[0]) else None

        body = await self._db.read(work)
        return None if body is None else Task.FromString(body)

    async def owner_of(self, task_id: str) -> str | None:
        def work(connection: sqlite3.Connection) -> str | None:
            row = connection.execute("SELECT owner FROM tasks WHERE id = ?", (task_id,)).fetchone()
            return row[0] if row else None

        return await self._db.read(work)

    async def list(
        self,
        owner: str,
        *,
        context_id: str = "",
        state: int = 0,
        after: Timestamp | None = None,
        page_size: int = 50,
        page_token: str = "",
    ) -> TaskPage:
        """One page of the owner's tasks, the last updated first (A2A 1.0, ListTasks).

        `context_id`, `state` (a TaskState) and `after` (status not older than that) narrow it when given. Raises
        ValueError for a `page_token` that was not made for this owner.
        """
        wanted = {
            "owner": owner,
            "context_id": context_id,
            "state": state,
            "after": _FIRST if after is None else after.ToNanoseconds(),
        }
        updated_at, task_id = _open_token(owner, page_token) if page_token else (_LAST, "")
        place = {"updated_at": updated_at, "id": task_id, "limit": page_size + 1}

        def work(connection: sqlite3.Connection) -> tuple[Rows, int]:
            (total,) = connection.execute(_COUNT, wanted).fetchone()
            return connection.execute(_PAGE, {**wanted, **place}).fetchall(), total

        rows, total = await self._db.read(work)
        page = rows[:page_size]
        token = _make_token(owner, *page[-1][:2]) if len(rows) > page_size else ""
        return TaskPage([Task.FromString(body) for _, _, body in page], token, total)

    async def open_tasks(self) -> OwnedTasks:
        """Every task that has not ended, with its owner, the longest untouched first."""

        def work(connection: sqlite3.Connection) -> Rows:
            return connection.execute(
                "SELECT owner, body FROM tasks WHERE is_open = 1 ORDER BY updated_at, id"
            ).fetchall()

        return [(owner, Task.FromString(body)) for owner, body in await self._db.read(work)]

    async def count_open(self) -> int:
        def work(connection: sqlite3.Connection) -> int:
            (count,) = connection.execute("SELECT count(*) FROM tasks WHERE is_open = 1").fetchone()
            return int(count)

        return await self._db.read(work)


Rows = list[Any]
OwnedTasks = list[tuple[str, Task]]


def _row(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "context_id": task.context_id,
        "state": task.status.state,
        "is_open": task.status.state not in TERMINAL,
        "updated_at": task.status.timestamp.ToNanoseconds(),
        "body": task.SerializeToString(),
    }


def _seen(connection: sqlite3.Connection, owner: str, message_id: str, digest: bytes) -> str | None:
    """The task of this message, if it came before."""
    row = connection.execute(
        "SELECT digest, task_id FROM messages WHERE owner = ? AND message_id = ?", (owner, message_id)
    ).fetchone()
    if row is None:
        return None
    if row[0] != digest:
        raise _reused()
    return str(row[1])


def _note(connection: sqlite3.Connection, owner: str, message_id: str, digest: bytes, task_id: str) -> None:
    connection.execute(
        "INSERT INTO messages (owner, message_id, digest, task_id) VALUES (?, ?, ?, ?)",
        (owner, message_id, digest, task_id),
    )


def _reused() -> MessageReused:
    return MessageReused("This message id was already used for another message.", "Send it with a new message id.")


# A token says where the last page ended. Its seal binds it to the owner; it needs no secret, since whoever makes one up
# for themselves sees their own tasks from another place on.


def _make_token(owner: str, updated_at: int, task_id: str) -> str:
    place = f"{updated_at} {task_id}".encode()
    return urlsafe_b64encode(_seal(owner, place) + place).decode().rstrip("=")


def _open_token(owner: str, token: str) -> tuple[int, str]:
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        seal, place = raw[:_SEAL_LENGTH], raw[_SEAL_LENGTH:]
        if seal != _seal(owner, place):
            raise ValueError("sealed for another owner")
        updated_at, task_id = place.decode().split(" ", 1)
        return int(updated_at), task_id
    except ValueError as error:
        raise ValueError("not a page token of this caller") from error


def _seal(owner: str, place: bytes) -> bytes:
    return hashlib.sha256(owner.encode() + b"\0" + place).digest()[:_SEAL_LENGTH]
