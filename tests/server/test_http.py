"""The guard over real sockets: rows N1 to N15 of research/security.md section 4, and what was found beside them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from a2a_serve.auth.gate import Gate
from a2a_serve.auth.tokens import PAIR, TokenMethod, derive_local, digest, mint
from a2a_serve.core.model import Pairing, Role
from a2a_serve.listeners import Message, Scope
from a2a_serve.listeners.local import ConnectionLimits, TcpListener
from a2a_serve.server.http import Guard, Limits, Rules

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
TOKEN = derive_local(b"k" * 32)
ALICE = mint(PAIR, lambda size: b"\x01" * size)
RPC, REST, CARD = "/a2a/jsonrpc", "/a2a/rest/message:send", "/.well-known/agent-card.json"
JSON = "Content-Type: application/json"
AUTH = f"Authorization: Bearer {TOKEN}"
V1 = "A2A-Version: 1.0"


def call(call_id: Any = 1, /, **changes: Any) -> bytes:
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}], **changes}
    return json.dumps(
        {"jsonrpc": "2.0", "id": call_id, "method": "SendMessage", "params": {"message": message}}
    ).encode()


def rest(**changes: Any) -> bytes:
    return json.dumps(json.loads(call(**changes))["params"]).encode()


async def find(value: bytes) -> Pairing | None:
    return {digest(ALICE): Pairing("alice", Role.USER, 1.0)}.get(value)


@dataclass
class App:
    """Stands for everything behind the guard; keeps what reached it."""

    seen: list[Scope] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    fail: bool = False
    start: bool = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(scope)
        self.bodies.append((await receive())["body"])
        if self.fail and not self.start:
            raise RuntimeError("the secret /home/ann is s3cr3t")
        scope["state"]["extensions"] += ["urn:one"] if scope["path"] == RPC else []
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": b"{}", "more_body": self.fail})
        if self.fail:
            raise RuntimeError("the secret /home/ann is s3cr3t")


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]


class Client:
    """Writes requests by hand, so that nothing repairs them."""

    def __init__(self, port: int) -> None:
        self.port = port

    def head(self, line: str, *headers: str, host: str | None = None) -> bytes:
        lines = [f"{line} HTTP/1.1", f"Host: {host or f'127.0.0.1:{self.port}'}", *headers, "Connection: close"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def raw(self, *pieces: bytes) -> Answer:
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                return await read_answer(reader)
            finally:
                writer.close()

    async def ask(self, line: str, *headers: str, host: str | None = None) -> Answer:
        return await self.raw(self.head(line, *headers, host=host))

    async def post(self, path: str = RPC, body: bytes = b"", *headers: str, host: str | None = None) -> Answer:
        headers = headers or (JSON, AUTH, V1)
        length = f"Content-Length: {len(body)}"
        return await self.raw(self.head(f"POST {path}", length, *headers, host=host) + body)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = body.split(b"\r\n", 1)[1].split(b"\r\n")[0]
    return Answer(int(status.split()[1]), headers, body)


@asynccontextmanager
async def serving(
    app: App | None = None,
    *,
    limits: Limits | None = None,
    rules: Rules | None = None,
    connections: ConnectionLimits | None = None,
    gate: Gate | None = None,
) -> AsyncIterator[Client]:
    gate = gate or Gate([TokenMethod(find, TOKEN, "ann")])
    tcp = TcpListener("local", limits=connections)
    await tcp.start(Guard(app or App(), gate, rules, limits))
    try:
        yield Client(tcp.port)
    finally:
        await tcp.stop(0)


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
async def client(app: App) -> AsyncIterator[Client]:
    async with serving(app) as made:
        yield made


def is_refusal(answer: Answer, status: int, reason: str) -> bool:
    """Shape, request id, no CORS: what every refusal has."""
    error = answer.error
    info = error["data"][0] if "data" in error else error["details"][0]
    assert info["metadata"]["requestId"] == answer.headers["x-request-id"]
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert error["message"].endswith(".") or "characters of" in error["message"]
    return (answer.status, info["reason"]) == (status, reason)


# --- good requests -------------------------------------------------------------------------------------------------


async def test_a_good_call_reaches_the_application_with_all_that_it_needs(client: Client, app: App) -> None:
    answer = await client.post(RPC, call())
    assert (answer.status, answer.body) == (200, b"{}")
    state = app.seen[0]["state"]
    assert (state["identity"].id, state["identity"].name) == ("local:owner", "ann")
    assert state["json"] == json.loads(call())
    assert app.bodies == [call()]
    assert answer.headers["x-request-id"] == state["request_id"]
    assert answer.headers["a2a-extensions"] == "urn:one"


@pytest.mark.parametrize("path", [RPC, RPC + "/", REST])
async def test_both_bindings_are_let_through(client: Client, app: App, path: str) -> None:
    assert (await client.post(path, call() if "rpc" in path else rest())).status == 200
    assert len(app.seen) == 1


async def test_a_chunked_body_in_pieces_is_joined(client: Client, app: App) -> None:
    head = client.head(f"POST {RPC}", JSON, AUTH, V1, "Transfer-Encoding: chunked")
    pieces = [b"%x\r\n%s\r\n" % (1, call()[at : at + 1]) for at in range(len(call()))]
    assert (await client.raw(head, *pieces, b"0\r\n\r\n")).status == 200
    assert app.bodies == [call()]


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/a2a+json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'],
)
async def test_json_content_types(client: Client, content_type: str) -> None:
    assert (await client.post(RPC, call(), f"Content-Type: {content_type}", AUTH, V1)).status == 200


async def test_a_pairing_is_its_own_identity(client: Client, app: App) -> None:
    assert (await client.post(RPC, call(), JSON, f"Authorization: Bearer {ALICE}")).status == 200
    assert app.seen[0]["state"]["identity"].id == "pair:alice"


async def test_a_post_without_body_needs_no_content_type(client: Client, app: App) -> None:
    assert (await client.post("/a2a/rest/tasks/t1:cancel", b"", AUTH, V1)).status == 200
    assert app.seen[0]["state"]["json"] is None


async def test_requests_follow_each_other_on_one_connection(client: Client) -> None:
    def keep(request: bytes) -> bytes:
        return request.replace(b"Connection: close\r\n", b"")

    good = keep(client.head(f"POST {RPC}", f"Content-Length: {len(call())}", JSON, AUTH)) + call()
    text = keep(client.head(f"POST {RPC}", "Content-Length: 2", "Content-Type: text/plain")) + b"{}"
    stranger = keep(client.head(f"POST {RPC}", "Content-Length: 2", JSON)) + b"{}"
    card = keep(client.head(f"GET {CARD}"))
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    for request, status in ((good, b"200"), (text, b"415"), (stranger, b"401"), (card, b"200"), (good, b"200")):
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert head.split()[1] == status
        length = [line.split(b":")[1] for line in head.split(b"\r\n") if line.startswith(b"content-length")]
        await (reader.readexactly(int(length[0])) if length else reader.readuntil(b"0\r\n\r\n"))
    writer.close()


# --- N1 N2: Host ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:{port}",
        "localhost.:{port}",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:1",
        "127.0.0.1.nip.io:{port}",
        "127.1:{port}",
        "0.0.0.0:{port}",
        "[::ffff:127.0.0.1]:{port}",
        "localhost:{port}@evil.example",
        "localhost:{port}, evil.example",
        "localhost:{port} ",
        "user@localhost:{port}",
        " ",
    ],
)
async def test_a_foreign_host_is_421(client: Client, app: App, host: str) -> None:
    named = host.format(port=client.port)
    answer = await client.post(RPC, call(), host=named)
    assert is_refusal(answer, 421, "HOST_NOT_SERVED")
    assert (await client.ask(f"GET {CARD}", host=named)).status == 421
    assert app.seen == []


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
async def test_our_own_names_are_served(client: Client, host: str) -> None:
    assert (await client.post(RPC, call(), host=host.format(port=client.port))).status == 200


async def test_no_host_and_two_hosts_are_refused(client: Client, app: App) -> None:
    good = f"Host: 127.0.0.1:{client.port}"
    for lines in ([], ["Host: evil.example", good], [good, "Host: evil.example"]):
        request = "\r\n".join([f"GET {CARD} HTTP/1.1", *lines, "Connection: close", "", ""])
        assert (await client.raw(request.encode())).status in (400, 421)
    assert (await client.raw(f"GET {CARD} HTTP/1.0\r\n\r\n".encode())).status == 421
    assert app.seen == []


async def test_further_hosts_are_served_as_they_stand() -> None:
    async with serving(rules=Rules(hosts=("agent.example", "Proxy.example:8443"))) as client:
        for host, status in (("agent.example", 200), ("proxy.example:8443", 200), ("agent.example:80", 421)):
            assert (await client.post(RPC, call(), host=host)).status == status


# --- N3 N5: Origin, preflight --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://localhost:1",
        "Origin: http://127.0.0.1:{port}",
        "Origin:",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ],
)
async def test_web_pages_are_refused_with_a_good_token_too(client: Client, app: App, header: str) -> None:
    header = header.format(port=client.port)
    assert is_refusal(await client.post(RPC, call(), JSON, AUTH, header), 403, "ORIGIN_NOT_ALLOWED")
    assert is_refusal(await client.ask("GET /a2a/rest/tasks", AUTH, header), 403, "ORIGIN_NOT_ALLOWED")
    assert app.seen == []


async def test_the_public_card_is_there_for_pages_without_cors(client: Client) -> None:
    answer = await client.ask(f"GET {CARD}", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site")
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_own_pages_are_let_in_where_there_are_some() -> None:
    async with serving(rules=Rules(own_pages=True)) as client:
        for origin, status in (
            (f"http://127.0.0.1:{client.port}", 200),
            (f"http://localhost:{client.port}", 200),
            (f"https://127.0.0.1:{client.port}", 403),
            ("http://127.0.0.1:1", 403),
            (f"http://127.0.0.1:{client.port}/", 403),
            ("null", 403),
        ):
            assert (await client.post(RPC, call(), JSON, AUTH, f"Origin: {origin}")).status == status


async def test_a_preflight_gets_no_cors_headers(client: Client, app: App) -> None:
    asked = ("Origin: http://evil.example", "Access-Control-Request-Method: POST")
    assert is_refusal(await client.ask(f"OPTIONS {RPC}", *asked), 403, "ORIGIN_NOT_ALLOWED")
    assert is_refusal(await client.ask(f"OPTIONS {RPC}"), 405, "METHOD_NOT_ALLOWED")
    assert app.seen == []


@pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE", "PROPFIND"])
async def test_other_methods_are_405(client: Client, method: str) -> None:
    answer = await client.ask(f"{method} {RPC}", AUTH)
    assert is_refusal(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "GET, HEAD, POST, DELETE"


# --- N4 N12: content type and encoding -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/json",
        "application/json; charset=utf-16",
        "application/json, text/plain",
        "application/jsonx",
        "application/json; charset=utf-8; x",
        "",
    ],
)
async def test_other_content_types_are_415(client: Client, app: App, content_type: str) -> None:
    answer = await client.post(RPC, call(), f"Content-Type: {content_type}", AUTH)
    assert is_refusal(answer, 415, "CONTENT_TYPE_NOT_SUPPORTED")
    assert answer.error["code"] == -32005
    answer = await client.post(REST, rest(), f"Content-Type: {content_type}", AUTH)
    assert is_refusal(answer, 415, "CONTENT_TYPE_NOT_SUPPORTED")
    assert answer.error["code"] == 415
    assert app.seen == []


async def test_a_body_needs_a_content_type_and_only_one(client: Client, app: App) -> None:
    assert (await client.post(RPC, call(), AUTH)).status == 415
    assert (await client.post(RPC, call(), JSON, "Content-Type: text/plain", AUTH)).status == 400
    assert (await client.post(RPC, b"", "Content-Type: text/plain", AUTH)).status == 415
    assert app.seen == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity", "gzip, gzip"])
async def test_an_encoded_body_is_415_and_never_unpacked(client: Client, app: App, encoding: str) -> None:
    answer = await client.post(RPC, b"\x1f\x8b\x08\x00", JSON, AUTH, f"Content-Encoding: {encoding}")
    assert is_refusal(answer, 415, "CONTENT_TYPE_NOT_SUPPORTED")
    assert app.seen == []


# --- N6 N7 N8: who it is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [RPC, REST, "/", "/control", CARD])
async def test_without_a_credential_nothing_is_open_but_reading_the_card(client: Client, app: App, path: str) -> None:
    answer = await client.post(path, call(), JSON)
    assert is_refusal(answer, 401, "NOT_SIGNED_IN")
    assert answer.headers["www-authenticate"] == 'Bearer realm="a2a-serve"'
    assert app.seen == []


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_card_is_public(client: Client, app: App, method: str) -> None:
    answer = await client.ask(f"{method} {CARD}")
    assert answer.status == 200
    assert "identity" not in app.seen[0]["state"]
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize("path", [CARD + "/", CARD.upper(), f"/x/..{CARD}", CARD + "%00", f"/{CARD}"])
async def test_only_the_card_itself_is_public(client: Client, app: App, path: str) -> None:
    assert (await client.ask(f"GET {path}")).status == 401
    assert app.seen == []


@pytest.mark.parametrize(
    "credential",
    [
        f"Bearer {TOKEN[:-1]}x",
        "Bearer a2as_pair_nonsense",
        "Bearer eyJhbGciOiJub25lIn0.e30.",
        "Basic YTpi",
        f"Token {TOKEN}",
        TOKEN,
        "",
        "Bearer",
    ],
)
async def test_a_bad_credential_is_401_everywhere(client: Client, app: App, credential: str) -> None:
    for request in (
        client.post(RPC, call(), JSON, f"Authorization: {credential}"),
        client.ask(f"GET {CARD}", f"Authorization: {credential}"),
    ):
        answer = await request
        assert is_refusal(answer, 401, "BAD_CREDENTIAL")
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
        assert credential not in answer.body.decode() or not credential
    assert app.seen == []


async def test_two_credentials_are_none(client: Client, app: App) -> None:
    assert (await client.post(RPC, call(), JSON, AUTH, f"Authorization: Bearer {ALICE}")).status == 400
    assert app.seen == []


async def test_headers_by_which_proxies_name_a_caller_are_not_seen(client: Client, app: App) -> None:
    forged = [
        "X-Forwarded-For: 10.1.1.1",
        "X-Forwarded-Host: evil.example",
        "x-real-ip: 10.1.1.1",
        "Forwarded: for=10.1.1.1",
        "Tailscale-User-Login: owner@x",
        "X-Remote-User: root",
    ]
    assert (
        await client.post(RPC, call(), JSON, f"Authorization: Bearer {ALICE}", *forged, "X-Mine: kept")
    ).status == 200
    scope = app.seen[0]
    assert scope["state"]["identity"].id == "pair:alice"
    assert scope["state"]["peer"].address == scope["client"][0] == "127.0.0.1"
    names = [name for name, _ in scope["headers"]]
    assert b"x-mine" in names
    assert not [name for name in names if name.startswith((b"x-forw", b"forw", b"tailscale", b"x-real", b"x-remote"))]


async def test_many_bad_credentials_are_429_and_a_good_one_still_passes(client: Client) -> None:
    bad = f"Authorization: Bearer {TOKEN[:-1]}x"
    for _ in range(20):
        assert (await client.post(RPC, call(), JSON, bad)).status == 401
    answer = await client.post(RPC, call(), JSON, bad, "X-Forwarded-For: 10.1.1.1")
    assert is_refusal(answer, 429, "TOO_MANY_SIGN_INS")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert (await client.post(RPC, call())).status == 200


# --- N9 N10 N11: time and size -------------------------------------------------------------------------------------


async def test_half_a_header_is_closed_by_its_deadline() -> None:
    async with serving(connections=ConnectionLimits(header_seconds=0.3)) as client:
        assert (await client.raw(b"POST /a2a/jsonrpc HTTP/1.1\r\nHost: 127")).status == 408


async def test_a_slow_body_is_408_by_its_deadline_and_others_are_served_meanwhile() -> None:
    """N10 with the deadline of 30 s brought down to one."""
    quick = Limits(body_seconds=1.0)
    async with serving(limits=quick) as client:
        head = client.head(f"POST {RPC}", JSON, AUTH, "Content-Length: 100")

        async def drip() -> None:
            """Goes on sending whatever comes back, so it may find the connection reset."""
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(head)
            end = asyncio.ensure_future(reader.read())
            with contextlib.suppress(ConnectionError):
                while not end.done():
                    writer.write(b" ")
                    await asyncio.wait([end], timeout=0.2)
                await end
            writer.close()

        slow = [asyncio.ensure_future(drip()) for _ in range(200)]
        still = asyncio.ensure_future(client.raw(head, b"{"))
        loop = asyncio.get_running_loop()
        for _ in range(5):
            started = loop.time()
            assert (await client.post(RPC, call())).status == 200
            assert loop.time() - started < 1.0
        await asyncio.wait_for(asyncio.gather(*slow), 10)
        answer = await still
        assert is_refusal(answer, 408, "BODY_TIMEOUT")
        assert answer.headers["connection"] == "close"


async def test_a_body_that_keeps_coming_gets_more_time() -> None:
    patient = Limits(body_seconds=0.3, bytes_per_second=200)
    async with serving(limits=patient) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        padded = b" " * 300 + call()
        writer.write(client.head(f"POST {RPC}", JSON, AUTH, f"Content-Length: {len(padded)}"))
        answer = asyncio.ensure_future(read_answer(reader))
        for at in range(0, len(padded), 50):
            writer.write(padded[at : at + 50])
            await asyncio.wait([answer], timeout=0.1)
        assert (await answer).status == 200
        writer.close()


async def test_a_strangers_body_may_not_even_be_64_kib(client: Client, app: App) -> None:
    big = b" " * (64 << 10) + b"{}"
    assert is_refusal(await client.post(RPC, big, JSON), 413, "BODY_TOO_LARGE")
    chunked = client.head(f"POST {RPC}", JSON, "Transfer-Encoding: chunked")
    assert (await client.raw(chunked, b"%x\r\n%s\r\n0\r\n\r\n" % (len(big), big))).status == 413
    assert (await client.post(RPC, big[2:], JSON)).status == 401
    assert (await client.post(RPC, big[2:] + b"{}", JSON, "Authorization: Bearer a2as_x")).status == 413
    assert app.seen == []


async def test_a_large_good_body_is_let_through(client: Client, app: App) -> None:
    body = call(parts=[{"text": "x" * (15 << 20)}])
    assert (await client.post(RPC, body)).status == 200
    assert app.bodies == [body]


def peak_memory(*, start_anew: bool = False) -> int:
    """Bytes: the most this process has held, since the last fresh start (proc(5), clear_refs)."""
    if start_anew:
        Path("/proc/self/clear_refs").write_text("5")
    [found] = re.findall(r"VmHWM:\s+([0-9]+) kB", Path("/proc/self/status").read_text())
    return int(found) << 10


@pytest.mark.parametrize("chunked", [False, True])
async def test_17_mib_are_413_whether_announced_or_not(client: Client, app: App, chunked: bool) -> None:
    size = 17 << 20
    before = peak_memory(start_anew=True)
    piece = b" " * (1 << 20)
    if chunked:
        head = client.head(f"POST {RPC}", JSON, AUTH, "Transfer-Encoding: chunked")
        pieces = [b"%x\r\n%s\r\n" % (len(piece), piece)] * 17 + [b"0\r\n\r\n"]
    else:
        head = client.head(f"POST {RPC}", JSON, AUTH, f"Content-Length: {size}")
        pieces = [piece] * 17
    answer = await client.raw(head, *pieces)
    assert is_refusal(answer, 413, "BODY_TOO_LARGE")
    assert answer.error["code"] == -32600
    assert app.seen == []
    assert peak_memory() - before < 40 << 20


async def test_a_refused_body_is_read_to_its_end_so_that_the_answer_is_seen(client: Client) -> None:
    piece = b" " * (1 << 20)
    answer = await client.raw(client.head(f"POST {RPC}", JSON, AUTH, f"Content-Length: {60 << 20}"), *[piece] * 60)
    assert answer.status == 413


async def test_draining_ends_in_time() -> None:
    async with serving(limits=Limits(drain_seconds=0.3)) as client:
        head = client.head(f"POST {RPC}", "Content-Type: text/plain", "Content-Length: 1000")
        answer = await asyncio.wait_for(client.raw(head, b"x"), 3)
        assert answer.status == 415
        assert answer.headers["connection"] == "close"
        head = client.head(f"POST {RPC}", JSON, "Content-Length: 1000")
        assert (await asyncio.wait_for(client.raw(head, b"x"), 3)).status == 401


async def test_who_asks_first_is_refused_before_it_sends(client: Client) -> None:
    head = client.head(f"POST {RPC}", JSON, f"Content-Length: {17 << 20}", "Expect: 100-continue")
    assert (await client.raw(head)).status == 401
    head = client.head(f"POST {RPC}", JSON, AUTH, f"Content-Length: {17 << 20}", "Expect: 100-continue")
    assert (await client.raw(head)).status == 413


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "1,1", "9" * 30, "+5", " "])
async def test_a_length_that_is_none_is_refused(client: Client, app: App, length: str) -> None:
    head = client.head(f"POST {RPC}", JSON, AUTH, f"Content-Length: {length}")
    assert (await client.raw(head, call())).status in (400, 413)
    assert app.seen == []


@pytest.mark.parametrize("first", ["Content-Length: 5", "Transfer-Encoding: chunked"])
async def test_two_ways_to_frame_a_body_are_400(client: Client, app: App, first: str) -> None:
    second = "Transfer-Encoding: chunked" if first.startswith("Content") else "Content-Length: 5"
    head = client.head(f"POST {RPC}", JSON, AUTH, first, second)
    assert (await client.raw(head, b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")).status == 400
    assert app.seen == []


async def test_a_caller_that_goes_away_in_its_body_leaves_nothing(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(app) as client:
        for headers in ((JSON, AUTH), (JSON,), ("Content-Type: text/plain",)):
            _, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(client.head(f"POST {RPC}", *headers, "Content-Length: 1000") + b"{")
            await writer.drain()
            writer.close()
        assert (await client.post(RPC, call())).status == 200
    assert len(app.seen) == 1
    assert caplog.records == []


# --- N13 N14 N15: the JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        (b"[" * 100_000, {-32700, -32600}),
        (b"[" * 65 + b"]" * 65, {-32600}),
        (b'{"id":' + b"9" * 5000 + b"}", {-32700}),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', {-32700}),
        (b'{"id":NaN}', {-32700}),
        (b"", {-32700}),
        (b"[]", {-32600}),
    ],
)
async def test_bad_json_is_the_callers_fault_in_fixed_words(
    client: Client, app: App, body: bytes, codes: set[int]
) -> None:
    answer = await client.post(RPC, body)
    assert answer.status == 200
    assert answer.error["code"] in codes
    assert answer.json["id"] is None
    assert answer.json["jsonrpc"] == "2.0"
    for word in ("Error", "line 1", "column", "codec", "recursion", "Traceback"):
        assert word not in answer.error["message"]
    assert app.seen == []


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"parts": [{"text": "x"}] * 1001}, "message.parts"),
        ({"contextId": "../../x"}, "message.contextId"),
        ({"messageId": "a\x1b[31m"}, "message.messageId"),
        ({"taskId": "a/b"}, "message.taskId"),
        ({"parts": [{"text": "a\0b"}]}, "message.parts[0].text"),
        ({"role": "ROLE_AGENT"}, "message.role"),
        ({"role": 2}, "message.role"),
    ],
)
async def test_bad_params_name_the_field_on_both_bindings(client: Client, app: App, changes: Any, where: str) -> None:
    answer = await client.post(RPC, call("c7", **changes))
    assert is_refusal(answer, 200, "INVALID_PARAMS")
    assert (answer.error["code"], answer.json["id"]) == (-32602, "c7")
    assert where in answer.error["message"]
    answer = await client.post(REST, rest(**changes))
    assert is_refusal(answer, 400, "INVALID_PARAMS")
    assert (answer.error["code"], answer.error["status"]) == (400, "INVALID_ARGUMENT")
    assert answer.error["details"][1]["fieldViolations"][0]["field"].endswith(where)
    assert app.seen == []


@pytest.mark.parametrize("body", [b"{", b'{"a":NaN}', b"\xff", b"[" * 65 + b"]" * 65])
async def test_bad_json_over_rest_is_400(client: Client, app: App, body: bytes) -> None:
    answer = await client.post(REST, body)
    assert answer.status == 400
    assert answer.error["status"] == "INVALID_ARGUMENT"
    assert app.seen == []


# --- the protocol version ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "query", "passed_on"),
    [
        ([], "", None),
        (["A2A-Version: 1.0"], "", b"1.0"),
        (["A2A-Version: 0.3"], "", b"0.3"),
        (["A2A-Version: 1.0.7"], "", b"1.0"),
        (["A2A-Version: 0.3.0"], "", b"0.3"),
        ([], "?A2A-Version=1.0", b"1.0"),
        ([], "?a=b&A2A-Version=0.3.0", b"0.3"),
        (["A2A-Version: 1.0"], "?A2A-Version=99.0", b"1.0"),
        (["A2A-Version:"], "?A2A-Version=1.0", b"1.0"),
    ],
)
async def test_versions_by_header_or_query(
    client: Client, app: App, headers: list[str], query: str, passed_on: bytes | None
) -> None:
    for path, body in ((RPC, call()), (REST, rest())):
        assert (await client.post(path + query, body, JSON, AUTH, *headers)).status == 200
        versions = [value for name, value in app.seen[-1]["headers"] if name == b"a2a-version"]
        assert versions == ([] if passed_on is None else [passed_on])


@pytest.mark.parametrize(
    "version", ["99.0", "1.9", "1", "0.2", "1.0-beta", "one", "1.0.0.0", "01.0", "1.0 1.0", "\xb9.0"]
)
async def test_other_versions_are_refused(client: Client, app: App, version: str) -> None:
    asked = f"A2A-Version: {version}"
    answer = await client.post(RPC, call(5), JSON, AUTH, asked)
    assert is_refusal(answer, 200, "VERSION_NOT_SUPPORTED")
    assert (answer.error["code"], answer.json["id"]) == (-32009, 5)
    for answer in (
        await client.post(REST, rest(), JSON, AUTH, asked),
        await client.ask("GET /a2a/rest/tasks", AUTH, asked),
    ):
        assert is_refusal(answer, 400, "VERSION_NOT_SUPPORTED")
        assert answer.error["status"] == "FAILED_PRECONDITION"
    assert app.seen == []


async def test_a_version_in_the_query_is_refused_too_and_the_card_has_none(client: Client) -> None:
    assert (await client.post(f"{REST}?A2A-Version=1.9", rest(), JSON, AUTH)).status == 400
    assert (await client.ask(f"GET {CARD}", "A2A-Version: 99.0")).status == 200


# --- what fails behind the guard -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [RPC, REST])
async def test_a_failure_is_500_in_fixed_words_and_logged_under_its_id(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(App(fail=True, start=False)) as client:
        answer = await client.post(path, call() if path == RPC else rest())
    assert is_refusal(answer, 500, "INTERNAL_ERROR")
    assert b"s3cr3t" not in answer.body
    assert b"RuntimeError" not in answer.body
    [record] = [each for each in caplog.records if each.exc_info]
    assert answer.headers["x-request-id"] in record.getMessage()


async def test_a_failure_in_mid_answer_cuts_it_off(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(App(fail=True)) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(client.head(f"POST {RPC}", JSON, AUTH, f"Content-Length: {len(call())}") + call())
        got = await reader.read()
        writer.close()
    assert got.startswith(b"HTTP/1.1 200 ")
    assert not got.endswith(b"0\r\n\r\n")
    assert b"s3cr3t" not in got


async def test_the_guard_serves_nothing_but_http() -> None:
    guard = Guard(App(), Gate([]))

    async def never(*_: Any) -> Any:
        raise AssertionError

    with pytest.raises(RuntimeError, match="websocket"):
        await guard({"type": "websocket"}, never, never)


async def test_a_large_body_costs_little_time(client: Client) -> None:
    """F3: 100,000 parts held the SDK's loop for 4 seconds."""
    started = asyncio.get_running_loop().time()
    answer = await client.post(RPC, call(parts=[{"text": "x"}] * 100_000))
    assert answer.error["code"] in (-32602, -32600)
    assert asyncio.get_running_loop().time() - started < 1.0
