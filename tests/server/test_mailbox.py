"""The agent's side is held up, the host's never is, and nothing overtakes."""

from __future__ import annotations

import asyncio

from a2a_serve.core import events as e
from a2a_serve.server.mailbox import Mailbox


async def test_order_is_kept_between_both_sides() -> None:
    box = Mailbox()
    await box.deliver(e.Text("1"))
    box.post(e.CancelRequested())
    await box.deliver(e.Text("2"))
    assert [await box.next(None) for _ in range(3)] == [e.Text("1"), e.CancelRequested(), e.Text("2")]


async def test_a_full_box_holds_the_agent_up_until_half_is_read() -> None:
    box = Mailbox(bound=4)
    for number in range(4):
        await box.deliver(e.Text(str(number)))
    late = asyncio.create_task(box.deliver(e.Text("late")))
    await asyncio.sleep(0)
    assert not late.done()
    box.post(e.DeadlinePassed())
    for _ in range(3):
        await box.next(None)
    await late
    rest = [await box.next(None) for _ in range(3)]
    assert rest == [e.Text("3"), e.DeadlinePassed(), e.Text("late")]


async def test_closing_lets_a_waiting_agent_go() -> None:
    box = Mailbox(bound=1)
    await box.deliver(e.Text("1"))
    waiting = asyncio.create_task(box.deliver(e.Text("2")))
    await asyncio.sleep(0)
    box.close()
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(box.deliver(e.Text("3")), 5)


async def test_none_when_the_time_comes_first() -> None:
    box = Mailbox()
    assert await box.next(asyncio.get_running_loop().time()) is None


async def test_a_waiting_reader_is_woken() -> None:
    box = Mailbox()
    reader = asyncio.create_task(box.next(None))
    await asyncio.sleep(0)
    box.post(e.CancelRequested())
    assert await reader == e.CancelRequested()
