"""A2A over gRPC on a real port: the same admissions and refusals as over HTTP (requirements A1, A11, I3, I8)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as legacy
from a2a.types import a2a_pb2 as pb
from fakes.desk import DONE, WORKING, Desk
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from a2a_serve.auth.gate import Gate
from a2a_serve.auth.tokens import TokenMethod, derive_local
from a2a_serve.core.errors import ConfigError, PortTaken
from a2a_serve.core.model import Pairing
from a2a_serve.listeners.grpc import GrpcLimits, GrpcListener
from a2a_serve.server.a2a import Handler
from a2a_serve.server.grpc import DETAILS, Application
from a2a_serve.server.json_hygiene import JsonLimits
from a2a_serve.server.tasks import Tasks

TOKEN = derive_local(b"key")
BEARER = ("authorization", f"Bearer {TOKEN}")
V10, V03 = "/lf.a2a.v1.A2AService/", "/a2a.v1.A2AService/"


async def nobody(digest: bytes) -> Pairing | None:
    return None


class Client:
    """Calls any method, as any caller would."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self.trailing: dict[str, Any] = {}

    async def call(self, path: str, request: Message | bytes, answer: Callable[[], Message], *metadata: Any) -> Any:
        method = self._channel.unary_unary(path, _serialize, _reader(answer))
        return await self._finish(method(request, metadata=metadata or (BEARER,), timeout=10))

    async def _finish(self, call: Any) -> Any:
        try:
            return await call
        finally:
            self.trailing = dict(await call.trailing_metadata())

    def stream(self, path: str, request: Message, answer: Callable[[], Message], *metadata: Any) -> Any:
        method = self._channel.unary_stream(path, _serialize, _reader(answer))
        return method(request, metadata=metadata or (BEARER,), timeout=10)

    async def refusal(self, call: Awaitable[Any]) -> Refusal:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return Refusal(caught.value)


class Refusal:
    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code, self.sentence = error.code(), error.details() or ""
        trailing: dict[str, Any] = dict(error.trailing_metadata() or ())
        self.request_id = trailing.get("x-request-id", "")
        self.status = Status()
        self.status.ParseFromString(trailing.get(DETAILS, b""))

    def detail(self, kind: Callable[[], Any]) -> Any:
        found = kind()
        for each in self.status.details:
            if each.Is(found.DESCRIPTOR):
                each.Unpack(found)
        return found


