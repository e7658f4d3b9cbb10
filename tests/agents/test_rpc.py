"""JSON-RPC with an agent's process: ids, order, the end, and what we send held against the ACP library's models."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from acp import schema

from a2a_serve.agents import AgentKind
from a2a_serve.agents.acp import Agent
from a2a_serve.agents.rpc import Json, RpcError, Wire
from a2a_serve.core import events as e
from a2a_serve.core.errors import AgentFailure, AgentLoginRequired
from a2a_serve.core.model import Prompt
from a2a_serve.sandbox import Exit

KIND = AgentKind("test", "Test", ("test",), mode="ask", session_meta={"x": {"y": 1}})
RESULTS: dict[str, Json] = {
    "initialize": {
        "protocolVersion": 1,
        "agentCapabilities": {"loadSession": True, "sessionCapabilities": {"resume": {}, "close": {}}},
    },
    "session/new": {"sessionId": "s1", "modes": {"currentModeId": "auto", "availableModes": [{"id": "ask"}]}},
    "session/resume": {"modes": {"currentModeId": "auto", "availableModes": [{"id": "ask"}]}},
    "session/set_mode": {},
    "session/close": {},
    "session/prompt": {"stopReason": "end_turn", "usage": {"totalTokens": 3}},
}
MODELS: dict[str, Any] = {
    "initialize": schema.InitializeRequest,
    "session/new": schema.NewSessionRequest,
    "session/resume": schema.ResumeSessionRequest,
    "session/set_mode": schema.SetSessionModeRequest,
    "session/close": schema.CloseSessionRequest,
    "session/prompt": schema.PromptRequest,
    "session/cancel": schema.CancelNotification,
}


class Pipe:
    """An agent's two ends in memory: `heard` is what we sent, `say` is what it says."""

    def __init__(self, results: dict[str, Json] | None = None) -> None:
        self.heard: asyncio.Queue[Json] = asyncio.Queue()
        self.log: list[Json] = []
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._results = results
        self.stopped = asyncio.Event()

    def say(self, *messages: Json) -> None:
        self._out.put_nowait(b"".join(orjson.dumps(message) + b"\n" for message in messages))

    async def read(self, limit: int) -> bytes:
        return await self._out.get()

    async def write(self, data: bytes) -> None:
        if self.stopped.is_set():
            raise ConnectionResetError
        message = orjson.loads(data)
        self.log.append(message)
        self.heard.put_nowait(message)
        if self._results is not None and "id" in message and "method" in message:
            self.say({"jsonrpc": "2.0", "id": message["id"], "result": self._results[message["method"]]})

    def stderr_tail(self) -> str:
        return ""

    async def wait(self) -> Exit:
        await self.stopped.wait()
        return Exit(7, sentence="It ended with code 7.")

    async def stop(self, grace: float) -> None:
        self.stopped.set()
        self._out.put_nowait(b"")

    async def check(self) -> None: ...


async def ignore(message: Json) -> None: ...


@pytest.mark.parametrize("as_text", [False, True])
async def test_answers_are_matched_by_id_even_as_text(as_text: bool) -> None:
    pipe = Pipe()
    wire = Wire(pipe, ignore)
    asking = [asyncio.create_task(wire.request("m", {"n": number})) for number in range(3)]
    ids = [(await pipe.heard.get())["id"] for _ in asking]
    pipe.say(*({"id": str(each) if as_text else each, "result": {"for": each}} for each in reversed(ids)))
    assert [answer["for"] for answer in await asyncio.gather(*asking)] == ids
    await pipe.stop(0)
    await wire.close()


@pytest.mark.parametrize("stray", [{"id": 99, "result": {}}, {"id": True, "result": {}}, {"id": None}, {"id": [1]}, {}])
async def test_a_stray_answer_harms_nothing(stray: Json) -> None:
    pipe = Pipe()
    wire = Wire(pipe, ignore)
    asking = asyncio.create_task(wire.request("m", {}))
    sent = await pipe.heard.get()
    pipe.say(stray, {"id": sent["id"], "result": "no object"})
    assert await asking == {}
    await pipe.stop(0)
    await wire.close()


