"""The scripted model server: its grammar, and what each of its APIs answers, by raw HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fakes.model_server
import httpx
import pytest
from fakes.model_script import Call, Event, Fail, Pause, Say, ScriptError, Think, decide, parse
from fakes.model_server import ModelServer, serving

Json = dict[str, Any]
TOOLS = {
    "/v1/chat/completions": [{"type": "function", "function": {"name": "bash"}}],
    "/v1/responses": [{"type": "function", "name": "bash"}],
    "/v1/messages": [{"name": "bash", "input_schema": {}}],
}


@pytest.fixture
def server() -> ModelServer:
    return ModelServer()


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(server) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        yield client


def body(path: str, text: str, *history: Json, **more: Any) -> Json:
    said = [{"role": "user", "content": text}, *history]
    return {"model": "m", "stream": True, "tools": TOOLS[path], "input" if "resp" in path else "messages": said, **more}


async def events(client: httpx.AsyncClient, path: str, request: Json) -> list[Json]:
    answer = await client.post(path, json=request)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# --- the grammar -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        ("SAY hello;; and more text", [(Say("hello"),)]),
        ("SAY to be continued", [(Say("to be continued"),)]),
        ("SAY now AND then THEN SAY b;;", [(Say("now AND then"),), (Say("b"),)]),
        ("THINK hm AND SAY a AND SLEEP 0.5;;", [(Think("hm"), Say("a"), Pause(0.5))]),
        ("HANG;;", [(Pause(None),)]),
        ("BIG 4;;", [(Say("xxxx"),)]),
        ("STREAM 2;;", [(Say("w0 "), Pause(0.0), Say("w1 "), Pause(0.0))]),
        ("ERROR 429;;", [(Fail(429, None),)]),
        ("ERROR 500 2 AND SAY ok;;", [(Fail(500, 2), Say("ok"))]),
        (
            'CALL bash {"command": "a THEN SAY b;; AND {}"} AND CALL edit {} THEN SAY x;;',
            [(Call("bash", {"command": "a THEN SAY b;; AND {}"}), Call("edit", {})), (Say("x"),)],
        ),
        ("SAY ;;", [(Say(""),)]),
    ],
)
def test_scripts(source: str, steps: list[tuple[Any, ...]]) -> None:
    assert parse(f" {source}") == steps


@pytest.mark.parametrize(
    "source",
    ["", "hello", "say hello", "CALL bash", "CALL bash [1]", "CALL bash {", "SLEEP long", "ERROR x", "SAYING x"],
)
def test_bad_scripts(source: str) -> None:
    with pytest.raises(ScriptError):
        parse(source)


def test_the_newest_script_counts_and_its_calls_advance_it() -> None:
    old, new = (
        Event("user", "SCRIPT: SAY old;;"),
        Event("user", "please\nSCRIPT: CALL a {} THEN CALL b {} THEN SAY c;;"),
    )
    calls = [Event("call", "call_s0_0_x"), Event("call", "toolu_s1_0_y")]
    reminder = Event("user", "<reminder/>")
    assert decide([old], has_tools=True).actions == (Say("old"),)
    assert decide([old, calls[1], new], has_tools=True).actions == (Call("a", {}),)
    assert decide([old, new, calls[0], reminder], has_tools=True).actions == (Call("b", {}),)
    assert decide([old, new, *calls], has_tools=True).actions == (Say("c"),)
    assert decide([new, *calls, Event("call", "s2_")], has_tools=True).number == 2
    assert decide([new, Event("call", "_s2_")], has_tools=True).actions == (Say("The script is over."),)


def test_a_script_may_hold_a_sub_agent_s_script() -> None:
    source = 'SCRIPT: CALL agent {"prompt": "SCRIPT: SAY inner;;"} THEN SAY outer;;'
    assert decide([Event("user", source)], has_tools=True).actions == (
        Call("agent", {"prompt": "SCRIPT: SAY inner;;"}),
    )


def test_what_is_no_script() -> None:
    assert decide([Event("user", "SCRIPT: SAY x;;")], has_tools=False).actions == (Say("Scripted title"),)
    assert decide([Event("user", "hello")], has_tools=True).actions == (Say("The prompt holds no script."),)
    [said] = decide([Event("user", "SCRIPT: DANCE;;")], has_tools=True).actions
    assert isinstance(said, Say)
    assert said.text.startswith("Bad script: ")


# --- the APIs --------------------------------------------------------------------------------------------------------

SCRIPT = 'SCRIPT: THINK hm AND SAY one AND CALL bash {"command": "ls"} THEN SAY two;;'


async def test_chat_completions(client: httpx.AsyncClient) -> None:
    path = "/v1/chat/completions"
    chunks = await events(client, path, body(path, SCRIPT))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta] == ["hm"]
    assert "".join(delta.get("content", "") for delta in deltas) == "one"
    [call] = next(delta["tool_calls"] for delta in deltas if "tool_calls" in delta)
    assert call["function"] == {"name": "bash", "arguments": '{"command": "ls"}'}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["usage"]["total_tokens"] == 1050
    history = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "x"},
    ]
    chunks = await events(client, path, body(path, SCRIPT, *history))
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks] == ["", "two", None]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_responses(client: httpx.AsyncClient) -> None:
    path = "/v1/responses"
    told = await events(client, path, body(path, SCRIPT))
    output = told[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
    assert output[2]["arguments"] == '{"command": "ls"}'
    assert [each["delta"] for each in told if each["type"].endswith(".delta")] == ["hm", "one", '{"command": "ls"}']
    history = [output[2], {"type": "function_call_output", "call_id": output[2]["call_id"], "output": "x"}]
    told = await events(client, path, body(path, SCRIPT, *history))
    assert told[-1]["response"]["output"][0]["content"][0]["text"] == "two"


async def test_messages(client: httpx.AsyncClient) -> None:
    path = "/v1/messages"
    told = await events(client, path, body(path, SCRIPT))
    blocks = [each["content_block"] for each in told if each["type"] == "content_block_start"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
    assert (told[0]["type"], told[-1]["type"]) == ("message_start", "message_stop")
    assert told[-2]["delta"]["stop_reason"] == "tool_use"
    partial = [each["delta"].get("partial_json") for each in told if each["type"] == "content_block_delta"]
    assert partial[-1] == '{"command": "ls"}'
    result = {"type": "tool_result", "tool_use_id": blocks[2]["id"], "content": "x"}
    history = [{"role": "assistant", "content": [blocks[2]]}, {"role": "user", "content": [result]}]
    told = await events(client, path, body(path, SCRIPT, *history))
    assert [each["delta"]["text"] for each in told if each["type"] == "content_block_delta"] == ["two"]
    assert told[-2]["delta"]["stop_reason"] == "end_turn"


@pytest.mark.parametrize("path", list(TOOLS))
async def test_a_request_without_tools_or_stream_is_a_title(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.post(path, json=body(path, SCRIPT, tools=[], stream=False))
    assert answer.status_code == 200
    assert "Scripted title" in answer.text


@pytest.mark.parametrize("path", list(TOOLS))
async def test_errors_are_counted(client: httpx.AsyncClient, path: str) -> None:
    request = body(path, "SCRIPT: ERROR 429 2 AND SAY ok;;")
    answers = [await client.post(path, json=request) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].json()["error"]["type"] == "rate_limit_error"
    assert "ok" in answers[2].text


async def test_a_hanging_answer_can_be_left(client: httpx.AsyncClient) -> None:
    request = body("/v1/messages", "SCRIPT: SAY begun AND HANG;;")
    async with client.stream("POST", "/v1/messages", json=request) as answer:
        async for line in answer.aiter_lines():
            if "begun" in line:
                break


async def test_requests_are_kept_with_their_credential(server: ModelServer, client: httpx.AsyncClient) -> None:
    for path, headers in (
        ("/v1/messages", {"x-api-key": "k1"}),
        ("/v1/responses", {"authorization": "Bearer k2"}),
        ("/v1/chat/completions", {}),
    ):
        await client.post(path, json=body(path, "SCRIPT: SAY x;;"), headers=headers)
    await client.get("/v1/models")
    await client.post("/v1/messages/count_tokens", json={})
    assert (await client.get("/telemetry")).status_code == 404
    assert [request.key for request in server.inferences()] == ["k1", "k2", ""]
    assert [request.tools for request in server.inferences()] == [["bash"]] * 3
    assert [request.path for request in server.requests][3:] == [
        "/v1/models",
        "/v1/messages/count_tokens",
        "/telemetry",
    ]
    assert len((await client.get("/requests")).json()) == 6


async def test_a_key_can_be_demanded() -> None:
    async with serving(ModelServer(key="right")) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        path = "/v1/chat/completions"
        request = body(path, "SCRIPT: SAY x;;")
        wrong = await client.post(path, json=request, headers={"authorization": "Bearer wrong"})
        right = await client.post(path, json=request, headers={"authorization": "Bearer right"})
        assert (wrong.status_code, right.status_code) == (401, 200)


async def test_it_runs_by_its_path(unused_tcp_port: int) -> None:
    file = Path(fakes.model_server.__file__)
    process = await asyncio.create_subprocess_exec(sys.executable, str(file), str(unused_tcp_port), cwd="/")
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{unused_tcp_port}", trust_env=False) as client:
            async with asyncio.timeout(20):
                while True:
                    try:
                        answer = await client.get("/v1/models")
                        break
                    except httpx.ConnectError:
                        await asyncio.sleep(0.05)
        assert answer.json()["data"][0]["id"] == "scripted"
    finally:
        process.kill()
        await process.wait()
