"""Story: three official clients, each on every binding it has, complete a turn in which a change is approved.

Requirements A1 and Q3. The clients are the Python SDK, `@a2a-js/sdk` and the stock `a2a` command (Go), as they come.
The latter two are in .tools, where scripts/tools.sh puts them; the command comes out of the sandbox image.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest
import serving as s
from a2a.client.card_resolver import A2ACardResolver
from a2a.client.client import Client, ClientCallContext, ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict

JS = Path(__file__).parent / "js"
BINDINGS = ["JSONRPC", "HTTP+JSON", "GRPC"]
VERSIONS = ["1.0", "0.3"]
SAID = "I wrote 5 characters to hello.txt."


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[s.Serving]:
    root = tmp_path / "shop"
    root.mkdir()
    async with s.serving(root, listen__grpc_port=0) as server:
        yield server


def base_of(server: s.Serving) -> str:
    return str(server.status["card_url"]).partition("/.well-known/")[0]


def url_of(server: s.Serving, binding: str) -> str:
    return next(str(each["url"]) for each in server.status["endpoints"] if each["binding"] == binding)


def written(server: s.Serving) -> str:
    return (server.directory.root / "hello.txt").read_text()


# --- Python ----------------------------------------------------------------------------------------------------------


class PythonCaller:
    """The Python SDK's client, with the token as a service parameter."""

    def __init__(self, client: Client, token: str) -> None:
        self._client = client
        self._context = ClientCallContext(service_parameters={"Authorization": f"Bearer {token}"})

    async def send(self, *parts: pb.Part, task: pb.Task | None = None) -> pb.Task:
        """The task as it stands when the stream of this message ends."""
        message = pb.Message(message_id=uuid.uuid4().hex, role=pb.ROLE_USER, parts=parts)
        if task:
            message.task_id, message.context_id = task.id, task.context_id
        task_id = ""
        async for event in self._client.send_message(pb.SendMessageRequest(message=message), context=self._context):
            task_id = event.task.id or task_id
        return await self._client.get_task(pb.GetTaskRequest(id=task_id), context=self._context)


async def connect(http: httpx.AsyncClient, base: str, binding: str, version: str) -> Client:
    card = await A2ACardResolver(http, base).get_agent_card()
    kept = [each for each in card.supported_interfaces if each.protocol_version == version]
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(kept)
    config = ClientConfig(
        httpx_client=http,
        grpc_channel_factory=grpc.aio.insecure_channel,
        supported_protocol_bindings=[binding],
    )
    return ClientFactory(config).create(card)


def question_of(task: pb.Task) -> dict[str, Any]:
    parts = MessageToDict(task.status.message)["parts"]
    return next(part["data"] for part in parts if "data" in part)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_python_client(server: s.Serving, binding: str, version: str) -> None:
    async with httpx.AsyncClient(timeout=s.WAIT, trust_env=False) as http:
        client = await connect(http, base_of(server), binding, version)
        caller = PythonCaller(client, server.owner.token)

        task = await caller.send(pb.Part(text="write hello.txt hello"))
        assert task.status.state == pb.TASK_STATE_INPUT_REQUIRED
        question = question_of(task)
        assert question["action"]["path"] == "hello.txt"
        assert not (server.directory.root / "hello.txt").exists()

        answer = pb.Part()
        ParseDict({"questionId": question["questionId"], "optionId": "allow"}, answer.data.struct_value)
        done = await caller.send(answer, task=task)
        await client.close()

    assert done.status.state == pb.TASK_STATE_COMPLETED
    assert SAID in "".join(part.text for artifact in done.artifacts for part in artifact.parts)
    assert written(server) == "hello"


# --- JavaScript ------------------------------------------------------------------------------------------------------


async def run(*command: str, given: str = "") -> str:
    """What a program prints on stdout; it has to succeed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(s.WAIT):
        out, err = await process.communicate(given.encode())
    assert process.returncode == 0, (out + err).decode()
    return out.decode()


@pytest.mark.docker
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_javascript_client(server: s.Serving, binding: str, version: str) -> None:
    words = ("write hello.txt hello", "allow")
    program = str(JS / "turn.mjs")
    told = json.loads(await run("node", program, base_of(server), binding, version, *words, given=server.owner.token))

    assert told["states"] == ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"]
    assert told["action"]["path"] == "hello.txt"
    assert told["events"] > 1
    assert SAID in told["text"]
    assert written(server) == "hello"


# --- the a2a command -------------------------------------------------------------------------------------------------


class Command:
    """The stock command. It takes a token in its arguments only; the one used here dies with the test."""

    def __init__(self, url: str, token: str, *options: str) -> None:
        self._url, self._options = url, ("--auth", f"Bearer {token}", "--timeout", "20s", *options)

    async def __call__(self, verb: str, *arguments: str) -> s.Json:
        made = await run("a2a", *verb.split(), self._url, *arguments, "-o", "json", *self._options)
        return json.loads(made)  # type: ignore[no-any-return]


@pytest.mark.docker
@pytest.mark.parametrize("transport", ["by card", "jsonrpc", "rest", "grpc"])
async def test_the_stock_command(server: s.Serving, transport: str) -> None:
    binding = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "grpc": "GRPC"}.get(transport)
    url = url_of(server, binding) if binding else base_of(server)
    options = ("--transport", transport, "--insecure") if binding else ()
    a2a = Command(url, server.owner.token, *options)

    task = await a2a("send", "write hello.txt hello")
    assert s.is_waiting(task)
    question = s.questions_of(task)[0]
    answer = json.dumps([{"data": {"questionId": question["questionId"], "optionId": "allow"}}])
    done = await a2a("send", "--task", task["id"], "--parts", answer)

    assert s.state_of(done) == "completed"
    assert SAID in s.text_of(done)
    assert written(server) == "hello"
    assert s.state_of(await a2a("get task", task["id"])) == "completed"
