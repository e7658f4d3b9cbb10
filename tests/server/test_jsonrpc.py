"""Our own JSON-RPC answers exactly as the SDK's dispatcher does, good requests and bad; and its streams behave."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotCancelableError
from fakes.desk import DONE, Desk
from google.protobuf.json_format import ParseDict
from starlette.routing import Route, Router

from a2a_serve.auth.gate import Gate
from a2a_serve.auth.tokens import TokenMethod, derive_local
from a2a_serve.core.model import Identity, Pairing, Role
from a2a_serve.listeners import ASGIApp, Scope
from a2a_serve.listeners.local import TcpListener
from a2a_serve.server import dispatch, surface
from a2a_serve.server.a2a import JSONRPC_PATH, CallerContext, Handler
from a2a_serve.server.exchange import Receive, Send
from a2a_serve.server.http import Guard
from a2a_serve.server.jsonrpc import JsonRpc
from a2a_serve.server.tasks import Tasks
from a2a_serve.store.tasks import TaskPage

TOKEN = derive_local(b"key")
HEADERS = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0", "Content-Type": "application/json"}
OWNER = Identity("local:owner", "owner", Role.OWNER, "local")


class BusyDesk(Desk):
    """Lists and cancels, too."""

    async def list(self, identity: Identity, *, page_size: int, **query: Any) -> TaskPage:
        tasks = [each.snapshot() for each in self.live.values()]
        return TaskPage(tasks[:page_size], "next" if tasks[page_size:] else "", len(tasks))

    async def cancel(self, identity: Identity, task_id: str) -> pb.Task:
        task = await self.get(identity, task_id)
        if task.status.state == DONE:
            raise TaskNotCancelableError
        await self.live[task_id].settle(pb.TASK_STATE_CANCELED, 3.0, [], "m9", {"turns": 1, "share": 0.5})
        return self.live[task_id].snapshot()


class Passed:
    """The SDK's dispatcher, and how often it was asked."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self.count = app, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.count += 1
        await self._app(scope, receive, send)


class Side:
    """One of two ways to serve the same desk. Its tasks: t1 is done, t2 waits."""

    def __init__(self, *, ours: bool, heartbeat: float = 60) -> None:
        self.desk = BusyDesk()
        handler = Handler(cast(Tasks, self.desk))
        self.sdk = Passed(dispatch.rpc_app(handler, CallerContext()))
        app = JsonRpc(handler, CallerContext(), self.sdk, heartbeat=heartbeat) if ours else self.sdk
        self._guard = Guard(Router([Route(JSONRPC_PATH, app, methods=["POST"])]), Gate([TokenMethod(nobody, TOKEN)]))
        self._listener = TcpListener("local")

    async def __aenter__(self) -> Side:
        await self._listener.start(self._guard)
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self._listener.port}", timeout=10)
        for text in ("hello", "wait"):
            await self.desk.submit(OWNER, ParseDict(message(text), pb.Message()))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.aclose()
        await self._listener.stop(0)

    async def post(self, body: Any, version: str = "1.0") -> tuple[int, str, Any]:
        """Status, media type, and what was said: one JSON value, or those of all events."""
        headers = {**HEADERS, "A2A-Version": version}
        answer = await self.client.post(JSONRPC_PATH, content=json.dumps(body), headers=headers)
        kind = answer.headers["content-type"].split(";")[0]
        said = read_events(answer.text) if kind == "text/event-stream" else [json.loads(answer.text)]
        return answer.status_code, kind, [json.loads(json.dumps(each), object_hook=without_ids) for each in said]

    @contextlib.asynccontextmanager
    async def stream(self, body: Any) -> AsyncIterator[AsyncIterator[str]]:
        async with self.client.stream("POST", JSONRPC_PATH, json=body, headers=HEADERS) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-store", "no")
            yield answer.aiter_lines()


async def nobody(digest: bytes) -> Pairing | None:
    return None


def read_events(text: str) -> list[Any]:
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]


def without_ids(found: dict[str, Any]) -> dict[str, Any]:
    """Those that are new with each error."""
    return {key: value for key, value in found.items() if key not in ("incident", "requestId")}


