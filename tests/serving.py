"""A whole server in the test's own process, and callers of it: real sockets, the real database, real processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from a2a_serve import app
from a2a_serve.auth import tokens
from a2a_serve.config import AgentDir, load
from a2a_serve.core.model import Role

Json = dict[str, Any]
WAIT = 20.0
"""Seconds after which a test that waits for a thing has failed."""
BAD_AGENT = (sys.executable, str(Path(__file__).parent / "fakes" / "bad_agent.py"))


class Refused(AssertionError):
    """A JSON-RPC error that the test did not expect, or did (`code`)."""

    def __init__(self, error: Json) -> None:
        super().__init__(error)
        self.code, self.message, self.data = error["code"], error["message"], error.get("data")


def message(text: str = "", *, data: Any = None, **fields: Any) -> Json:
    parts = ([{"text": text}] if text else []) + ([{"data": data}] if data is not None else [])
    return {"message": {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": parts, **fields}}


@dataclass
class Caller:
    """One caller over JSON-RPC, v1.0."""

    url: str
    token: str
    http: httpx.AsyncClient

    async def rpc(self, method: str, params: Json) -> Json:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = (await self.http.post(self.url, json=body, headers=self._headers())).json()
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]  # type: ignore[no-any-return]

    async def send(self, text: str = "", *, wait: bool = True, data: Any = None, **fields: Any) -> Json:
        params = {**message(text, data=data, **fields), "configuration": {"returnImmediately": not wait}}
        return (await self.rpc("SendMessage", params))["task"]  # type: ignore[no-any-return]

    async def answer(self, task: Json, option: str, **fields: Any) -> Json:
        """Answer the task's first open question by its id."""
        data = {"questionId": questions_of(task)[0]["questionId"], "optionId": option, **fields}
        return await self.send(data=data, taskId=task["id"])

    async def get(self, task_id: str) -> Json:
        return await self.rpc("GetTask", {"id": task_id})

    async def cancel(self, task_id: str) -> Json:
        return await self.rpc("CancelTask", {"id": task_id})

    async def until(self, task_id: str, good: Callable[[Json], bool]) -> Json:
        """The task once it is as wanted: asks again after each of its events."""
        task = await self.get(task_id)
        if good(task):
            return task
        with contextlib.suppress(Refused):  # it may be over by now
            async with asyncio.timeout(WAIT):
                async for _ in self.subscribe(task_id):
                    task = await self.get(task_id)
                    if good(task):
                        return task
        task = await self.get(task_id)
        if good(task):
            return task
        raise AssertionError(f"the task ended as {task['status']}")

    def stream(self, text: str = "", *, data: Any = None, **fields: Any) -> AsyncIterator[Json]:
        return self._events("SendStreamingMessage", message(text, data=data, **fields))

    def subscribe(self, task_id: str) -> AsyncIterator[Json]:
        return self._events("SubscribeToTask", {"id": task_id})

    async def _events(self, method: str, params: Json) -> AsyncIterator[Json]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self.http.stream("POST", self.url, json=body, headers=self._headers()) as response:
            if response.headers["content-type"].startswith("application/json"):
                raise Refused(json.loads(await response.aread())["error"])
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    if "error" in event:
                        raise Refused(event["error"])
                    yield event["result"]

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "A2A-Version": "1.0"}


@dataclass
class Serving:
    """A running server of `directory`."""

    directory: AgentDir
    status: Json
    http: httpx.AsyncClient
    owner: Caller
    control: httpx.AsyncClient

    async def caller(self, name: str, role: Role = Role.USER) -> Caller:
        """A further caller with a token of their own, paired over the control socket."""
        made = await self.control.post("/pairings", json={"name": name, "role": role})
        return Caller(self.owner.url, made.json()["token"], self.http)


@asynccontextmanager
async def serving(root: Path, *command: str, **settings: Any) -> AsyncIterator[Serving]:
    """Serve `root` with a local agent: the demo agent, or `command`. `settings` by dotted name, `__` for the dot."""
    directory = AgentDir.at(root)
    chosen: Json = {"sandbox.kind": "local", "listen.port": 0, "listen.grpc_port": "off", "agent.kind": "demo"}
    if command:
        chosen |= {"agent.kind": None, "agent.command": list(command)}
    chosen |= {name.replace("__", "."): value for name, value in settings.items()}
    loaded = load(directory, {}, {name: (name, value) for name, value in chosen.items()})
    ready: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(app.run(directory, loaded, ready.set_result, lambda line: None))
    running.add_done_callback(lambda done: ready.cancel())
    try:
        status = await ready
    except asyncio.CancelledError:
        await running
        raise
    token = tokens.derive_local(directory.state_key())
    transport = httpx.AsyncHTTPTransport(uds=str(directory.control_socket))
    url = next(each["url"] for each in status["endpoints"] if each["binding"] == "JSONRPC")
    async with (
        httpx.AsyncClient(timeout=WAIT, trust_env=False) as http,
        httpx.AsyncClient(transport=transport, base_url="http://control", timeout=WAIT) as control,
    ):
        yield Serving(directory, status, http, Caller(url, token, http), control)
        with contextlib.suppress(httpx.TransportError):  # a test may have stopped it
            await control.post("/stop")
        async with asyncio.timeout(WAIT):
            await running


def questions_of(task: Json) -> list[Json]:
    """The open questions that a task shows."""
    parts = task["status"].get("message", {}).get("parts", [])
    return [part["data"] for part in parts if "questionId" in part.get("data", {})]


def state_of(task: Json) -> str:
    return str(task["status"]["state"]).removeprefix("TASK_STATE_").lower()


def text_of(task: Json, artifact: str = "response") -> str:
    found = [each for each in task.get("artifacts", []) if each["artifactId"] == artifact]
    return "".join(part.get("text", "") for each in found for part in each["parts"])


def reason_of(task: Json) -> str:
    return str(task.get("metadata", {}).get("reason", ""))


def is_waiting(task: Json) -> bool:
    return state_of(task) == "input_required"


def is_over(task: Json) -> bool:
    return state_of(task) in ("completed", "failed", "canceled", "rejected")


def pids_of(marker: str) -> list[int]:
    """Processes whose command line holds `marker`, other than our own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
