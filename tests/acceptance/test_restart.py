"""Story: the server dies by SIGKILL at any moment. The next start serves, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import httpx
import pytest
from acceptance.project import MakeProject, Project, eventually
from serving import Caller, Json, Refused, is_over, is_waiting, reason_of, state_of, text_of

SECONDS = 8.0
"""Most a start may take after a crash, on a busy machine."""
CONVERSATION = "c1"


async def restart(project: Project) -> Caller:
    """The next start, in bounded time, with nothing left of the server that died."""
    begun = time.monotonic()
    earlier, leftovers = project.containers(), project.processes()
    await project.start()
    assert time.monotonic() - begun < SECONDS
    assert not {each["Id"] for each in earlier} & {each["Id"] for each in project.containers()}
    assert await eventually(lambda: not set(leftovers) & set(project.processes()))
    return await project.caller()


async def must_be_closed(project: Project, owner: Caller, task_id: str) -> None:
    """A task that was open when the server died: failed, with a reason and words, and its question closed."""
    task = await owner.get(task_id)
    assert (state_of(task), reason_of(task)) == ("failed", "server_restarted")
    assert "send the message again" in task["status"]["message"]["parts"][0]["text"]
    assert await project.questions() == []
    assert (await project.status())["tasks"] == {"open": 0}
    with pytest.raises(Refused):
        await owner.send("yes", taskId=task_id)


async def must_remember(owner: Caller, words: str) -> None:
    task = await owner.send("recall", contextId=CONVERSATION)
    assert (state_of(task), words in text_of(task)) == ("completed", True), text_of(task)


@pytest.mark.req("R1", "S8", "T1")
async def test_killed_in_the_middle_of_a_turn(project: Project) -> None:
    await project.start()
    owner = await project.caller()
    await owner.send("say the word is plum", contextId=CONVERSATION)
    lines = "say I begin\nrun echo $$ > shell.pid; sleep 1000\nrun touch never.txt"
    asked = await owner.send(lines, contextId=CONVERSATION)
    following = owner.subscribe(asked["id"])
    await anext(following)
    await project.must("answer", (await project.questions())[0]["id"], "allow")
    assert await eventually((project.root / "shell.pid").exists)
    await project.kill()
    with pytest.raises(httpx.TransportError):
        [event async for event in following]
    owner = await restart(project)
    await must_be_closed(project, owner, asked["id"])
    assert "I begin" in text_of(await owner.get(asked["id"]))
    assert await eventually(lambda: not runs("sleep 1000", project.root))
    await must_remember(owner, "plum")
    assert not (project.root / "never.txt").exists()


@pytest.mark.req("R1", "Q9", "S8")
async def test_killed_while_a_question_waits(project: Project) -> None:
    await project.start()
    owner = await project.caller()
    task = await owner.send("say the word is plum\nrun touch never.txt", contextId=CONVERSATION)
    (question,) = await project.questions()
    await project.kill()
    owner = await restart(project)
    await must_be_closed(project, owner, task["id"])
    late = await project.run("answer", question["id"], "allow")
    assert (late.code, "turn has ended" in late.err) == (1, True)
    await must_remember(owner, "plum")
    assert not (project.root / "never.txt").exists()


@pytest.mark.req("R1", "S8")
async def test_killed_right_after_a_message_was_accepted_and_the_neighbour_sees_nothing(
    folders: MakeProject, sandbox: str
) -> None:
    """At random points, each message told `accepted` is there afterwards; another folder's server goes on."""
    dies, lives = await folders("dies", sandbox), await folders("lives", sandbox)
    await lives.start()
    neighbour = await lives.caller()
    waiting = await neighbour.send("run echo ok > approved.txt\nsay that was all")
    before = (lives.processes(), [each["Id"] for each in lives.containers()])
    chance = random.Random(20261201)
    await dies.start()
    owner = await dies.caller()
    await owner.send("say the word is plum", contextId=CONVERSATION)
    for _ in range(10 if sandbox == "local" else 3):
        accepted = await _accepted_until_killed(dies, owner, chance)
        owner = await restart(dies)
        for number, task_id in accepted.items():
            task = await owner.get(task_id)
            assert is_over(task), task
            assert f"say {number}" in str(task["history"])
            assert state_of(task) == "completed" or reason_of(task) == "server_restarted", task
        assert (dies.last["tasks"], dies.last["questions"]) == ({"open": 0}, {"open": 0})
        await must_remember(owner, "plum")
    assert (lives.processes(), [each["Id"] for each in lives.containers()]) == before
    assert is_waiting(await neighbour.get(waiting["id"]))
    assert state_of(await neighbour.answer(waiting, "allow")) == "completed"
    assert (lives.root / "approved.txt").exists()