async def test_an_error_keeps_its_code_and_cuts_its_text() -> None:
    pipe = Pipe()
    wire = Wire(pipe, ignore)
    asking = asyncio.create_task(wire.request("m", {}))
    sent = await pipe.heard.get()
    pipe.say({"id": sent["id"], "error": {"code": -32000, "message": "x" * 9000, "data": {"errorKind": "k"}}})
    with pytest.raises(RpcError) as raised:
        await asking
    assert (raised.value.code, raised.value.data, len(str(raised.value))) == (-32000, {"errorKind": "k"}, 500)
    await pipe.stop(0)
    await wire.close()


async def test_the_end_of_the_stream_ends_every_request() -> None:
    pipe = Pipe()
    wire = Wire(pipe, ignore)
    asking = asyncio.create_task(wire.request("m", {}))
    await pipe.heard.get()
    await pipe.stop(0)
    with pytest.raises(ConnectionError):
        await asking
    with pytest.raises(ConnectionError):
        await wire.request("m", {})
    await wire.close()


async def test_messages_come_one_at_a_time_in_wire_order() -> None:
    pipe = Pipe()
    seen: list[int] = []
    done = asyncio.Event()

    async def slow_first(message: Json) -> None:
        for _ in range(5 if message["n"] == 0 else 0):
            await asyncio.sleep(0)
        seen.append(message["n"])
        if len(seen) == 4:
            done.set()

    wire = Wire(pipe, slow_first)
    pipe.say(*({"method": "m", "n": number} for number in range(4)))
    await asyncio.wait_for(done.wait(), 5)
    assert seen == [0, 1, 2, 3]
    await pipe.stop(0)
    await wire.close()


async def connected(results: dict[str, Json] | None = None) -> tuple[Agent, Pipe]:
    pipe = Pipe({**RESULTS, **(results or {})})
    return await Agent.connect(pipe, KIND, "/work"), pipe


async def test_what_we_send_is_what_the_protocol_says() -> None:
    agent, pipe = await connected()
    session = await agent.new_session()
    await agent.restore_session("s2")
    events: asyncio.Queue[e.AgentEvent] = asyncio.Queue()
    prompt = Prompt(({"type": "text", "text": "hi"},), {"taskId": "t"})
    session.prompt(prompt, events.put)
    ended = await events.get()
    assert isinstance(ended, e.PromptEnded)
    assert ended.usage
    assert ended.usage.total_tokens == 3
    await session.cancel()
    await session.close()
    for message in pipe.log:
        MODELS[message["method"]].model_validate(message["params"])
    sent = {message["method"]: message["params"] for message in pipe.log}
    assert sent.keys() == MODELS.keys()
    assert sent["session/new"]["_meta"] == sent["session/resume"]["_meta"] == {"x": {"y": 1}}
    assert sent["session/set_mode"]["modeId"] == "ask"
    assert sent["session/prompt"]["_meta"] == {"a2a": {"taskId": "t"}}
    await agent.close(0)


@pytest.mark.parametrize(
    ("option", "words", "outcome"),
    [
        ("ok", "", {"outcome": "selected", "optionId": "ok"}),
        (None, "", {"outcome": "cancelled"}),
        ("no", "too risky", {"outcome": "selected", "optionId": "no", "_meta": {"a2a": {"reason": "too risky"}}}),
    ],
)
async def test_a_permission_is_answered_once_as_the_protocol_says(
    option: str | None, words: str, outcome: Json
) -> None:
    agent, pipe = await connected()
    session = await agent.new_session()
    events: asyncio.Queue[e.AgentEvent] = asyncio.Queue()
    session._deliver = events.put
    params = {"sessionId": "s1", "toolCall": {"toolCallId": "c"}, "options": [], "_meta": {"session_id": "victim"}}
    pipe.say({"id": "their-id", "method": "session/request_permission", "params": params})
    request = await events.get()
    assert isinstance(request, e.PermissionRequest)
    await session.reply(request.request_id, option, words)
    answer = pipe.log[-1]
    assert (answer["id"], answer["result"]["outcome"]) == ("their-id", outcome)
    schema.RequestPermissionResponse.model_validate(answer["result"])
    await agent.close(0)


@pytest.mark.parametrize("session", ["s1", "unknown", ["s1"], None])
async def test_a_permission_out_of_turn_is_refused_at_once(session: Any) -> None:
    agent, pipe = await connected()
    await agent.new_session()
    while not pipe.heard.empty():
        pipe.heard.get_nowait()
    pipe.say({"id": 5, "method": "session/request_permission", "params": {"sessionId": session, "toolCall": {}}})
    answer = await asyncio.wait_for(pipe.heard.get(), 5)
    assert answer["result"] == {"outcome": {"outcome": "cancelled"}}
    await agent.close(0)


