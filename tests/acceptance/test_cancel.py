"""Story: a task is canceled while it works, while it asks, or before it began; nothing of it runs on."""

from __future__ import annotations

import pytest
from acceptance.project import Project, eventually
from serving import Refused, is_waiting, questions_of, state_of, text_of

MARK = "sleep 1234.5"


def is_running(project: Project) -> bool:
    """Whether the command runs, wherever: a container's processes are in /proc too."""
    return any(MARK in line for line in project.command_lines())


@pytest.mark.req("T5")
async def test_cancel_ends_the_command_that_runs(project: Project) -> None:
    await project.start()
    owner = await project.caller()
    task = await owner.send(f"say I begin\nrun {MARK}; touch never.txt\nsay too late")
    await project.must("answer", questions_of(task)[0]["questionId"], "allow")
    assert await eventually(lambda: is_running(project))
    canceled = await owner.cancel(task["id"])
    assert state_of(canceled) == "canceled"
    assert not is_running(project), "nothing runs after `canceled`"
    assert "I begin" in text_of(canceled)
    assert "too late" not in text_of(canceled)
    assert not (project.root / "never.txt").exists()
    with pytest.raises(Refused):
        await owner.cancel(task["id"])
    assert state_of(await owner.send("say still here", contextId=task["contextId"])) == "completed"


@pytest.mark.req("T5", "Q9")
async def test_cancel_while_it_asks_withdraws_the_question_at_every_prompt(project: Project) -> None:
    await project.start()
    async with project.terminal("send", "run touch never.txt") as person:
        await person.until("allow? [y/n/words] ")
        (question,) = await project.questions()
        owner = await project.caller()
        assert state_of(await owner.cancel(question["taskId"])) == "canceled"
        assert "Canceled" in await person.until("State: canceled")
        assert await person.ended() == 0
    assert await project.questions() == []
    late = await project.run("answer", question["id"], "allow")
    assert (late.code, "turn has ended" in late.err) == (1, True)
    assert not (project.root / "never.txt").exists()


@pytest.mark.req("T1", "T5")
async def test_what_waits_behind_another_turn_is_canceled_at_once(plain: Project) -> None:
    await plain.start()
    owner = await plain.caller()
    first = await owner.send("run echo first", contextId="c1")
    second = await owner.send("run touch never.txt", wait=False, contextId="c1")
    assert state_of(await owner.cancel(second["id"])) == "canceled"
    assert is_waiting(await owner.get(first["id"]))
    assert state_of(await owner.answer(first, "allow")) == "completed"
    assert not (plain.root / "never.txt").exists()
