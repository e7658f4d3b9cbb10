"""Tasks and the messages that made them: committed together, seen by their owner only, listed in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import Task, TaskState
from google.protobuf.timestamp_pb2 import Timestamp

from a2a_serve.core.errors import MessageReused
from a2a_serve.store import tasks as module
from a2a_serve.store.db import Database
from a2a_serve.store.tasks import Tasks

MakeTask = Callable[..., Task]

ONE, TWO = b"1" * 32, b"2" * 32
ALICE, BOB = "pair:alice", "pair:bob"


@pytest.fixture
def tasks(db: Database) -> Tasks:
    return Tasks(db)


async def test_a_created_task_comes_back_whole(tasks: Tasks, make_task: MakeTask) -> None:
    task = make_task("t", text="hello \x00 ✓", at=1_700_000_000_123)
    task.metadata["k"] = [1, "two", None]
    assert await tasks.create(task, ALICE, "m", ONE) is None
    assert await tasks.get("t", ALICE) == task
    assert await tasks.owner_of("t") == ALICE


@pytest.mark.req("A6")
async def test_a_task_of_another_is_as_one_that_is_not_there(tasks: Tasks, make_task: MakeTask) -> None:
    await tasks.create(make_task("t"), ALICE, "m", ONE)
    assert await tasks.get("t", BOB) is None
    assert await tasks.get("nowhere", BOB) is None
    assert await tasks.get("t", "") is None
    assert (await tasks.list(BOB)).total == 0
    assert await tasks.get("t", None) == make_task("t")
    assert await tasks.owner_of("nowhere") is None


@pytest.mark.req("A7")
async def test_a_repeated_message_is_its_first_task(tasks: Tasks, make_task: MakeTask) -> None:
    await tasks.create(make_task("t1"), ALICE, "m", ONE)
    assert await tasks.create(make_task("t2"), ALICE, "m", ONE) == "t1"
    with pytest.raises(MessageReused):
        await tasks.create(make_task("t3"), ALICE, "m", TWO)
    assert await tasks.create(make_task("t4"), BOB, "m", TWO) is None  # another caller's ids are their own
    assert [await tasks.owner_of(each) for each in ("t1", "t2", "t3", "t4")] == [ALICE, None, None, BOB]


@pytest.mark.req("A7")
async def test_twenty_at_once_make_one_task(tasks: Tasks, make_task: MakeTask) -> None:
    answers = await asyncio.gather(*(tasks.create(make_task(f"t{n}"), ALICE, "m", ONE) for n in range(20)))
    assert answers == [None] + ["t0"] * 19
    assert (await tasks.list(ALICE)).total == 1


@pytest.mark.req("A7")
async def test_twenty_at_once_with_other_bodies(tasks: Tasks, make_task: MakeTask) -> None:
    calls = (tasks.create(make_task(f"t{n}"), ALICE, "m", bytes([n])) for n in range(20))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers[0] is None
    assert all(isinstance(answer, MessageReused) for answer in answers[1:])
    assert (await tasks.list(ALICE)).total == 1


async def test_a_task_id_twice_stores_neither_task_nor_message(tasks: Tasks, make_task: MakeTask) -> None:
    await tasks.create(make_task("t"), ALICE, "m1", ONE)
    with pytest.raises(Exception, match="UNIQUE"):
        await tasks.create(make_task("t"), ALICE, "m2", ONE)
    assert await tasks.create(make_task("t2"), ALICE, "m2", ONE) is None


@pytest.mark.req("A7")
async def test_an_answer_counts_once(tasks: Tasks, make_task: MakeTask) -> None:
    await tasks.create(make_task("t"), ALICE, "m", ONE)
    await tasks.create(make_task("u"), ALICE, "n", ONE)
    assert sorted(await asyncio.gather(*(tasks.note(ALICE, "a", TWO, "t") for _ in range(20)))) == [False] * 19 + [True]
    with pytest.raises(MessageReused):
        await tasks.note(ALICE, "a", ONE, "t")
    with pytest.raises(MessageReused):
        await tasks.note(ALICE, "a", TWO, "u")
    assert await tasks.note(ALICE, "m", ONE, "t") is False  # the message that made the task, again
    assert await tasks.note(BOB, "a", ONE, "t") is True


async def test_save_takes_the_task_as_it_is_at_the_call(tasks: Tasks, make_task: MakeTask) -> None:
    task = make_task("t", text="one")
    await tasks.create(task, ALICE, "m", ONE)
    task.artifacts[0].parts[0].text = "two"
    saving = asyncio.ensure_future(tasks.save(task))
    await asyncio.sleep(0)
    task.artifacts[0].parts[0].text = "three"
    await saving
    assert await tasks.get("t", ALICE) == make_task("t", text="two")


async def test_saving_what_was_never_created_is_an_error(tasks: Tasks, make_task: MakeTask) -> None:
    with pytest.raises(LookupError):
        await tasks.save(make_task("t"))
    assert await tasks.owner_of("t") is None


async def test_tasks_outlive_the_process(tmp_path: Path, make_task: MakeTask) -> None:
    path = tmp_path / "other.db"
    first = await Database.open(path)
    await Tasks(first).create(make_task("t", text="kept"), ALICE, "m", ONE)
    await first.close()
    second = await Database.open(path)
    assert await Tasks(second).get("t", ALICE) == make_task("t", text="kept")
    assert await Tasks(second).create(make_task("t2"), ALICE, "m", ONE) == "t"
    await second.close()


@pytest.mark.parametrize("state", TaskState.values())
@pytest.mark.req("R1")
async def test_open_tasks_are_all_but_the_ended(tasks: Tasks, make_task: MakeTask, state: int) -> None:
    ended = TaskState.Name(state) in {
        "TASK_STATE_COMPLETED",
        "TASK_STATE_FAILED",
        "TASK_STATE_CANCELED",
        "TASK_STATE_REJECTED",
    }
    await tasks.create(make_task("old", at=1), BOB, "m0", ONE)
    await tasks.create(make_task("t", at=2), ALICE, "m", ONE)
    await tasks.save(make_task("t", at=3, state=state))
    expected = [(BOB, make_task("old", at=1))] + ([] if ended else [(ALICE, make_task("t", at=3, state=state))])
    assert await tasks.open_tasks() == expected
    assert await tasks.count_open() == len(expected)


# --- lists -----------------------------------------------------------------------------------------------------------


async def store(tasks: Tasks, *stored: Task, owner: str = ALICE) -> None:
    await asyncio.gather(*(tasks.create(task, owner, f"m-{task.id}", ONE) for task in stored))


async def ids_of_all_pages(tasks: Tasks, size: int) -> list[str]:
    ids, token = [], ""
    while True:
        page = await tasks.list(ALICE, page_size=size, page_token=token)
        ids += [task.id for task in page.tasks]
        if not (token := page.next_token):
            return ids


@pytest.mark.req("A5")
@pytest.mark.parametrize("size", [1, 2, 3, 7, 9, 10, 50])
async def test_pages_show_each_task_once_newest_first(tasks: Tasks, make_task: MakeTask, size: int) -> None:
    """Three tasks share each time, so pages also break between equals."""
    await store(tasks, *(make_task(f"t{n}", at=n // 3) for n in range(9)))
    await store(tasks, make_task("of-bob", at=2), owner=BOB)
    assert await ids_of_all_pages(tasks, size) == [f"t{n}" for n in range(8, -1, -1)]


async def test_a_save_moves_a_task_to_the_front(tasks: Tasks, make_task: MakeTask) -> None:
    await store(tasks, *(make_task(f"t{n}", at=n) for n in range(3)))
    await tasks.save(make_task("t0", at=9))
    assert await ids_of_all_pages(tasks, 50) == ["t0", "t2", "t1"]


async def test_filters_and_the_total_of_every_page(tasks: Tasks, make_task: MakeTask) -> None:
    done = TaskState.TASK_STATE_COMPLETED
    await store(
        tasks,
        make_task("a", context_id="x", at=1000),
        make_task("b", context_id="x", at=2000, state=done),
        make_task("c", context_id="y", at=3000, state=done),
    )

    async def ids(**wanted: object) -> list[str]:
        page = await tasks.list(ALICE, **wanted)  # type: ignore[arg-type]
        assert page.total == len(page.tasks)
        return [task.id for task in page.tasks]

    assert await ids(context_id="x") == ["b", "a"]
    assert await ids(state=done) == ["c", "b"]
    assert await ids(state=done, context_id="x") == ["b"]
    assert await ids(after=Timestamp(seconds=2)) == ["c", "b"]
    assert await ids(after=Timestamp(seconds=2, nanos=1)) == ["c"]
    assert await ids(context_id="nowhere") == []
    first = await tasks.list(ALICE, page_size=1)
    second = await tasks.list(ALICE, page_size=1, page_token=first.next_token)
    assert (first.total, second.total) == (3, 3)


@pytest.mark.req("A6")
async def test_a_token_of_another_caller_is_refused(tasks: Tasks, make_task: MakeTask) -> None:
    await store(tasks, make_task("a", at=1), make_task("b", at=2))
    await store(tasks, make_task("c", at=1), make_task("d", at=2), owner=BOB)
    token = (await tasks.list(BOB, page_size=1)).next_token
    assert (await tasks.list(BOB, page_token=token)).tasks
    with pytest.raises(ValueError, match="not a page token"):
        await tasks.list(ALICE, page_token=token)


@pytest.mark.parametrize("token", ["x", "!!!!", "AAAA", "A" * 1000, "ключ", "\ud800", "0", " ", "a\x00b"])
async def test_a_token_that_never_was_is_refused(tasks: Tasks, token: str) -> None:
    with pytest.raises(ValueError, match="not a page token"):
        await tasks.list(ALICE, page_token=token)


async def test_every_cut_or_changed_token_is_refused(tasks: Tasks, make_task: MakeTask) -> None:
    await store(tasks, make_task("a", at=1), make_task("b", at=2))
    token = (await tasks.list(ALICE, page_size=1)).next_token
    for at in range(len(token) - 1):
        for broken in (token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :], token[: at + 1]):
            with pytest.raises(ValueError, match="not a page token"):
                await tasks.list(ALICE, page_token=broken)


async def test_lists_are_answered_from_the_index(db: Database) -> None:
    """5,000 tasks stay under 3 ms a page because neither the count nor the filters read any task's body."""

    def plan(sql: str) -> str:
        return f"EXPLAIN QUERY PLAN {sql}"

    values = {"owner": "", "context_id": "", "state": 0, "after": 0, "updated_at": 0, "id": "", "limit": 1}
    count = await db.read(lambda connection: connection.execute(plan(module._COUNT), values).fetchall())
    page = await db.read(lambda connection: connection.execute(plan(module._PAGE), values).fetchall())
    assert [row[3].split(" (")[0] for row in count] == ["SEARCH tasks USING COVERING INDEX tasks_of_owner"]
    assert [row[3].split(" (")[0] for row in page] == ["SEARCH tasks USING INDEX tasks_of_owner"]