def _serialize(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


def _reader(answer: Callable[[], Message]) -> Callable[[bytes], Message]:
    def read(raw: bytes) -> Message:
        made = answer()
        made.ParseFromString(raw)
        return made

    return read


def send(text: str = "hello", **message: Any) -> pb.SendMessageRequest:
    parts = [pb.Part(text=text)]
    fields = {"message_id": "m1", "role": pb.ROLE_USER, "parts": parts, **message}
    return pb.SendMessageRequest(message=pb.Message(**fields))


def send_legacy(text: str = "hello", **message: Any) -> legacy.SendMessageRequest:
    fields = {"message_id": "m1", "role": legacy.ROLE_USER, "content": [legacy.Part(text=text)], **message}
    return legacy.SendMessageRequest(
        request=legacy.Message(**fields), configuration=legacy.SendMessageConfiguration(blocking=True)
    )


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def listener(desk: Desk) -> AsyncIterator[GrpcListener]:
    gate = Gate([TokenMethod(nobody, TOKEN, "alice")], limit=3)
    serving = GrpcListener("grpc")
    await serving.start(Application(Handler(cast(Tasks, desk)), gate, limits=JsonLimits(values=5000)))
    yield serving
    await serving.stop(0)


@pytest.fixture
async def client(listener: GrpcListener) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{listener.port}") as channel:
        yield Client(channel)


# --- calls ---------------------------------------------------------------------------------------------------------


async def test_a_message_is_sent_as_who_the_token_says(client: Client, desk: Desk) -> None:
    answer = await client.call(V10 + "SendMessage", send(), pb.SendMessageResponse)

    assert answer.task.status.state == DONE
    assert answer.task.artifacts[0].parts[0].text == "hello"
    assert (desk.seen[0][0].id, desk.seen[0][0].name) == ("local:owner", "alice")
    assert len(client.trailing["x-request-id"]) == 16


async def test_a_stream_has_the_whole_turn_and_ends(client: Client, desk: Desk) -> None:
    events = client.stream(V10 + "SendStreamingMessage", send("wait"), pb.StreamResponse)
    first = await events.read()
    live = desk.live[first.task.id]
    live.append_text("response", " and more", last=True)
    await live.settle(DONE, 3.0, [], "m", {})

    rest = [each async for each in _rest(events)]

    assert first.task.status.state == WORKING
    assert rest[0].artifact_update.artifact.parts[0].text == " and more"
    assert rest[-1].status_update.status.state == DONE


async def test_a_legacy_caller_sends_streams_and_gets(client: Client, desk: Desk) -> None:
    answer = await client.call(V03 + "SendMessage", send_legacy(), legacy.SendMessageResponse)
    events = client.stream(V03 + "SendStreamingMessage", send_legacy(), legacy.StreamResponse)
    streamed = [event async for event in events]
    request = legacy.GetTaskRequest(name=f"tasks/{answer.task.id}")
    found = await client.call(V03 + "GetTask", request, legacy.Task)

    assert answer.task.status.state == legacy.TASK_STATE_COMPLETED
    assert streamed[0].task.artifacts[0].parts[0].text == "hello"
    assert found.id == answer.task.id


async def test_a_reader_that_leaves_is_followed_no_further(client: Client, desk: Desk) -> None:
    events = client.stream(V10 + "SendStreamingMessage", send("wait"), pb.StreamResponse)
    first = await events.read()
    live = desk.live[first.task.id]
    assert not live.left.is_set()

    events.cancel()

    async with asyncio.timeout(5):
        await live.left.wait()


@pytest.mark.parametrize("path", [V10, V03])
async def test_an_unknown_task_and_an_unknown_method(client: Client, path: str) -> None:
    request = pb.GetTaskRequest(id="nope") if path == V10 else legacy.GetTaskRequest(name="tasks/nope")
    unknown = await client.refusal(client.call(path + "GetTask", request, pb.Task))
    missing = await client.refusal(client.call(path + "Nothing", pb.GetTaskRequest(id="x"), pb.Task))

    assert unknown.code is grpc.StatusCode.NOT_FOUND
    assert missing.code is grpc.StatusCode.UNIMPLEMENTED


async def _rest(events: Any) -> AsyncIterator[pb.StreamResponse]:
    while (event := await events.read()) is not grpc.aio.EOF:
        yield event


# --- who it is -----------------------------------------------------------------------------------------------------

BAD_CREDENTIALS = [
    pytest.param([], "NOT_SIGNED_IN", id="none"),
    pytest.param([("authorization", f"Bearer {TOKEN[:-1]}")], "BAD_CREDENTIAL", id="cut"),
    pytest.param([("authorization", f"Basic {TOKEN}")], "BAD_CREDENTIAL", id="another scheme"),
    pytest.param([("authorization", "")], "BAD_CREDENTIAL", id="empty"),
    pytest.param([("x-authorization", f"Bearer {TOKEN}")], "NOT_SIGNED_IN", id="another name"),
    pytest.param([("authorization-bin", TOKEN.encode())], "NOT_SIGNED_IN", id="binary"),
]


@pytest.mark.parametrize(("metadata", "reason"), BAD_CREDENTIALS)
@pytest.mark.parametrize("path", [V10, V03])
async def test_nobody_gets_in_without_a_good_credential(
    client: Client, desk: Desk, path: str, metadata: list[Any], reason: str
) -> None:
    metadata = metadata or [("x-nothing", "1")]
    refused = await client.refusal(client.call(path + "SendMessage", send(), pb.SendMessageResponse, *metadata))

    assert refused.code is grpc.StatusCode.UNAUTHENTICATED
    info = refused.detail(ErrorInfo)
    assert (info.reason, info.domain) == (reason, "a2a-protocol.org")
    assert info.metadata["requestId"] == refused.request_id
    assert not desk.seen


async def test_a_stream_needs_a_credential_too(client: Client) -> None:
    events = client.stream(V10 + "SendStreamingMessage", send(), pb.StreamResponse, ("x-nothing", "1"))

    assert (await client.refusal(events.read())).code is grpc.StatusCode.UNAUTHENTICATED


async def test_two_credentials_are_none(client: Client) -> None:
    refused = await client.refusal(client.call(V10 + "SendMessage", send(), pb.Task, BEARER, BEARER))

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_guessing_is_slowed_down_but_a_good_credential_passes(client: Client) -> None:
    bad = ("authorization", "Bearer a2as_pair_x")
    codes = [
        (await client.refusal(client.call(V10 + "SendMessage", send(), pb.SendMessageResponse, bad))) for _ in range(4)
    ]

    assert [each.code for each in codes[:3]] == [grpc.StatusCode.UNAUTHENTICATED] * 3
    assert codes[3].code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert 0 < codes[3].detail(RetryInfo).retry_delay.seconds <= 60
    assert await client.call(V10 + "SendMessage", send(), pb.SendMessageResponse)


async def test_a_strangers_message_is_not_even_parsed(client: Client) -> None:
    garbage = b"\xff\xff\xff"
    stranger = await client.refusal(client.call(V10 + "SendMessage", garbage, pb.Task, ("x-nothing", "1")))
    known = await client.refusal(client.call(V10 + "SendMessage", garbage, pb.Task))

    assert stranger.code is grpc.StatusCode.UNAUTHENTICATED
    assert known.code is grpc.StatusCode.INVALID_ARGUMENT
    assert known.sentence == "The message cannot be read."


# --- what is sent --------------------------------------------------------------------------------------------------

LONG = "x" * 129
BAD_MESSAGES = [
    pytest.param({"message_id": "a b"}, "message.messageId", id="id with a space"),
    pytest.param({"message_id": LONG}, "message.messageId", id="id too long"),
    pytest.param({"context_id": "../x"}, "message.contextId", id="path as context"),
    pytest.param({"task_id": "t\n1"}, "message.taskId", id="newline in a task id"),
    pytest.param({"role": pb.ROLE_AGENT}, "message.role", id="the agent's role"),
    pytest.param({"role": pb.ROLE_UNSPECIFIED}, "message.role", id="no role"),
    pytest.param({"role": 7}, "message.role", id="unknown role"),
    pytest.param({"extensions": ["a\0b"]}, "message.extensions[0]", id="NUL in an extension"),
]


@pytest.mark.parametrize(("fields", "field"), BAD_MESSAGES)
@pytest.mark.parametrize("path", [V10, V03])
async def test_bad_fields_are_refused_by_name(
    client: Client, desk: Desk, path: str, fields: dict[str, Any], field: str
) -> None:
    request = send(**fields) if path == V10 else send_legacy(**fields)
    refused = await client.refusal(client.call(path + "SendMessage", request, pb.Task))

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert field in refused.sentence
    if path == V10:
        assert refused.detail(BadRequest).field_violations[0].field == field
    assert not desk.seen


def _deep() -> pb.Part:
    part = pb.Part()
    part.data.struct_value.fields["a"].list_value.values.add().struct_value.fields["k\0"].string_value = "x"
    return part


def _many() -> pb.Part:
    part = pb.Part()
    for _ in range(6000):
        part.data.list_value.values.add()
    return part


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        pytest.param([pb.Part(text="x")] * 1001, "more than 1000 entries", id="too many parts"),
        pytest.param([pb.Part(text="a\0b")], "message.parts[0].text holds", id="NUL in a text"),
        pytest.param([_deep()], "U+0000", id="NUL in a key of data"),
        pytest.param([_many()], "more than 5000 values", id="too many values"),
    ],
)
async def test_bad_content_is_refused(client: Client, desk: Desk, parts: list[pb.Part], sentence: str) -> None:
    refused = await client.refusal(client.call(V10 + "SendMessage", send(parts=parts), pb.Task))

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in refused.sentence
    assert not desk.seen