@pytest.mark.parametrize("method", ["fs/write_text_file", "terminal/create", "elicitation/create", "_private"])
async def test_what_is_not_offered_is_refused(method: str) -> None:
    agent, pipe = await connected()
    while not pipe.heard.empty():
        pipe.heard.get_nowait()
    pipe.say({"id": 5, "method": method, "params": {"path": "/etc/passwd"}})
    assert (await asyncio.wait_for(pipe.heard.get(), 5))["error"]["code"] == -32601
    await agent.close(0)


@pytest.mark.parametrize(
    ("results", "wanted"),
    [
        ({"initialize": {"protocolVersion": 2}}, "does not speak version 1"),
        ({"session/new": {}}, "without an id"),
        ({"session/new": {"sessionId": "s", "modes": {"availableModes": [{"id": "yolo"}]}}}, "does not offer the mode"),
    ],
)
async def test_an_agent_that_cannot_be_used_says_why(results: dict[str, Json], wanted: str) -> None:
    async def use() -> None:
        agent, _ = await connected(results)
        try:
            await agent.new_session()
        finally:
            await agent.close(0)

    with pytest.raises(AgentFailure, match=wanted):
        await use()


async def test_an_agent_that_never_answers_is_given_up() -> None:
    pipe = Pipe()
    with pytest.raises(AgentFailure, match="within"):
        await Agent.connect(pipe, KIND, "/work", seconds=0.01)
    assert pipe.stopped.is_set()


async def test_an_agent_that_is_not_signed_in() -> None:
    agent, pipe = await connected()
    pipe._results = None
    opening = asyncio.create_task(agent.new_session())
    while pipe.log[-1]["method"] != "session/new":
        await pipe.heard.get()
    pipe.say({"id": pipe.log[-1]["id"], "error": {"code": -32000, "message": "auth required"}})
    with pytest.raises(AgentLoginRequired):
        await opening
    await agent.close(0)


async def test_leaving_the_mode_in_which_it_asks_ends_the_process() -> None:
    agent, pipe = await connected()
    session = await agent.new_session()
    events: asyncio.Queue[e.AgentEvent] = asyncio.Queue()
    pipe._results = None
    session.prompt(Prompt(()), events.put)
    update = {"sessionUpdate": "current_mode_update", "currentModeId": "yolo"}
    pipe.say({"method": "session/update", "params": {"sessionId": "s1", "update": update}})
    lost = await asyncio.wait_for(events.get(), 5)
    assert isinstance(lost, e.AgentLost)
    assert lost.code == "agent_protocol"
    assert pipe.stopped.is_set()
    await agent.close(0)


@pytest.mark.parametrize("steps", range(6))
async def test_a_cancel_is_never_swallowed_whenever_it_comes(steps: int) -> None:
    """`asyncio.wait_for` of Python 3.11 forgets one that comes just when what it waits for is done."""
    pipe = Pipe()
    wire = Wire(pipe, ignore)
    asking = asyncio.create_task(wire.request("m", {}))
    for _ in range(steps):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait({asking}, timeout=1)
    assert asking.cancelled()
    await pipe.stop(0)
    await wire.close()


async def test_what_a_turn_left_unanswered_is_refused_at_its_end() -> None:
    """Else an agent that waits for the answer would never take another prompt."""
    pipe = Pipe(RESULTS)
    agent = await Agent.connect(pipe, KIND, "/")
    session = await agent.new_session()
    asked = asyncio.Event()

    async def deliver(event: e.AgentEvent) -> None:
        if isinstance(event, e.PermissionRequest):
            asked.set()

    session.prompt(Prompt(({"type": "text", "text": "x"},), {}), deliver)
    call = {"toolCallId": "c", "title": "late", "rawInput": {"command": "true"}}
    pipe.say({"id": "late", "method": "session/request_permission", "params": {"sessionId": "s1", "toolCall": call}})
    async with asyncio.timeout(5):
        await asked.wait()
        await session.end()
    assert {"jsonrpc": "2.0", "id": "late", "result": {"outcome": {"outcome": "cancelled"}}} in pipe.log
    await agent.close(0)
