"""Story: a change is asked for, shown whole, approved at the prompt, and made; by nobody but the folder's owner."""

from __future__ import annotations

import pytest
from acceptance.project import Project
from serving import is_waiting, questions_of, state_of, text_of


@pytest.mark.req("Q1", "Q2", "T3")
async def test_a_person_sees_the_diff_says_y_and_the_file_changes(project: Project) -> None:
    await project.start()
    readme = project.root / "README.md"
    async with project.terminal("send", "say I will change it\nwrite README.md new title\nsay that was all") as person:
        asked = await person.until("allow? [y/n/words] ")
        assert "I will change it" in asked
        assert "-old title" in asked
        assert "+new title" in asked
        assert readme.read_text(encoding="utf-8") == "old title\n"
        person.type("y\n")
        told = await person.until("State: completed")
        assert await person.ended() == 0
    assert "that was all" in told
    assert readme.read_text(encoding="utf-8") == "new title"
    assert (readme.stat().st_uid, readme.stat().st_gid) == (project.root.stat().st_uid, project.root.stat().st_gid)
    assert (await project.status())["tasks"] == {"open": 0}


@pytest.mark.req("Q1")
async def test_two_changes_are_two_questions(project: Project) -> None:
    await project.start()
    async with project.terminal("send", "write a.txt one\nrun echo two > b.txt") as person:
        await person.until("allow? [y/n/words] ")
        person.type("y\n")
        assert "echo two > b.txt" in await person.until("allow? [y/n/words] ")
        assert (project.root / "a.txt").read_text(encoding="utf-8") == "one"
        assert not (project.root / "b.txt").exists()
        person.type("yes\n")
        await person.until("State: completed")
    assert (project.root / "b.txt").read_text(encoding="utf-8") == "two\n"


@pytest.mark.req("Q3", "A5")
async def test_a_program_answers_by_data_and_gets_the_diff(project: Project) -> None:
    await project.start()
    owner = await project.caller()
    task = await owner.send("write README.md new title")
    assert is_waiting(task)
    (question,) = questions_of(task)
    assert {"kind", "title", "digest", "path", "diff"} <= set(question["action"])
    assert {"id", "kind", "name"} == set(question["options"][0])
    assert question["expiresAt"].endswith("Z")
    done = await owner.answer(task, "allow")
    assert state_of(done) == "completed"
    assert "+new title" in text_of(done, "diff:README.md")


async def test_off_a_terminal_nothing_is_asked_but_told_how_to_answer(project: Project) -> None:
    await project.start()
    ran = await project.must("send", "write README.md new title", text="y\n")
    (question,) = await project.questions()
    assert "+new title" in ran.out
    told = next(line for line in ran.out.splitlines() if line.startswith("Answer: a2a-serve ")).split()
    assert told[2:] == ["answer", question["id"], "allow|deny"]
    assert (project.root / "README.md").read_text(encoding="utf-8") == "old title\n"
    await project.must("answer", question["id"], "allow")
    assert "completed" in (await project.must("send", "--task-id", question["taskId"])).err
    assert (project.root / "README.md").read_text(encoding="utf-8") == "new title"
