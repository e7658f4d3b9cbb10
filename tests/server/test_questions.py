"""Questions of an agent that asks oddly, over the wire: what is shown is what is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from serving import (
    BAD_AGENT,
    Json,
    Refused,
    Serving,
    is_over,
    is_waiting,
    questions_of,
    reason_of,
    serving,
    state_of,
    text_of,
)

from a2a_serve.core.approvals import unescape

INVALID = -32602


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path, *BAD_AGENT) as running:
        yield running


async def shows(server: Serving, task: Json, count: int) -> Json:
    """The task once it shows so many questions."""
    return await server.owner.until(task["id"], lambda now: len(questions_of(now)) == count)


def said(task: Json) -> str:
    """What the agent was told, without the words with which it ends every turn."""
    return text_of(task).removesuffix("still here")


@pytest.mark.req("Q3")
async def test_two_open_questions_are_answered_by_their_ids(server: Serving) -> None:
    task = await shows(server, await server.owner.send("many-asks 2"), 2)
    one, two = questions_of(task)
    assert {one["action"]["command"], two["action"]["command"]} == {"echo 0", "echo 1"}
    with pytest.raises(Refused) as refused:
        await server.owner.send("yes", taskId=task["id"])
    assert refused.value.code == INVALID
    assert one["questionId"] in refused.value.message
    later = await server.owner.send(data={"questionId": two["questionId"], "optionId": "allow"}, taskId=task["id"])
    assert [each["questionId"] for each in questions_of(later)] == [one["questionId"]]
    done = await server.owner.send("no", taskId=task["id"])
    assert said(done) == "n y"


@pytest.mark.req("Q3")
async def test_both_answers_in_one_message(server: Serving) -> None:
    task = await shows(server, await server.owner.send("many-asks 2"), 2)
    parts = [{"data": {"questionId": each["questionId"], "optionId": "allow"}} for each in questions_of(task)]
    answer = {"messageId": "both", "role": "ROLE_USER", "taskId": task["id"], "parts": parts}
    done = (await server.owner.rpc("SendMessage", {"message": answer}))["task"]
    assert (state_of(done), said(done)) == ("completed", "y y")


@pytest.mark.req("T5", "Q9")
async def test_cancel_closes_every_open_question(server: Serving) -> None:
    task = await shows(server, await server.owner.send("many-asks 5"), 5)
    assert state_of(await server.owner.cancel(task["id"])) == "canceled"
    assert (await server.control.get("/questions")).json() == []


@pytest.mark.req("Q2")
async def test_a_lying_title_hides_nothing(server: Serving) -> None:
    task = await server.owner.send("lying-title")
    (question,) = questions_of(task)
    command = question["action"]["command"]
    assert question["action"]["kind"] == "execute"
    assert unescape(command) == "ls" + " " * 400 + "\u202e; rm -rf ~\n\x1b[1A\x1b[2Kecho fine"
    for hidden in ("\u202e", "\x1b", " " * 20):
        assert hidden not in question["action"]["text"]
        assert hidden not in question["action"]["title"]
    assert "rm -rf ~" in question["action"]["text"]
    await server.owner.answer(task, "deny")


@pytest.mark.req("Q2")
async def test_a_command_that_changes_under_its_question_is_asked_anew(server: Serving) -> None:
    first = await server.owner.send("changed-input")
    task = await server.owner.until(
        first["id"], lambda now: [each["action"]["command"] for each in questions_of(now)] == ["rm -rf ."]
    )
    old = questions_of(first)[0]["questionId"]
    if old != questions_of(task)[0]["questionId"]:
        late = await server.control.post(f"/questions/{old}/answer", json={"option": "allow"})
        assert late.status_code == 409
    assert said(await server.owner.answer(task, "deny")) == "n"


@pytest.mark.req("Q8")
@pytest.mark.parametrize("deed", ["changed-after", "despite-denial"])
async def test_an_answer_holds_for_what_was_shown(server: Serving, deed: str) -> None:
    task = await server.owner.send(deed)
    done = await server.owner.answer(task, "deny" if deed == "despite-denial" else "allow")
    assert (state_of(done), reason_of(done)) == ("failed", "unapproved_tool_call")
    assert state_of(await server.owner.send("hello")) == "completed"


async def test_input_that_comes_late_is_shown(server: Serving) -> None:
    task = await server.owner.send("late-input 50")
    assert questions_of(task)[0]["action"]["command"] == "echo late"
    assert said(await server.owner.answer(task, "allow")) == "y"


async def test_a_blank_request_can_only_be_denied(server: Serving) -> None:
    task = await server.owner.send("blank-ask")
    assert [option["kind"] for option in questions_of(task)[0]["options"]] == ["reject_once"]
    with pytest.raises(Refused) as refused:
        await server.owner.answer(task, "allow")
    assert refused.value.code == INVALID
    assert said(await server.owner.answer(task, "deny")) == "n"


@pytest.mark.req("Q5")
@pytest.mark.parametrize("deed", ["only-always", "no-options", "odd-options"])
async def test_always_is_never_told_and_a_denial_is_always_there(server: Serving, deed: str) -> None:
    task = await server.owner.send(deed)
    assert all(option["kind"] != "allow_always" for option in questions_of(task)[0]["options"])
    assert said(await server.owner.answer(task, "deny")) == "cancelled"


async def test_one_call_that_asks_twice(server: Serving) -> None:
    task = await server.owner.until(
        (await server.owner.send("ask-twice"))["id"],
        lambda now: len(questions_of(now)) == 2 and is_waiting(now),
    )
    assert {each["action"]["command"] for each in questions_of(task)} == {"echo second"}
    for question in questions_of(task):
        data = {"questionId": question["questionId"], "optionId": "allow"}
        done = await server.owner.send(data=data, taskId=task["id"])
    assert said(done) == "first=y second=y"


@pytest.mark.req("Q9")
async def test_a_request_that_is_withdrawn_closes_its_question(server: Serving) -> None:
    task = await server.owner.send("withdraw")
    done = await server.owner.until(task["id"], is_over)
    assert said(done) == "cancelled"
    assert (await server.control.get("/questions")).json() == []


async def test_an_honest_agent_with_an_odd_order_is_not_stopped(server: Serving) -> None:
    task = await server.owner.send("late-input 0")
    assert state_of(await server.owner.answer(task, "allow")) == "completed"
    task = await server.owner.send("reordered")
    assert state_of(await server.owner.answer(task, "allow")) == "completed"
