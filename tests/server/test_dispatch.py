"""Callers of A2A 1.0 over JSON-RPC and REST, through the whole edge: one sentence, never a parser's own (A1, A11)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest
from fakes.desk import Desk
from starlette.applications import Starlette

from a2a_serve.auth.gate import Gate
from a2a_serve.auth.tokens import TokenMethod, derive_local
from a2a_serve.core.model import Pairing
from a2a_serve.listeners.local import TcpListener
from a2a_serve.server.a2a import JSONRPC_PATH, REST_PATH, Handler, routes
from a2a_serve.server.http import Guard
from a2a_serve.server.tasks import Tasks

TOKEN = derive_local(b"key")
LEAKS = ("Failed to parse", "Traceback", "has no field", "Message type", "Couldn't parse", "Incorrect params", "alice")


async def nobody(digest: bytes) -> Pairing | None:
    return None


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    serving = TcpListener("local")
    app = Starlette(routes=routes(Handler(cast(Tasks, desk)), {"jsonrpc", "rest"}))
    await serving.start(Guard(app, Gate([TokenMethod(nobody, TOKEN)])))
    headers = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{serving.port}", headers=headers, timeout=10) as client:
        yield client
    await serving.stop(0)


def message(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}], **fields}


async def rpc(client: httpx.AsyncClient, method: str, params: Any) -> dict[str, Any]:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    found: dict[str, Any] = (await client.post(JSONRPC_PATH, json=call)).json()
    return found


BAD_MESSAGES: list[Any] = [
    {},
    {"message": "text"},
    {"message": message(parts="text")},
    {"message": message(parts=[])},
    {"message": message(parts=[{"text": 7}])},
    {"message": message(parts=[{"raw": "not base64!"}])},
    {"message": message(metadata=[1])},
    {"message": message(), "configuration": {"historyLength": "many"}},
    {"message": message(), "configuration": {"historyLength": -1}},
]


@pytest.mark.parametrize("params", BAD_MESSAGES)
@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_bad_message_over_json_rpc(
    client: httpx.AsyncClient, desk: Desk, method: str, params: dict[str, Any]
) -> None:
    error = (await rpc(client, method, params))["error"]

    assert error["code"] == -32602
    assert not desk.seen
    assert not [each for each in LEAKS if each in json.dumps(error)]


@pytest.mark.parametrize("body", BAD_MESSAGES)
@pytest.mark.parametrize("verb", ["send", "stream"])
async def test_a_bad_message_over_rest(client: httpx.AsyncClient, desk: Desk, verb: str, body: Any) -> None:
    answer = await client.post(f"{REST_PATH}/message:{verb}", json=body)

    assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert not desk.seen
    assert not [each for each in LEAKS if each in answer.text]


@pytest.mark.parametrize(
    ("params", "code"), [("text", -32600), (7, -32600), ({"id": 7}, -32602), ({"id": ["a"]}, -32602), ({}, -32602)]
)
async def test_bad_params_over_json_rpc(client: httpx.AsyncClient, params: Any, code: int) -> None:
    error = (await rpc(client, "GetTask", params))["error"]

    assert error["code"] == code
    assert not [each for each in LEAKS if each in json.dumps(error)]


@pytest.mark.parametrize("method", ["Nothing", "sendMessage", "message/nothing", "__init__"])
async def test_an_unknown_method(client: httpx.AsyncClient, method: str) -> None:
    assert (await rpc(client, method, {}))["error"]["code"] == -32601


@pytest.mark.parametrize("query", ["historyLength=many", "historyLength=-1", "historyLength=99999999999"])
async def test_a_bad_query_over_rest(client: httpx.AsyncClient, query: str) -> None:
    task = (await rpc(client, "SendMessage", {"message": message()}))["result"]["task"]

    answer = await client.get(f"{REST_PATH}/tasks/{task['id']}?{query}")
    assert answer.status_code == 400
    assert not [each for each in LEAKS if each in answer.text]


@pytest.mark.parametrize("length", [0, 1, 2, 3, 100])
async def test_as_much_history_as_asked_for(client: httpx.AsyncClient, desk: Desk, length: int) -> None:
    task = (await rpc(client, "SendMessage", {"message": message()}))["result"]["task"]
    desk.live[task["id"]].task.history.add(message_id="m2")

    found = (await rpc(client, "GetTask", {"id": task["id"], "historyLength": length}))["result"]
    assert [each["messageId"] for each in found.get("history", [])] == ["m1", "m2"][max(0, 2 - length) :]


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_fault_is_told_plainly(client: httpx.AsyncClient, method: str) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message("break")}}
    answer = await client.post(JSONRPC_PATH, json=call)

    assert "-32603" in answer.text
    assert not [each for each in LEAKS if each in answer.text]


async def test_push_is_not_offered(client: httpx.AsyncClient) -> None:
    answer = await client.delete(f"{REST_PATH}/tasks/t1/pushNotificationConfigs/c1")

    assert answer.json()["error"]["details"][0]["reason"] == "PUSH_NOTIFICATION_NOT_SUPPORTED"
