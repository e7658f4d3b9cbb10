"""Seeing a task through with an agent that breaks off, repeats itself, and asks in its own ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fakes.rude_agent import CARD, RPC, RudeAgent, card, error, result, stream, task

from a2a_serve.core.errors import RemoteError, StreamLost
from a2a_serve.outbound.client import connect
from a2a_serve.outbound.conversation import Conversation, Question, Reply


@pytest.fixture
def agent() -> Iterator[RudeAgent]:
    made = RudeAgent()
    yield made
    made.close()


class Seen:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def event(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def note(self, text: str) -> None:
        self.notes.append(text)


async def no_time(seconds: float) -> None:
    pass


def answers(agent: RudeAgent, *each: Any) -> None:
    rest = iter(each)
    agent.answers[RPC] = lambda: next(rest)


def asks(*questions: dict[str, Any]) -> dict[str, Any]:
    parts = [{"text": "May I?"}, *({"data": each} for each in questions)]
    return task("INPUT_REQUIRED", message={"messageId": "q", "role": "ROLE_AGENT", "parts": parts})


def methods(agent: RudeAgent) -> list[str]:
    return [each.body["method"] for each in agent.asked[RPC]]


async def talk(agent: RudeAgent, ask: Any = None, **options: Any) -> tuple[Conversation, Seen]:
    seen = Seen()
    async with connect(agent.url, lambda url: None) as remote:
        conversation = Conversation(remote, seen, ask, sleep=no_time, **options)
        await conversation.send("hi")
    return conversation, seen


async def test_a_broken_stream_is_followed_again_until_the_end(agent: RudeAgent) -> None:
    answers(
        agent,
        stream({"task": task("WORKING")}, broken=True),
        b"",
        stream({"task": task("WORKING")}),
        stream({"task": task("COMPLETED")}),
    )
    conversation, seen = await talk(agent)
    assert conversation.state == "completed"
    assert conversation.has_ended
    assert methods(agent) == ["SendStreamingMessage", *["SubscribeToTask"] * 3]
    assert len(seen.events) == 3


async def test_a_lost_task_is_given_up_in_the_end(agent: RudeAgent) -> None:
    answers(agent, stream({"task": task("WORKING")}), *[b""] * 5)
    with pytest.raises(StreamLost):
        await talk(agent)
    assert methods(agent) == ["SendStreamingMessage", *["SubscribeToTask"] * 5]


async def test_a_message_that_may_have_arrived_is_not_sent_twice(agent: RudeAgent) -> None:
    answers(agent, b"")
    with pytest.raises(StreamLost):
        await talk(agent)
    assert methods(agent) == ["SendStreamingMessage"]


async def test_a_message_instead_of_a_task(agent: RudeAgent) -> None:
    answers(agent, stream({"message": {"messageId": "x", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}}))
    conversation, seen = await talk(agent)
    assert conversation.task_id == ""
    assert not conversation.is_waiting
    assert seen.events[0]["message"]["parts"] == [{"text": "hello"}]


async def test_without_somebody_to_ask_it_stops_at_a_question(agent: RudeAgent) -> None:
    answers(agent, stream({"task": asks({"questionId": "q1", "action": {"text": "Edit"}, "options": []})}))
    conversation, _ = await talk(agent)
    assert conversation.questions == [Question("q1", "Edit")]
    assert conversation.is_waiting


@pytest.mark.req("Q3")
async def test_an_answer_names_its_question(agent: RudeAgent) -> None:
    options = [{"id": "ok", "kind": "allow_once", "name": "Allow"}]
    waiting = asks({"questionId": "q1", "action": {"text": "Edit"}, "options": options})
    agent.answers[RPC] = lambda: by_method(agent, waiting, {"SendStreamingMessage": 0})
    done = iter([stream({"task": waiting}), stream({"task": task("COMPLETED")})])
    asked: list[Question] = []

    def by_method(agent: RudeAgent, waiting: Any, _: Any) -> bytes:
        if methods(agent)[-1] == "SubscribeToTask":
            return stream({"task": waiting}, broken=True)
        return next(done)

    async def ask(question: Question) -> Reply:
        asked.append(question)
        return Reply("deny", "not that")

    conversation, _ = await talk(agent, ask)
    assert conversation.state == "completed"
    assert asked == [Question("q1", "Edit", (("ok", "allow_once", "Allow"),))]
    (answer,) = [each.body["params"]["message"] for each in agent.asked[RPC] if "taskId" in str(each.body)][-1:]
    assert (answer["taskId"], answer["contextId"]) == ("t1", "c1")
    assert answer["parts"][0]["data"] == {"questionId": "q1", "optionId": "deny", "reason": "not that"}


async def test_an_answer_that_comes_too_late_is_told_and_the_task_goes_on(agent: RudeAgent) -> None:
    waiting = asks({"questionId": "q1"})
    sends = iter([stream({"task": waiting}), error(-32602, "already answered by alice")])
    over = [False]

    def answer() -> Any:
        if methods(agent)[-1] == "SubscribeToTask":
            return stream({"task": task("COMPLETED") if over[0] else waiting}, broken=not over[0])
        over[0] = len(methods(agent)) > 1
        return next(sends)

    agent.answers[RPC] = answer

    async def ask(question: Question) -> Reply:
        return Reply("allow")

    conversation, seen = await talk(agent, ask)
    assert conversation.state == "completed"
    assert seen.notes == ["already answered by alice."]


async def test_an_agent_that_asks_in_plain_words_gets_plain_words(agent: RudeAgent) -> None:
    waiting = asks()
    sends = iter([stream({"task": waiting}), stream({"task": task("COMPLETED")})])
    agent.answers[RPC] = lambda: (
        stream({"task": waiting}, broken=True) if methods(agent)[-1] == "SubscribeToTask" else next(sends)
    )

    async def ask(question: Question) -> Reply:
        assert question == Question("", "May I?")
        return Reply(words="the blue one")

    await talk(agent, ask)
    answer = [each.body["params"]["message"] for each in agent.asked[RPC] if each.body["method"].startswith("Send")]
    assert answer[-1]["parts"] == [{"text": "the blue one"}]


@pytest.mark.parametrize(
    "data",
    [
        {"questionId": "q", "action": 3, "options": 4},
        {"questionId": "q", "action": [], "options": [3, None, {}]},
        {"questionId": "q", "action": {"text": None}},
        {"questionId": 7},
        {"other": "thing"},
    ],
)
async def test_a_question_of_another_shape_is_still_one(agent: RudeAgent, data: dict[str, Any]) -> None:
    answers(agent, stream({"task": asks(data)}))
    conversation, _ = await talk(agent)
    (question,) = conversation.questions
    assert question.text


async def test_an_unknown_task_is_an_error(agent: RudeAgent) -> None:
    agent.answers |= {CARD: (200, card(f"{agent.url}/rpc")), RPC: error(-32001, "Task not found")}
    async with connect(agent.url, lambda url: None) as remote:
        with pytest.raises(RemoteError, match="Task not found"):
            await Conversation(remote, Seen(), None, sleep=no_time).resume("t9")


async def test_async_stays_only_until_the_task_exists(agent: RudeAgent) -> None:
    agent.answers[RPC] = result({"task": task("WORKING")})
    async with connect(agent.url, lambda url: None) as remote:
        conversation = Conversation(remote, Seen(), None)
        await conversation.start("hi", "c1")
    assert conversation.state == "working"
    assert agent.asked[RPC][0].body["params"]["configuration"]["returnImmediately"] is True
