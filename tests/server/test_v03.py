"""Callers of A2A 0.3 over JSON-RPC and REST, through the whole edge (requirements A1, A11)."""

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
INVALID_PARAMS, NOT_FOUND, NO_PUSH = -32602, -32001, -32003


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
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{serving.port}", headers=headers, timeout=10) as client:
        yield client
    await serving.stop(0)


def message(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"messageId": "m1", "role": "user", "parts": [{"kind": "text", "text": text}], **fields}


def rest_message(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": text}], **fields}


async def rpc(client: httpx.AsyncClient, method: str, params: Any, path: str = JSONRPC_PATH) -> dict[str, Any]:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await client.post(path, json=call)
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line[5:]) for line in answer.text.splitlines() if line.startswith("data:")]


# --- JSON-RPC ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [JSONRPC_PATH, JSONRPC_PATH + "/"])
async def test_a_message_is_answered_in_the_form_of_0_3(client: httpx.AsyncClient, path: str) -> None:
    task = (await rpc(client, "message/send", {"message": message()}, path))["result"]

    assert task["kind"] == "task"
    assert task["status"]["state"] == "completed"
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "hello"}]


async def test_a_stream_over_json_rpc(client: httpx.AsyncClient) -> None:
    call = {"jsonrpc": "2.0", "id": "s", "method": "message/stream", "params": {"message": message()}}
    streamed = events(await client.post(JSONRPC_PATH, json=call))

    assert streamed[-1]["id"] == "s"
    assert streamed[-1]["result"]["status"]["state"] == "completed"


async def test_a_task_is_found_again(client: httpx.AsyncClient) -> None:
    task = (await rpc(client, "message/send", {"message": message()}))["result"]

    assert (await rpc(client, "tasks/get", {"id": task["id"]}))["result"]["id"] == task["id"]
    assert (await rpc(client, "tasks/get", {"id": "nope"}))["error"]["code"] == NOT_FOUND


BAD_PARAMS: list[Any] = [
    ("message/send", {}),
    ("message/send", {"": "not a message"}),
    ("message/send", {"message": "text"}),
    ("message/send", {"message": {"messageId": "m1", "parts": [{"kind": "text", "text": "x"}]}}),
    ("message/send", {"message": {"role": "user", "parts": [{"kind": "text", "text": "x"}]}}),
    ("message/send", {"message": {"messageId": "m1", "role": "user"}}),
    ("message/send", {"message": message(parts=[])}),
    ("message/send", {"message": message(parts=[{}])}),
    ("message/send", {"message": message(parts=[{"kind": "nothing"}])}),
    ("message/send", {"message": message(parts=[{"kind": "file", "file": {"bytes": "not base64!"}}])}),
    (
        "message/send",
        {"message": message(parts=[{"kind": "data", "data": {}, "metadata": {"data_part_compat": True}}])},
    ),
    ("message/send", {"message": message(), "configuration": {"historyLength": -1}}),
    ("message/stream", {"message": {}}),
    ("tasks/get", {}),
    ("tasks/get", {"id": None}),
    ("tasks/get", {"id": 7}),
    ("tasks/get", {"id": "t1", "historyLength": "many"}),
    ("tasks/cancel", {"taskId": "t1"}),
    ("tasks/get", None),
]


@pytest.mark.parametrize(("method", "params"), BAD_PARAMS)
async def test_bad_params_are_told_as_such(client: httpx.AsyncClient, desk: Desk, method: str, params: Any) -> None:
    error = (await rpc(client, method, params))["error"]

    assert error["code"] == INVALID_PARAMS, error
    assert not desk.seen
    for leaked in ("pydantic", "validation error", "Traceback", "input_value", "binascii", "KeyError"):
        assert leaked not in json.dumps(error)


async def test_a_negative_history_is_refused(client: httpx.AsyncClient) -> None:
    task = (await rpc(client, "message/send", {"message": message()}))["result"]

    error = (await rpc(client, "tasks/get", {"id": task["id"], "historyLength": -1}))["error"]
    assert error["code"] == INVALID_PARAMS


async def test_no_exception_text_over_json_rpc(client: httpx.AsyncClient) -> None:
    error = (await rpc(client, "message/send", {"message": message("break")}))["error"]

    assert error["code"] == -32603
    assert "alice" not in json.dumps(error)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("set", {"taskId": "t1", "pushNotificationConfig": {"url": "https://example.com/hook"}}),
        ("get", {"id": "t1"}),
        ("get", {"id": "t1", "pushNotificationConfigId": "c1"}),
        ("list", {"id": "t1"}),
        ("delete", {"id": "t1", "pushNotificationConfigId": "c1"}),
    ],
)
async def test_push_is_not_offered(client: httpx.AsyncClient, method: str, params: Any) -> None:
    answer = await rpc(client, f"tasks/pushNotificationConfig/{method}", params)

    assert answer["error"]["code"] == NO_PUSH