async def _accepted_until_killed(project: Project, owner: Caller, chance: random.Random) -> dict[int, str]:
    """Message number -> task id of those that were acknowledged before the server died at a random moment."""
    first = len(project.pids) * 100
    accepted: dict[int, str] = {}

    async def message(number: int) -> None:
        try:
            line = f"say {number}" if number % 3 else f"say {number}\nrun echo {number}"
            accepted[number] = (await owner.send(line, wait=False, contextId=CONVERSATION))["id"]
        except httpx.TransportError:
            return

    sending = [asyncio.create_task(message(first + each)) for each in range(6)]
    await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(chance.uniform(0, 0.2))  # the moment of the crash, not a wait for anything
    await project.kill()
    await asyncio.gather(*sending)
    return accepted


@pytest.mark.req("R1")
async def test_killed_before_anything_was_answered_the_message_may_be_sent_again(plain: Project) -> None:
    """A caller that heard nothing sends the same message again: it runs once."""
    await plain.start()
    owner = await plain.caller()
    params: Json = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "say once"}]}}
    first = asyncio.create_task(owner.rpc("SendMessage", params))
    await asyncio.sleep(0)
    await plain.kill()
    await asyncio.gather(first, return_exceptions=True)
    owner = await restart(plain)
    again = (await owner.rpc("SendMessage", params))["task"]
    assert is_over(again)
    assert [task["id"] for task in (await owner.rpc("ListTasks", {}))["tasks"]] == [again["id"]]


@pytest.mark.req("S8", "R1")
async def test_what_an_agent_left_behind_ends_with_the_next_start(plain: Project) -> None:
    """Even what left the agent's process group and ignores every signal but the last."""
    await plain.start()
    owner = await plain.caller()
    stubborn = "trap '' TERM HUP INT; cd /; echo $$ > \"$OLDPWD/left.pid\"; while :; do sleep 1; done"
    (plain.root / "stubborn.sh").write_text(stubborn, encoding="utf-8")
    command = "setsid sh stubborn.sh & until [ -s left.pid ]; do sleep 0.1; done"
    await owner.answer(await owner.send(f"run {command}"), "allow")
    pid = int((plain.root / "left.pid").read_text(encoding="ascii"))
    await plain.kill()
    await restart(plain)
    assert await eventually(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.req("R1", "R2")
async def test_a_half_written_log_and_leftover_files_do_not_hold_up_a_start(plain: Project) -> None:
    await plain.start()
    await plain.kill()
    state = plain.root / ".a2a/state"
    (state / "logs/server.log").write_bytes(b'{"half": \xff')
    (state / ".secret.key.123").write_bytes(b"")
    (state / "homes/stranger").mkdir()
    owner = await restart(plain)
    assert state_of(await owner.send("say hi")) == "completed"


def runs(words: str, root: Path) -> bool:
    """Whether a process with these words on its command line works in the folder."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if words in line and Path(os.readlink(entry / "cwd")).is_relative_to(root):
                    return True
            except OSError:
                continue
    return False