@pytest.fixture
async def ours() -> AsyncIterator[Side]:
    async with Side(ours=True, heartbeat=0.01) as side:
        yield side


@pytest.fixture
async def sdks() -> AsyncIterator[Side]:
    async with Side(ours=False) as side:
        yield side


def message(text: str, **fields: Any) -> dict[str, Any]:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}], **fields}


def call(method: Any, params: Any, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **fields}


def send(text: str, **fields: Any) -> dict[str, Any]:
    return call("SendMessage", {"message": message(text, **fields)})


PLAIN: list[Any] = [
    send("hello"),
    send("hello", metadata={"a": [1, 2.5, None, {"b": True}]}, extensions=["urn:x"], referenceTaskIds=["t1"]),
    send(
        "hello", parts=[{"text": "hello"}, {"data": {"a": 1}}, {"raw": "AAE=", "filename": "f"}, {"url": "http://x/"}]
    ),
    send("hello", somethingNew=1),
    call("SendMessage", {"message": message("wait"), "configuration": {"returnImmediately": True}}),
    call("SendMessage", {"message": message("hello"), "configuration": {"historyLength": 0}, "tenant": "x"}),
    call("SendMessage", {"message": message("hello")}, id="one"),
    call("SendStreamingMessage", {"message": message("hello")}),
    call("GetTask", {"id": "t1"}),
    call("GetTask", {"id": "t1", "historyLength": 0}),
    call("ListTasks", {}),
    call("ListTasks", {"pageSize": 1, "includeArtifacts": True}),
    call("CancelTask", {"id": "t2"}),
    call("SubscribeToTask", {"id": "t1"}),
]
REFUSED: list[Any] = [
    send("break"),
    send("hello", role="ROLE_UNSPECIFIED"),
    send("hello", parts=[]),
    send("hello", messageId=""),
    call("SendMessage", {}),
    call("SendMessage", {"message": message("hello"), "configuration": {"historyLength": -1}}),
    call(
        "SendMessage",
        {"message": message("hello"), "configuration": {"taskPushNotificationConfig": {"url": "http://x"}}},
    ),
    call("SendMessage", {"message": message("hello"), "configuration": {"taskPushNotificationConfig": {}}}),
    call("SendStreamingMessage", {"message": message("break")}),
    call("SendStreamingMessage", {"message": {"messageId": "m"}}),
    call("SendStreamingMessage", {"message": "hello"}),
    call("SubscribeToTask", {"id": "nope"}),
    call("SubscribeToTask", {}),
    call("GetTask", {"id": "nope"}),
    call("GetTask", {}),
    call("GetTask", {"id": "t1", "historyLength": -1}),
    call("CancelTask", {"id": "t1"}),
    call("CancelTask", {"id": "nope"}),
    call("ListTasks", {"pageSize": 0}),
    call("ListTasks", {"pageSize": 101}),
]
ODD: list[Any] = [
    call("GetTask", {"id": "t1"}, id=None),
    call("GetTask", {"id": "t1"}, id=True),
    call("GetTask", {"id": "t1"}, id=1.5),
    call("GetTask", {"id": "t1"}, id=["a"]),
    call("GetTask", {"id": "t1"}, jsonrpc="1.0"),
    call("GetTask", {"id": "t1"}, more=1),
    {"jsonrpc": "2.0", "method": "GetTask", "params": {"id": "t1"}},
    {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"},
    {"id": 1, "method": "ListTasks", "params": {}},
    {},
    call("GetTask", None),
    call("GetTask", ["t1"]),
    call("GetTask", "t1"),
    call("GetTask", {"id": "t1", "historyLength": "many"}),
    call("ListTasks", {"status": "TASK_STATE_NONE", "pageSize": "x"}),
    call("ListTasks", {"statusTimestampAfter": "yesterday"}),
    send("hello", parts="hello"),
    send("hello", parts=[{"text": 7}]),
    send("hello", metadata=[1]),
    call("Nothing", {}),
    call(["GetTask"], {}),
    call(None, {}),
    call("", {}),
    call("GetExtendedAgentCard", {}),
    call("CreateTaskPushNotificationConfig", {"taskId": "t1", "url": "http://x"}),
    call("tasks/get", {"id": "t1"}),
]


def meaning(body: Any, said: list[Any]) -> list[Any]:
    """A page of the SDK spells out every empty field of its tasks; what it means is compared."""
    if body.get("method") != "ListTasks" or "result" not in said[0]:
        return said
    return [{**said[0], "result": ParseDict(said[0]["result"], pb.ListTasksResponse())}]


async def compare(ours: Side, sdks: Side, body: Any, version: str = "1.0") -> None:
    status, kind, said = await ours.post(body, version)
    sdk_status, sdk_kind, sdk_said = await sdks.post(body, version)

    assert (status, kind) == (sdk_status, sdk_kind)
    assert meaning(body, said) == meaning(body, sdk_said)
    assert [each.snapshot() for each in ours.desk.live.values()] == [
        each.snapshot() for each in sdks.desk.live.values()
    ]


@pytest.mark.parametrize("body", PLAIN + REFUSED)
async def test_what_is_answered_here_is_as_the_sdk_answers(ours: Side, sdks: Side, body: Any) -> None:
    await compare(ours, sdks, body)
    assert ours.sdk.count == 0


@pytest.mark.parametrize("body", ODD)
async def test_what_is_odd_goes_to_the_sdk(ours: Side, sdks: Side, body: Any) -> None:
    await compare(ours, sdks, body)
    assert ours.sdk.count == 1


@pytest.mark.parametrize("version", ["0.3", "", "1.0.7"])
async def test_another_version(ours: Side, sdks: Side, version: str) -> None:
    await compare(ours, sdks, call("GetTask", {"id": "t1"}), version)


@pytest.mark.parametrize("method", ["SendStreamingMessage", "SubscribeToTask"])
async def test_a_stream_has_all_that_happens(ours: Side, sdks: Side, method: str) -> None:
    said = []
    for side in (ours, sdks):
        params = {"message": message("wait")} if method == "SendStreamingMessage" else {"id": "t2"}
        async with side.stream(call(method, params, id="s")) as lines:
            seen = [await anext(lines)]
            live = list(side.desk.live.values())[-1]
            live.append_text("response", " and more", last=False)
            live.put_artifact(surface.diff_artifact("a.txt", "+x"))
            await live.settle(DONE, 2.0, [surface.text_part("done")], "m2", {"turns": 1})
            said.append(read_events("\n".join([*seen, *[line async for line in lines]])))

    assert said[0] == said[1]
    assert [next(iter(each["result"])) for each in said[0]] == [
        "task",
        "artifactUpdate",
        "artifactUpdate",
        "statusUpdate",
    ]


async def test_a_silent_stream_has_a_heartbeat(ours: Side) -> None:
    async with ours.stream(call("SubscribeToTask", {"id": "t2"})) as lines, asyncio.timeout(5):
        comments = [line async for line in take(lines, 6) if line.startswith(":")]
        assert len(comments) >= 2
        await ours.desk.live["t2"].settle(DONE, 2.0, [], "m2", {})
        assert "TASK_STATE_COMPLETED" in "".join([line async for line in lines])


async def take(lines: AsyncIterator[str], count: int) -> AsyncIterator[str]:
    for _ in range(count):
        yield await anext(lines)


async def test_a_reader_that_goes_away_ends_its_stream_at_once() -> None:
    async with Side(ours=True, heartbeat=3600) as side, asyncio.timeout(5):
        async with side.stream(call("SubscribeToTask", {"id": "t2"})) as lines:
            assert "t2" in await anext(lines)
            assert side.desk.live["t2"]._subscribers
        await side.client.aclose()
        await side.desk.live["t2"].left.wait()
        assert not side.desk.live["t2"]._subscribers


async def test_a_stream_leaves_nothing_behind(ours: Side) -> None:
    async with ours.stream(call("SubscribeToTask", {"id": "t2"})) as lines:
        await anext(lines)
        await ours.desk.live["t2"].settle(DONE, 2.0, [], "m2", {})
        assert "TASK_STATE_COMPLETED" in "".join([line async for line in lines])
    await ours.post(call("GetTask", {"id": "t1"}))  # the same connection goes on

    assert not ours.desk.live["t2"]._subscribers
    assert not [each for each in asyncio.all_tasks() if "_leave_with_caller" in repr(each)]
