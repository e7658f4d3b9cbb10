"""Story: two people with a token each. They work at once, in processes and homes of their own, unseen by each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from acceptance.project import Project
from serving import Caller, Json, Refused, is_waiting, questions_of, state_of, text_of

NOWHERE = "0123456789abcdef0123456789abcdef"


@pytest.fixture
async def both(project: Project) -> tuple[Caller, Caller]:
    await project.start()
    return await project.caller("alice"), await project.caller("bob")


@pytest.mark.req("T2", "S1")
async def test_each_has_a_process_and_a_home_of_their_own(project: Project, both: tuple[Caller, Caller]) -> None:
    tasks = await asyncio.gather(*(each.send("run echo hello > ~/mine; echo home=$HOME pid=$PPID") for each in both))
    done = await asyncio.gather(*(who.answer(task, "allow") for who, task in zip(both, tasks, strict=True)))
    assert [state_of(task) for task in done] == ["completed", "completed"]
    homes = {path for path in (project.root / ".a2a/state/homes").iterdir() if path.is_dir()}
    if project.sandbox == "docker":
        containers = project.containers()
        mounts = [{each["Source"] for each in one["Mounts"]} for one in containers]
        assert len(containers) == 2
        assert {str(home) for home in homes} <= mounts[0] | mounts[1]
        assert not any(str(home) in mounts[0] & mounts[1] for home in homes)
        assert all((home / "mine").read_text(encoding="utf-8") == "hello\n" for home in homes)
    assert len(homes) == 2
    assert len(project.agents()) == 2


@pytest.mark.req("A6", "I2")
async def test_neither_sees_the_others_task_context_or_question(project: Project, both: tuple[Caller, Caller]) -> None:
    alice, bob = both
    task = await alice.send("say the word is plum\nrun touch alices.txt", contextId="shared")
    question = questions_of(task)[0]["questionId"]
    answer: Json = {"questionId": question, "optionId": "allow"}
    calls: list[Callable[[str], Awaitable[Json]]] = [
        bob.get,
        bob.cancel,
        lambda task_id: bob.send("yes", taskId=task_id),
        lambda task_id: bob.send(data=answer, taskId=task_id),
        lambda task_id: anext(bob.subscribe(task_id)),
    ]
    for call in calls:
        assert await refusal(call(task["id"])) == await refusal(call(NOWHERE))
    assert (await bob.rpc("ListTasks", {}))["tasks"] == []
    assert (await bob.rpc("ListTasks", {"contextId": "shared"}))["tasks"] == []
    assert "plum" not in text_of(await bob.send("recall", contextId="shared"))
    assert len((await bob.rpc("ListTasks", {"contextId": "shared"}))["tasks"]) == 1
    assert is_waiting(await alice.get(task["id"]))
    assert not (project.root / "alices.txt").exists()


@pytest.mark.req("T2")
async def test_one_waits_for_an_answer_and_the_other_is_served(project: Project, both: tuple[Caller, Caller]) -> None:
    alice, bob = both
    waiting = await alice.send("run touch alices.txt")
    asked = await bob.send("run touch bobs.txt")
    (one, other) = await project.questions()
    assert {one["from"], other["from"]} == {"alice", "bob"}
    assert state_of(await bob.answer(asked, "allow")) == "completed"
    assert (project.root / "bobs.txt").exists()
    assert is_waiting(await alice.get(waiting["id"]))
    assert state_of(await alice.answer(waiting, "deny")) == "completed"
    assert not (project.root / "alices.txt").exists()


@pytest.mark.req("Q1")
async def test_the_owner_may_answer_for_both(project: Project, both: tuple[Caller, Caller]) -> None:
    alice, _ = both
    task = await alice.send("run touch alices.txt")
    (question,) = await project.questions()
    await project.must("answer", question["id"], "allow")
    done = await alice.until(task["id"], lambda task: state_of(task) == "completed")
    assert questions_of(done) == []
    assert (project.root / "alices.txt").exists()


@pytest.mark.docker
@pytest.mark.req("S1", "S3")
async def test_an_agent_cannot_read_the_servers_state_or_the_others_home(contained: Project) -> None:
    await contained.start()
    alice, bob = await contained.caller("alice"), await contained.caller("bob")
    await bob.send("say bobs secret")
    look = "ls -A .a2a | wc -l; cat .a2a/state/secret.key; find / -name '*.jsonl' 2>/dev/null | wc -l"
    said = text_of(await alice.answer(await alice.send(f"run {look}"), "allow"))
    assert "secret.key: No such file" in said
    assert [line for line in said.splitlines() if line.isdecimal()] == ["0", "1"], said


async def refusal(call: Awaitable[Json]) -> tuple[int, str, object]:
    with pytest.raises(Refused) as refused:
        await call
    return refused.value.code, refused.value.message, refused.value.data