async def test_a_legacy_part_of_nothing_is_the_callers_fault(client: Client, desk: Desk) -> None:
    request = send_legacy(content=[legacy.Part()])
    refused = await client.refusal(client.call(V03 + "SendMessage", request, legacy.Task))

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert not desk.seen


async def test_bytes_and_numbers_may_hold_zeros(client: Client) -> None:
    part = pb.Part(raw=b"a\0b", media_type="image/png")
    number = pb.Part()
    number.data.number_value = 4.0

    parts = [pb.Part(text="hello"), part, number]
    assert await client.call(V10 + "SendMessage", send(parts=parts), pb.SendMessageResponse)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_message_over_the_limit_is_refused(
    listener: GrpcListener, desk: Desk, compression: grpc.Compression
) -> None:
    target = f"127.0.0.1:{listener.port}"
    async with grpc.aio.insecure_channel(target, compression=compression) as channel:
        client = Client(channel)
        refused = await client.refusal(client.call(V10 + "SendMessage", send("x" * (17 << 20)), pb.Task))

    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not desk.seen


async def test_a_message_under_the_limit_comes_back_whole(listener: GrpcListener) -> None:
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{listener.port}", options=options) as channel:
        parts = [pb.Part(text="hello"), pb.Part(text="x" * (15 << 20))]
        request = send(parts=[*parts])
        answer = await Client(channel).call(V10 + "SendMessage", request, pb.SendMessageResponse)

    assert len(answer.task.history[0].parts[1].text) == 15 << 20


VERSIONS = [
    (V10, "1.0", True),
    (V10, "1.0.1", True),
    (V10, "1.9", False),
    (V10, "10.0", False),
    (V10, "1.0.", False),
    (V10, "0.3", False),
    (V10, "99.0", False),
    (V10, "one", False),
    (V03, "0.3", True),
    (V03, "0.3.0", True),
    (V03, "1.0", False),
    (V03, "0.2", False),
]


