"""The A2A client against an agent that answers wrongly: one plain error each, and tokens only where they belong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from fakes.rude_agent import CARD, RPC, RudeAgent, card, error, http, result, stream, task

from a2a_serve.core.errors import (
    BadCredential,
    NotAllowed,
    NotSignedIn,
    RemoteError,
    ServeError,
    StreamLost,
    Unreachable,
)
from a2a_serve.outbound.client import connect

MESSAGE = pb.Message(message_id="m", role=pb.Role.ROLE_USER, parts=[pb.Part(text="hi")])
CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"


@pytest.fixture
def agent() -> Iterator[RudeAgent]:
    made = RudeAgent()
    yield made
    made.close()


def no_token(url: str) -> str | None:
    return None


async def sent(url: str, *, stream: bool = False, token_for: Any = no_token) -> list[pb.StreamResponse]:
    async with connect(url, token_for) as remote:
        return [event async for event in remote.send(MESSAGE, stream=stream)]


@pytest.mark.parametrize(
    "answer",
    [
        (500, {}),
        (302, {}),
        (200, []),
        (200, "text"),
        (200, {"supportedInterfaces": 3}),
        (200, {"securitySchemes": {"x": []}}),
        (200, {"name": {"deep": 1}}),
        (200, card("http://127.0.0.1:1", supportedInterfaces=[])),
        (200, card("x", supportedInterfaces=[{"url": "x", "protocolBinding": "SMOKE", "protocolVersion": "1.0"}])),
        http(200, "text/html", b"<html>"),
        http(200, "application/json", b"\xff\xfe"),
        http(200, "application/json", b"[" * 100_000),
    ],
)
async def test_a_card_that_is_none(agent: RudeAgent, answer: Any) -> None:
    agent.answers[CARD] = answer
    with pytest.raises(RemoteError):
        await sent(agent.url)


@pytest.mark.parametrize("answer", [b"", b"rubbish\r\n\r\n", CUT])
async def test_a_card_that_breaks_off(agent: RudeAgent, answer: bytes) -> None:
    agent.answers[CARD] = answer
    with pytest.raises(StreamLost):
        await sent(agent.url)


@pytest.mark.parametrize("path", ["", "/", "/.well-known/agent-card.json", "/a2a/jsonrpc", "/x?y=1#z"])
async def test_the_card_is_found_from_any_address_of_its_origin(agent: RudeAgent, path: str) -> None:
    agent.answers[RPC] = result({"task": task("COMPLETED")})
    (event,) = await sent(agent.url + path)
    assert event.task.id == "t1"


async def test_nothing_there(agent: RudeAgent) -> None:
    agent.close()
    with pytest.raises(Unreachable, match=agent.url):
        await sent(agent.url)


@pytest.mark.req("I4")
async def test_a_token_goes_only_to_its_own_origin(agent: RudeAgent) -> None:
    other = RudeAgent({RPC: result({"task": task("COMPLETED")})})
    try:
        agent.answers |= {CARD: (200, card(f"{other.url}/rpc")), RPC: result({"task": task("COMPLETED")})}
        asked: list[str] = []

        def token_for(url: str) -> str | None:
            asked.append(url)
            return "canary" if url == agent.url else None

        await sent(agent.url, token_for=token_for)
        assert asked == [other.url]
        assert "authorization" not in other.asked[RPC][0].headers
        agent.answers[CARD] = (200, card(f"{agent.url}/rpc"))
        await sent(agent.url, token_for=token_for)
        assert agent.asked[RPC][0].headers["authorization"] == "Bearer canary"
        assert all("authorization" not in each.headers for each in agent.asked[CARD])
    finally:
        other.close()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((401, {}), NotSignedIn),
        ((403, {}), NotAllowed),
        ((429, {}), BadCredential),
        ((500, {}), RemoteError),
        ((307, {}), RemoteError),
        (error(-32001, "no such task"), RemoteError),
        (error(-32602, "bad"), RemoteError),
        (error(12345, "odd"), RemoteError),
        ((200, {"jsonrpc": "2.0", "id": "1", "error": "text"}), RemoteError),
        ((200, {"jsonrpc": "2.0", "id": "1"}), RemoteError),
        ((200, []), RemoteError),
        (result({"task": {"id": 7}}), RemoteError),
        (http(200, "application/json", b"{"), RemoteError),
        (http(200, "text/event-stream", b"data: {\n\n"), RemoteError),
        (http(200, "text/event-stream", b"event: error\ndata: x\n\n"), RemoteError),
        (b"", StreamLost),
        (CUT, StreamLost),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_an_answer_that_is_wrong_is_one_plain_error(
    agent: RudeAgent, answer: Any, kind: type[ServeError], streaming: bool
) -> None:
    agent.answers[RPC] = answer
    with pytest.raises(kind) as caught:
        await sent(agent.url, stream=streaming)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    "answer", [stream({}), result([]), stream(task("WORKING")), http(200, "text/event-stream", b": ping\n\n")]
)
async def test_a_stream_of_nothing_known_is_no_task(agent: RudeAgent, answer: Any) -> None:
    agent.answers[RPC] = answer
    assert [event.WhichOneof("payload") for event in await sent(agent.url, stream=True)] in ([], [None])


async def test_what_came_before_a_stream_broke_is_kept(agent: RudeAgent) -> None:
    agent.answers[RPC] = stream({"task": task("WORKING")}, broken=True)
    seen = []

    async def read() -> None:
        async with connect(agent.url, no_token) as remote:
            async for event in remote.send(MESSAGE):
                seen.append(event)

    with pytest.raises(StreamLost):
        await read()
    assert [event.task.id for event in seen] == ["t1"]


async def test_an_agent_that_does_not_stream_is_asked_plainly(agent: RudeAgent) -> None:
    agent.answers |= {
        CARD: (200, card(f"{agent.url}/rpc", capabilities={"streaming": False})),
        RPC: result({"task": task("COMPLETED")}),
    }
    await sent(agent.url, stream=True)
    assert agent.asked[RPC][0].body["method"] == "SendMessage"


async def test_a_task_that_has_ended_is_fetched_instead_of_followed(agent: RudeAgent) -> None:
    answers = iter([error(-32004, "ended"), result(task("COMPLETED"))])
    agent.answers[RPC] = lambda: next(answers)
    async with connect(agent.url, no_token) as remote:
        (event,) = [event async for event in remote.follow("t1")]
    assert event.task.status.state == pb.TaskState.TASK_STATE_COMPLETED
    assert [each.body["method"] for each in agent.asked[RPC]] == ["SubscribeToTask", "GetTask"]
