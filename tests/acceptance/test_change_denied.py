"""Story: a change is refused, with words; the words reach the agent, and nothing happens to the folder."""

from __future__ import annotations

import pytest
from acceptance.project import Project
from serving import BAD_AGENT, questions_of, state_of, text_of

WORDS = "better put it into a new file"


@pytest.mark.req("Q3")
async def test_words_at_the_prompt_deny_and_reach_the_agent(project: Project) -> None:
    await project.start()
    async with project.terminal("send", "write README.md new title\nsay I go on") as person:
        await person.until("allow? [y/n/words] ")
        person.type(f"{WORDS}\n")
        told = await person.until("State: completed")
    assert WORDS in told.partition("\n")[2], "what was typed is echoed on the first line; the agent's words come after"
    assert "I go on" in told
    assert (project.root / "README.md").read_text(encoding="utf-8") == "old title\n"


@pytest.mark.req("Q3")
async def test_no_denies_without_words(plain: Project) -> None:
    await plain.start()
    async with plain.terminal("send", "run touch made.txt\nsay I go on") as person:
        await person.until("allow? [y/n/words] ")
        person.type("\n")
        await person.until("allow? [y/n/words] ")
        assert not (plain.root / "made.txt").exists()
        person.type("n\n")
        assert "I go on" in await person.until("State: completed")
    assert not (plain.root / "made.txt").exists()


@pytest.mark.req("Q3")
async def test_a_reason_given_elsewhere_reaches_the_agent(project: Project) -> None:
    await project.start()
    owner = await project.caller()
    await owner.send("run touch made.txt")
    (question,) = await project.questions()
    ran = await project.must("answer", question["id"], "deny", "--reason", WORDS, "-o", "json")
    assert ran.json["state"] == "answered"
    task = await owner.until(question["taskId"], lambda task: state_of(task) == "completed")
    assert WORDS in text_of(task)
    assert not (project.root / "made.txt").exists()


@pytest.mark.req("Q3")
async def test_an_agent_that_hears_no_reason_gets_it_as_the_next_prompt(plain: Project) -> None:
    command = " ".join(BAD_AGENT)
    await plain.start(A2A_SERVE_AGENT__COMMAND=command)
    owner = await plain.caller()
    task = await owner.send("late-input 1")
    (question,) = questions_of(task)
    assert question["action"]["command"] == "echo late"
    done = await owner.send(WORDS, taskId=task["id"])
    assert state_of(done) == "completed"
    assert text_of(done).startswith("n")
    assert done["metadata"]["turns"] == 2
    assert text_of(done, "response-2") == "still here"
