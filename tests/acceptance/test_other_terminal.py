"""Story: `send` sits at its question and the answer comes from another terminal; or the person leaves and returns."""

from __future__ import annotations

import json
import shlex

import pytest
from acceptance.project import Project
from acceptance.terminal import CTRL_C
from serving import questions_of


@pytest.mark.req("Q1", "Q4")
async def test_an_answer_elsewhere_continues_the_prompt(project: Project) -> None:
    await project.start()
    async with project.terminal("send", "write README.md new title\nsay that was all") as person:
        await person.until("allow? [y/n/words] ")
        (question,) = await project.questions()
        assert question["from"]
        assert question["action"]["path"] == "README.md"
        assert (await project.must("answer", question["id"], "allow")).out.startswith("Answered: ")
        told = await person.until("State: completed")
        assert await person.ended() == 0
    assert "answered elsewhere" in told
    assert "that was all" in told
    assert (project.root / "README.md").read_text(encoding="utf-8") == "new title"
    assert await project.questions() == []


@pytest.mark.req("Q4")
async def test_of_two_terminals_the_second_learns_that_it_is_settled(plain: Project) -> None:
    await plain.start()
    async with plain.terminal("send", "run echo hi > made.txt\nsay that was all") as first:
        await first.until("allow? [y/n/words] ")
        (question,) = await plain.questions()
        async with plain.terminal("send", "--task-id", question["taskId"]) as second:
            await second.until("allow? [y/n/words] ")
            first.type("y\n")
            await first.until("State: completed")
            assert "that was all" in await second.until("State: completed")
        late = await plain.run("answer", question["id"], "deny")
    assert late.code == 1
    assert "already answered by" in late.err
    assert (plain.root / "made.txt").exists()


async def test_the_next_question_is_asked_at_the_prompt_again(plain: Project) -> None:
    await plain.start()
    async with plain.terminal("send", "run echo one\nrun echo two") as person:
        await person.until("allow? [y/n/words] ")
        (question,) = await plain.questions()
        await plain.must("answer", question["id"], "allow")
        await person.until("answered elsewhere")
        assert "echo two" in await person.until("allow? [y/n/words] ")
        person.type("y\n")
        await person.until("State: completed")


async def test_ctrl_c_leaves_the_task_running_and_says_how_to_come_back(project: Project) -> None:
    await project.start()
    async with project.terminal("send", "run echo hi > made.txt\nsay that was all") as person:
        await person.until("allow? [y/n/words] ")
        person.type(CTRL_C)
        await person.until("To come back: a2a-serve ")
        assert await person.ended() == 130
        command = shlex.split(person.text.rpartition("To come back: a2a-serve ")[2])
    assert (await project.status())["questions"] == {"open": 1}
    async with project.terminal(*command) as person:
        await person.until("allow? [y/n/words] ")
        person.type("y\n")
        assert "that was all" in await person.until("State: completed")
    assert (project.root / "made.txt").exists()


async def test_wrong_answers_change_nothing_and_say_what_is_right(plain: Project) -> None:
    await plain.start()
    task = await (await plain.caller()).send("run echo hi > made.txt")
    question = questions_of(task)[0]["questionId"]
    for words, code, hint in (
        ((question, "perhaps"), 2, "allow"),
        ((question, "always"), 2, "allow"),
        (("0" * 32, "allow"), 1, "a2a-serve questions"),
        (("../status", "allow"), 1, "a2a-serve questions"),
        ((question,), 2, "Usage"),
    ):
        ran = await plain.run("answer", *words)
        assert (ran.code, ran.out) == (code, ""), ran
        assert hint in ran.err
    assert json.loads((await plain.must("questions", "-o", "json")).out)[0]["id"] == question
    assert not (plain.root / "made.txt").exists()
