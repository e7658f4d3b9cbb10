"""Whole turns over the wire with the demo agent: what callers see, questions and their answers, cancels, order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from serving import (
    Refused,
    Serving,
    is_over,
    is_waiting,
    message,
    questions_of,
    reason_of,
    serving,
    state_of,
    text_of,
)

from a2a_serve.core.model import Role

NOT_FOUND, INVALID, UNSUPPORTED, NOT_CANCELABLE = -32001, -32602, -32004, -32002


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    (tmp_path / "README.md").write_text("old title\n")
    async with serving(tmp_path) as running:
        yield running


@pytest.mark.req("T3")
async def test_everything_the_agent_says_has_its_place(server: Serving) -> None:
    task = await server.owner.send("say hello\nthink hm\nplan A; B\nsay bye")
    assert state_of(task) == "completed"
    assert text_of(task).split() == ["hello", "bye"]
    assert text_of(task, "thinking").strip() == "hm"
    plan = next(each for each in task["artifacts"] if each["artifactId"] == "plan")
    assert [entry["content"] for entry in plan["parts"][0]["data"]["entries"]] == ["A", "B"]
    assert task["metadata"]["stopReason"] == "end_turn"
    assert task["metadata"]["usage"]["totalTokens"] > 0


@pytest.mark.req("T3")
async def test_text_streams_in_wire_order_and_once(server: Serving) -> None:
    events = [event async for event in server.owner.stream("chunks 500")]
    pieces = [
        event["artifactUpdate"]["artifact"]["parts"][0]["text"]
        for event in events
        if event.get("artifactUpdate", {}).get("artifact", {}).get("artifactId") == "response"
    ]
    task = await server.owner.get(events[0]["task"]["id"])
    assert "".join(pieces) == text_of(task)
    numbers = [int(word) for word in text_of(task).split() if word.isdecimal()]
    assert numbers == sorted(numbers)
    assert len(numbers) == 500
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.req("Q1", "Q2")
async def test_a_change_waits_for_an_answer_and_shows_what_it_is(server: Serving) -> None:
    task = await server.owner.send("write README.md new title")
    assert is_waiting(task)
    assert (server.directory.root / "README.md").read_text() == "old title\n"
    (question,) = questions_of(task)
    assert question["action"]["kind"] == "edit"
    assert question["action"]["path"] == "README.md"
    assert "-old title" in question["action"]["diff"]
    assert "+new title" in question["action"]["diff"]
    assert {option["kind"] for option in question["options"]} == {"allow_once", "reject_once"}
    done = await server.owner.answer(task, "allow")
    assert state_of(done) == "completed"
    assert (server.directory.root / "README.md").read_text().strip() == "new title"
    assert "+new title" in text_of(done, "diff:README.md")


@pytest.mark.req("Q3")
@pytest.mark.parametrize("words", ["yes", "Yes.", "allow", "OK"])
async def test_yes_in_words(server: Serving, words: str) -> None:
    task = await server.owner.send("run echo done > made.txt")
    assert state_of(await server.owner.send(words, taskId=task["id"])) == "completed"
    assert (server.directory.root / "made.txt").exists()


@pytest.mark.req("Q3")
async def test_other_words_deny_and_reach_the_agent(server: Serving) -> None:
    task = await server.owner.send("run touch made.txt")
    done = await server.owner.send("use the existing file instead", taskId=task["id"])
    assert "use the existing file instead" in text_of(done)
    assert not (server.directory.root / "made.txt").exists()


@pytest.mark.req("Q1")
async def test_reading_does_not_ask(server: Serving) -> None:
    task = await server.owner.send("read README.md")
    assert state_of(task) == "completed"
    assert "old title" in text_of(task)


@pytest.mark.req("S3")
async def test_a_change_to_what_the_host_runs_later_is_told(server: Serving) -> None:
    done = await server.owner.answer(await server.owner.send("write Makefile all:"), "allow")
    assert done["metadata"]["hostFiles"] == ["new Makefile"]
    assert "new Makefile" in done["status"]["message"]["parts"][0]["text"]
    other = await server.owner.answer(await server.owner.send("write notes.txt hello"), "allow")
    assert "hostFiles" not in other["metadata"]


@pytest.mark.req("Q4")
async def test_an_answer_twice_the_first_wins_and_the_second_hears_by_whom(server: Serving) -> None:
    task = await server.owner.send("run echo hi\nsleep 0.2\nsay end")
    question = questions_of(task)[0]["questionId"]
    answers = [{"option": "allow"}, {"option": "deny"}]
    both = await asyncio.gather(
        *(server.control.post(f"/questions/{question}/answer", json=answer) for answer in answers)
    )
    assert sorted(answer.status_code for answer in both) == [200, 409]
    late = next(answer for answer in both if answer.status_code == 409).json()["error"]
    assert late["code"] == "question_closed"
    assert "local:owner" in late["sentence"]
    with pytest.raises(Refused) as refused:
        await server.owner.answer(task, "allow")
    assert refused.value.code == UNSUPPORTED


@pytest.mark.req("Q3")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"questionId": "nope", "optionId": "allow"}, INVALID),
        ({"questionId": "nope"}, INVALID),
        ({"questionId": 7, "optionId": "allow"}, INVALID),
    ],
)
async def test_a_wrong_answer_changes_nothing(server: Serving, data: dict[str, object], code: int) -> None:
    task = await server.owner.send("run echo hi")
    with pytest.raises(Refused) as refused:
        await server.owner.send(data=data, taskId=task["id"])
    assert refused.value.code == code
    with pytest.raises(Refused) as refused:
        await server.owner.answer(task, "allow_always")
    assert refused.value.code == INVALID
    assert is_waiting(await server.owner.get(task["id"]))
    assert state_of(await server.owner.answer(task, "deny")) == "completed"


@pytest.mark.req("Q4")
async def test_an_answer_given_elsewhere_reaches_every_stream(server: Serving) -> None:
    task = await server.owner.send("run echo hi\nsay end")
    following = server.owner.subscribe(task["id"])
    first = await anext(following)
    assert first["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    (open_one,) = (await server.control.get("/questions")).json()
    assert open_one["taskId"] == task["id"]
    await server.control.post(f"/questions/{open_one['id']}/answer", json={"option": "allow"})
    rest = [event async for event in following]
    assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (await server.control.get("/questions")).json() == []


async def test_a_message_stream_ends_at_the_question_and_the_answers_stream_goes_on(server: Serving) -> None:
    events = [event async for event in server.owner.stream("say before\nrun echo hi\nsay after")]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    task = await server.owner.get(events[0]["task"]["id"])
    data = {"questionId": questions_of(task)[0]["questionId"], "optionId": "allow"}
    rest = [event async for event in server.owner.stream(data=data, taskId=task["id"])]
    assert rest[0]["task"]["id"] == task["id"]
    assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_question_outlives_its_callers_connection(server: Serving) -> None:
    leaving = server.owner.stream("run echo hi\nsay end")
    first = await anext(leaving)
    await leaving.aclose()  # type: ignore[attr-defined]
    task = await server.owner.until(first["task"]["id"], is_waiting)
    assert state_of(await server.owner.answer(task, "allow")) == "completed"


@pytest.mark.req("T5", "Q9")
async def test_cancel_while_a_question_waits(server: Serving) -> None:
    task = await server.owner.send("run touch made.txt\nsay end")
    canceled = await server.owner.cancel(task["id"])
    assert state_of(canceled) == "canceled"
    assert (await server.control.get("/questions")).json() == []
    assert not (server.directory.root / "made.txt").exists()
    with pytest.raises(Refused) as refused:
        await server.owner.cancel(task["id"])
    assert refused.value.code == NOT_CANCELABLE
    assert state_of(await server.owner.send("say still here")) == "completed"


@pytest.mark.req("T5")
async def test_cancel_in_the_middle_and_before_the_start(server: Serving) -> None:
    running = await server.owner.send("sleep 60", wait=False, contextId="c1")
    queued = await server.owner.send("run touch made.txt", wait=False, contextId="c1")
    assert state_of(await server.owner.cancel(queued["id"])) == "canceled"
    assert state_of(await server.owner.cancel(running["id"])) == "canceled"
    assert state_of(await server.owner.send("say next", contextId="c1")) == "completed"


@pytest.mark.req("T1")
async def test_turns_of_a_conversation_run_in_order_and_it_remembers(server: Serving) -> None:
    first = await server.owner.send("sleep 0.3\nsay one", wait=False, contextId="c1")
    second = await server.owner.send("say two", contextId="c1")
    assert state_of(second) == "completed"
    assert is_over(await server.owner.get(first["id"]))
    recalled = await server.owner.send("recall", contextId="c1")
    assert "one" in text_of(recalled)
    other = await server.owner.send("recall")
    assert "one" not in text_of(other)


@pytest.mark.req("T1")
async def test_a_conversation_survives_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.owner.send("say the word is plum", contextId="c1")
    async with serving(tmp_path) as server:
        assert "plum" in text_of(await server.owner.send("recall", contextId="c1"))


@pytest.mark.req("T1")
async def test_memory_can_be_switched_off(tmp_path: Path) -> None:
    async with serving(tmp_path, session__reuse_by_context=False) as server:
        await server.owner.send("say the word is plum", contextId="c1")
        assert "plum" not in text_of(await server.owner.send("recall", contextId="c1"))


@pytest.mark.req("T6")
async def test_a_turn_out_of_time_fails_but_not_while_it_waits_for_an_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, turns__timeout=0.5) as server:
        waiting = await server.owner.send("run echo hi\nsay end")
        late = await server.owner.send("sleep 30")
        assert (state_of(late), reason_of(late)) == ("failed", "timeout")
        assert state_of(await server.owner.answer(waiting, "allow")) == "completed"


@pytest.mark.req("Q9")
async def test_a_question_nobody_answers_expires(tmp_path: Path) -> None:
    async with serving(tmp_path, questions__expire=1) as server:
        task = await server.owner.send("run touch made.txt\nsay end")
        done = await server.owner.until(task["id"], is_over)
        assert state_of(done) == "completed"
        assert not (tmp_path / "made.txt").exists()


@pytest.mark.req("A6")
async def test_two_callers_do_not_see_each_other(server: Serving) -> None:
    alice, bob = await server.caller("alice"), await server.caller("bob")
    task = await alice.send("say secret\nrun echo hi", contextId="shared")
    calls: list[Callable[[str], Awaitable[object]]] = [
        bob.get,
        bob.cancel,
        lambda task_id: bob.send("yes", taskId=task_id),
        lambda task_id: anext(bob.subscribe(task_id)),
    ]
    for call in calls:
        answers = []
        for task_id in (task["id"], "0123456789abcdef0123456789abcdef"):
            with pytest.raises(Refused) as refused:
                await call(task_id)
            answers.append((refused.value.code, refused.value.message, refused.value.data))
        assert answers[0] == answers[1]
        assert answers[0][0] == NOT_FOUND
    assert (await bob.rpc("ListTasks", {}))["tasks"] == []
    assert "secret" not in text_of(await bob.send("recall", contextId="shared"))
    with pytest.raises(Refused):
        await bob.send(data={"questionId": questions_of(task)[0]["questionId"], "optionId": "allow"}, taskId=task["id"])
    assert is_waiting(await alice.get(task["id"]))


@pytest.mark.req("Q1")
async def test_an_owner_may_answer_anyones_question_from_the_control_socket(server: Serving) -> None:
    alice = await server.caller("alice")
    task = await alice.send("run echo hi\nsay end")
    (question,) = (await server.control.get("/questions")).json()
    assert question["from"] == "alice"
    answered = await server.control.post(f"/questions/{question['id']}/answer", json={"option": "allow"})
    assert answered.json()["by"] == "local:owner"
    assert state_of(await alice.until(task["id"], is_over)) == "completed"


@pytest.mark.req("A7")
async def test_the_same_message_again_is_the_same_task(server: Serving) -> None:
    params = message("say once")
    tasks = await asyncio.gather(*(server.owner.rpc("SendMessage", params) for _ in range(20)))
    assert len({answer["task"]["id"] for answer in tasks}) == 1
    assert text_of(tasks[0]["task"]).strip() == "once"
    params["message"]["parts"] = [{"text": "say other"}]
    with pytest.raises(Refused) as refused:
        await server.owner.rpc("SendMessage", params)
    assert refused.value.code == INVALID
    alice = await server.caller("alice")
    assert state_of((await alice.rpc("SendMessage", params))["task"]) == "completed"


@pytest.mark.req("A5")
async def test_what_is_over_takes_no_more(server: Serving) -> None:
    task = await server.owner.send("say done")
    with pytest.raises(Refused) as refused:
        await server.owner.send("more", taskId=task["id"])
    assert refused.value.code == UNSUPPORTED
    with pytest.raises(Refused) as refused:
        await anext(server.owner.subscribe(task["id"]))
    assert refused.value.code == UNSUPPORTED


@pytest.mark.req("A5")
async def test_a_working_task_that_asks_nothing_takes_no_answer(server: Serving) -> None:
    task = await server.owner.send("sleep 30", wait=False)
    with pytest.raises(Refused) as refused:
        await server.owner.send("hurry", taskId=task["id"])
    assert refused.value.code == UNSUPPORTED
    with pytest.raises(Refused) as refused:
        await server.owner.send("hurry", taskId=task["id"], contextId="another")
    assert refused.value.code == INVALID
    await server.owner.cancel(task["id"])


@pytest.mark.req("A5")
async def test_lists_are_paged_and_lean(server: Serving) -> None:
    made = [(await server.owner.send(f"say {number}"))["id"] for number in range(5)]
    first = await server.owner.rpc("ListTasks", {"pageSize": 3})
    rest = await server.owner.rpc("ListTasks", {"pageSize": 3, "pageToken": first["nextPageToken"]})
    assert [task["id"] for task in first["tasks"] + rest["tasks"]] == made[::-1]
    assert first["totalSize"] == 5
    assert all("artifacts" not in task for task in first["tasks"])
    whole = await server.owner.rpc("ListTasks", {"pageSize": 1, "includeArtifacts": True, "historyLength": 0})
    assert text_of(whole["tasks"][0]).strip() == "4"
    assert not whole["tasks"][0].get("history")
    for bad in ({"pageSize": 0}, {"pageSize": 101}, {"pageToken": "x"}, {"historyLength": -1}):
        with pytest.raises(Refused) as refused:
            await server.owner.rpc("ListTasks", bad)
        assert refused.value.code == INVALID


async def test_guests_do_not_see_the_agent_think(server: Serving) -> None:
    guest = await server.caller("visitor", Role.GUEST)
    task = await guest.send("think secret plans\nsay hello")
    assert text_of(task, "thinking") == ""
    assert text_of(task).strip() == "hello"


@pytest.mark.req("R1")
async def test_a_stop_ends_open_turns_and_their_streams(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        task = await server.owner.send("run echo hi")
        following = server.owner.subscribe(task["id"])
        await anext(following)
        await server.control.post("/stop")
        rest = [event async for event in following]
        assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"
    async with serving(tmp_path) as server:
        failed = await server.owner.get(task["id"])
        assert (state_of(failed), reason_of(failed)) == ("failed", "server_stopped")
        assert (await server.control.get("/questions")).json() == []


@pytest.mark.parametrize("role", ["node", "king", ""])
async def test_a_pairing_needs_a_role_that_exists(server: Serving, role: str) -> None:
    answer = await server.control.post("/pairings", json={"name": "x", "role": role})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage")


@pytest.mark.parametrize("body", [[], {}, {"option": 7}, {"reason": "x"}])
async def test_bad_bodies_on_the_control_socket(server: Serving, body: object) -> None:
    answer = await server.control.post("/questions/x/answer", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage")


@pytest.mark.parametrize(("body", "kind", "status"), [(b"{", "application/json", 400), (b"{}", "text/plain", 415)])
async def test_the_control_socket_has_the_guard_too(server: Serving, body: bytes, kind: str, status: int) -> None:
    answer = await server.control.post("/stop", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert (await server.control.get("/status")).json()["state"] == "running"


@pytest.mark.req("H1")
async def test_a_reviewer_never_modifies_and_never_runs(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("title\n")
    async with serving(tmp_path, questions__preset="plan") as server:
        task = await server.owner.send("read README.md\nwrite README.md x\nrun touch made\nsay end")
    assert state_of(task) == "completed"
    assert "title" in text_of(task)
    assert (tmp_path / "README.md").read_text() == "title\n"
    assert not (tmp_path / "made").exists()