@pytest.mark.parametrize(("path", "version", "fits"), VERSIONS)
async def test_the_version_asked_for_is_the_services_own(
    client: Client, desk: Desk, path: str, version: str, fits: bool
) -> None:
    request, answer = (send(), pb.SendMessageResponse) if path == V10 else (send_legacy(), legacy.SendMessageResponse)
    call = client.call(path + "SendMessage", request, answer, BEARER, ("a2a-version", version))
    if fits:
        assert await call
        return

    refused = await client.refusal(call)
    assert refused.code is grpc.StatusCode.FAILED_PRECONDITION
    if path == V10:
        assert refused.detail(ErrorInfo).reason == "VERSION_NOT_SUPPORTED"
    assert not desk.seen


# --- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [V10, V03])
async def test_no_exception_text_leaves_the_server(client: Client, path: str) -> None:
    request = send("break") if path == V10 else send_legacy("break")
    refused = await client.refusal(client.call(path + "SendMessage", request, pb.Task))

    assert refused.code is grpc.StatusCode.INTERNAL
    assert refused.request_id
    assert "alice" not in refused.sentence
    assert "RuntimeError" not in refused.sentence


class Broken(Handler):
    """Fails outside of what `Handler` tells plainly, and activates an extension."""

    async def on_get_task(self, params: pb.GetTaskRequest, context: Any) -> pb.Task:
        context.state["extensions"] += sorted(context.requested_extensions)
        if params.id == "bad":
            raise RuntimeError("/home/alice/.ssh is in the way")
        return pb.Task(id=params.id, context_id="c")


@pytest.fixture
async def broken() -> AsyncIterator[Client]:
    serving = GrpcListener("grpc")
    gate = Gate([TokenMethod(nobody, TOKEN, "alice")])
    await serving.start(Application(Broken(cast(Tasks, Desk())), gate))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
        yield Client(channel)
    await serving.stop(0)


@pytest.mark.parametrize("path", [V10, V03])
async def test_a_fault_that_nobody_foresaw_is_told_plainly_too(
    broken: Client, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    request = pb.GetTaskRequest(id="bad") if path == V10 else legacy.GetTaskRequest(name="tasks/bad")
    refused = await broken.refusal(broken.call(path + "GetTask", request, pb.Task))

    assert refused.code is grpc.StatusCode.INTERNAL
    assert refused.sentence.endswith("The server failed; its log has the cause.")
    assert refused.request_id in caplog.text


async def test_activated_extensions_are_echoed(broken: Client) -> None:
    asked = ("a2a-extensions", "https://a.example/x, https://a.example/y")
    await broken.call(V10 + "GetTask", pb.GetTaskRequest(id="t1"), pb.Task, BEARER, asked)

    assert broken.trailing["a2a-extensions"] == "https://a.example/x, https://a.example/y"


# --- the listener --------------------------------------------------------------------------------------------------


async def test_a_taken_port_is_said_so(listener: GrpcListener) -> None:
    with pytest.raises(PortTaken, match=f"Port {listener.port} on 127.0.0.1 is taken"):
        GrpcListener("grpc", port=listener.port).bind()


async def test_a_port_taken_by_anybody_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PortTaken):
        GrpcListener("grpc", port=taken.getsockname()[1]).bind()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "", "::"])
async def test_only_loopback_is_served(host: str) -> None:
    with pytest.raises(ConfigError):
        GrpcListener("grpc", host).bind()


async def test_a_bound_port_is_known_before_it_serves() -> None:
    serving = GrpcListener("grpc", "localhost")
    serving.bind()
    assert serving.port > 0
    await serving.stop(0)


async def test_stop_ends_open_streams_in_bounded_time(desk: Desk) -> None:
    serving = GrpcListener("grpc")
    await serving.start(Application(Handler(cast(Tasks, desk)), Gate([TokenMethod(nobody, TOKEN)])))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
        client = Client(channel)
        events = client.stream(V10 + "SendStreamingMessage", send("wait"), pb.StreamResponse)
        await events.read()

        async with asyncio.timeout(3):
            await serving.stop(0.1)
            refused = await client.refusal(events.read())

    assert refused.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    await serving.stop(0)


async def test_calls_over_the_limit_are_refused_at_once(desk: Desk) -> None:
    serving = GrpcListener("grpc", limits=GrpcLimits(calls=1))
    await serving.start(Application(Handler(cast(Tasks, desk)), Gate([TokenMethod(nobody, TOKEN)])))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
        client = Client(channel)
        events = client.stream(V10 + "SendStreamingMessage", send("wait"), pb.StreamResponse)
        await events.read()
        refused = await client.refusal(client.call(V10 + "SendMessage", send(), pb.SendMessageResponse))
        events.cancel()

    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await serving.stop(0)