async def test_a_call_of_0_3_that_asks_for_1_0_is_refused(client: httpx.AsyncClient, desk: Desk) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message()}}
    answer = await client.post(JSONRPC_PATH, json=call, headers={"A2A-Version": "1.0"})

    assert "error" in answer.json()
    assert not desk.seen


# --- REST ----------------------------------------------------------------------------------------------------------


async def test_a_message_over_rest(client: httpx.AsyncClient) -> None:
    body = {"message": rest_message(), "configuration": {"blocking": True}}
    answer = await client.post(f"{REST_PATH}/v1/message:send", json=body)

    task = answer.json()["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    found = await client.get(f"{REST_PATH}/v1/tasks/{task['id']}")
    assert found.json()["artifacts"][0]["parts"][0]["text"] == "hello"


async def test_a_stream_over_rest(client: httpx.AsyncClient) -> None:
    streamed = events(await client.post(f"{REST_PATH}/v1/message:stream", json={"message": rest_message()}))

    assert streamed[-1]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


BAD_BODIES: list[Any] = [
    {},
    {"message": "text"},
    {"message": {"messageId": "m1", "content": [{"text": "x"}]}},
    {"message": rest_message(role=2)},
    {"message": rest_message(role="ROLE_UNSPECIFIED")},
    {"message": rest_message(content="text")},
    {"message": rest_message(content=[])},
    {"message": rest_message(), "configuration": {"historyLength": "many"}},
    [],
]


@pytest.mark.parametrize("body", BAD_BODIES)
@pytest.mark.parametrize("verb", ["send", "stream"])
async def test_a_bad_body_is_told_as_such(client: httpx.AsyncClient, desk: Desk, verb: str, body: Any) -> None:
    answer = await client.post(f"{REST_PATH}/v1/message:{verb}", json=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"
    assert not desk.seen
    for leaked in ("pydantic", "Failed to parse", "Traceback", "has no field"):
        assert leaked not in answer.text


@pytest.mark.parametrize("history", ["-1", "many", "1.5"])
async def test_a_bad_history_length_over_rest(client: httpx.AsyncClient, history: str) -> None:
    body = {"message": rest_message(), "configuration": {"blocking": True}}
    task = (await client.post(f"{REST_PATH}/v1/message:send", json=body)).json()["task"]

    answer = await client.get(f"{REST_PATH}/v1/tasks/{task['id']}", params={"historyLength": history})
    assert answer.status_code == 400


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_following_an_unknown_task_is_an_error_and_no_stream(client: httpx.AsyncClient, verb: str) -> None:
    answer = await client.request(verb, f"{REST_PATH}/v1/tasks/nope:subscribe")

    assert answer.status_code == 404
    assert answer.json()["error"]["status"] == "NOT_FOUND"


async def test_a_fault_before_a_stream_is_an_error_and_no_stream(client: httpx.AsyncClient) -> None:
    answer = await client.post(f"{REST_PATH}/v1/message:stream", json={"message": rest_message("break")})

    assert answer.status_code == 500
    assert "alice" not in answer.text


CONFIGS = f"{REST_PATH}/v1/tasks/t1/pushNotificationConfigs"


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("POST", CONFIGS, {"pushNotificationConfig": {"url": "https://example.com/hook"}}),
        ("POST", CONFIGS, {"parent": "tasks/t1", "configId": "c1", "config": {}}),
        ("GET", CONFIGS, None),
        ("GET", f"{CONFIGS}/c1", None),
        ("DELETE", f"{CONFIGS}/c1", None),
    ],
)
async def test_push_is_not_offered_over_rest(client: httpx.AsyncClient, verb: str, path: str, body: Any) -> None:
    answer = await client.request(verb, path, json=body)

    assert answer.json()["error"]["details"][0]["reason"] == "PUSH_NOTIFICATION_NOT_SUPPORTED"


async def test_the_paths_of_1_0_are_beside_them(client: httpx.AsyncClient) -> None:
    body = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
    answer = await client.post(f"{REST_PATH}/message:send", json=body, headers={"A2A-Version": "1.0"})

    assert answer.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_there_are_no_paths_beside_the_prefix(client: httpx.AsyncClient, desk: Desk) -> None:
    body = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
    answer = await client.post(f"/tenant{REST_PATH}/message:send", json=body, headers={"A2A-Version": "1.0"})

    assert answer.status_code == 404
    assert not desk.seen
