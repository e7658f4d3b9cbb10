from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sse_starlette import EventSourceResponse

from a2a_serve.core.errors import PortTaken
from a2a_serve.listeners import Message, Scope
from a2a_serve.listeners.local import ConnectionLimits, TcpListener, UnixListener, socket_address

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
QUICK = ConnectionLimits(header_seconds=0.3, connections=4)


async def answer(send: Send, text: str) -> None:
    body = text.encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def tell(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what the listener says of the peer, and the body's length."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    state = scope["state"]
    peer = state["peer"]
    await answer(send, f"{state['listener']} {peer.listener} {peer.address} {peer.uid} {peer.pid} {size}")


@asynccontextmanager
async def serving(
    listener: TcpListener | UnixListener, app: Any = tell, grace: float = 0
) -> AsyncIterator[TcpListener | UnixListener]:
    await listener.start(app)
    try:
        yield listener
    finally:
        await asyncio.wait_for(listener.stop(grace), grace + 3)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def exchange(port: int, *pieces: bytes) -> bytes:
    """Everything that comes back until the server closes."""
    async with asyncio.timeout(5), connected(port) as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()


def head(port: int, more: str = "") -> bytes:
    return f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{more}".encode()


async def get(port: int) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(f"http://127.0.0.1:{port}/")).text


async def test_a_tcp_peer_is_its_address() -> None:
    async with serving(tcp := TcpListener("here")):
        assert await get(tcp.port) == "here here 127.0.0.1 None None 0"


async def test_no_header_changes_who_the_peer_is() -> None:
    async with serving(tcp := TcpListener("here")), httpx.AsyncClient(trust_env=False) as client:
        forged = {"X-Forwarded-For": "10.9.9.9", "X-Forwarded-Proto": "https", "Forwarded": "for=10.9.9.9"}
        response = await client.get(f"http://127.0.0.1:{tcp.port}/", headers=forged)
        assert response.text.startswith("here here 127.0.0.1 ")


async def test_answers_have_a_date_and_do_not_name_the_server() -> None:
    async with serving(tcp := TcpListener("here", wall=lambda: 784111777.9)):
        raw = await exchange(tcp.port, head(tcp.port, "Connection: close\r\n\r\n"))
    assert b"\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n" in raw
    assert b"\r\nserver:" not in raw.lower()


async def test_a_unix_peer_is_its_uid_and_pid(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(UnixListener("control", path)):
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path))) as client:
            text = (await client.get("http://control/")).text
        assert text == f"control control  {os.geteuid()} {os.getpid()} 0"
    assert not path.exists()


async def test_a_unix_socket_in_a_deep_directory_with_spaces_is_served(tmp_path: Path) -> None:
    path = tmp_path / ("with spaces and more " * 4) / ("and more " * 8) / "control.sock"
    path.parent.mkdir(parents=True)
    assert len(os.fsencode(path)) > 150
    async with serving(UnixListener("control", path)):
        with socket_address(path) as address:
            async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=address)) as client:
                assert (await client.get("http://control/")).text.startswith("control ")
    assert not path.exists()


async def test_a_socket_given_to_another_user_is_that_users(tmp_path: Path) -> None:
    assert os.geteuid() == 0, "this test gives a socket to another user: run the tests as root"
    for folder in [tmp_path, *tmp_path.parents][:3]:
        folder.chmod(0o755)
    path = tmp_path / "a2a.sock"
    ask = (
        "import os, socket, sys\n"
        "os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "s.sendall(b'GET / HTTP/1.1\\r\\nHost: a2a\\r\\nConnection: close\\r\\n\\r\\n')\n"
        "print(s.makefile().read())\n"
    )

    async def call_as(uid: int) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ask, str(path), str(uid), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, errors = await process.communicate()
        return process.returncode, (out + errors).decode()

    async with serving(UnixListener("agent", path, 0o600, 4711, 4711)):
        code, text = await call_as(4711)
        assert code == 0
        assert re.search(r"agent agent  4711 \d+ 0", text)
        code, text = await call_as(4712)
        assert code != 0
        assert "PermissionError" in text


async def test_another_servers_socket_is_not_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first, second = UnixListener("one", path), UnixListener("two", path)
    await first.start(tell)
    path.rename(tmp_path / "moved")
    async with serving(second):
        await first.stop(0)
        assert path.exists()


async def test_several_listeners_run_in_one_loop(tmp_path: Path) -> None:
    one, two, three = TcpListener("one"), TcpListener("two"), UnixListener("three", tmp_path / "s")
    async with serving(one), serving(two), serving(three):
        assert one.port != two.port
        assert (await get(one.port)).split()[0] == "one"
        assert (await get(two.port)).split()[0] == "two"


async def test_a_taken_port_is_an_error_and_nothing_is_sent_there() -> None:
    received: list[bytes] = []

    async def squat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.close()

    squatter = await asyncio.start_server(squat, "127.0.0.1", 0)
    async with squatter:
        port = squatter.sockets[0].getsockname()[1]
        with pytest.raises(PortTaken):
            await TcpListener("here", port=port).start(tell)
    assert received == []


async def test_a_port_bound_first_is_the_one_served() -> None:
    listener = TcpListener("here")
    listener.bind()
    port = listener.port
    assert port
    async with serving(listener):
        assert await get(port) == "here here 127.0.0.1 None None 0"


async def test_a_port_bound_and_never_served_is_let_go() -> None:
    listener = TcpListener("here")
    listener.bind()
    await listener.stop(0)
    async with serving(TcpListener("again", port=listener.port)):
        assert (await get(listener.port)).startswith("again")


async def test_a_stopped_port_can_be_taken_again_at_once() -> None:
    async with serving(tcp := TcpListener("here")):
        await get(tcp.port)
    async with serving(TcpListener("again", port=tcp.port)):
        assert (await get(tcp.port)).startswith("again")


# --- callers that are slow on purpose, or too many ------------------------------------------------------------------

SLOW = {
    "nothing at all": b"",
    "half a method": b"GE",
    "half a request line": b"GET /somewhere HT",
    "half a header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nX-A",
    "all but the last line": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n",
    "blank lines only": b"\r\n\r\n\r\n",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
async def test_a_header_that_does_not_come_ends_the_connection(sent: bytes) -> None:
    async with serving(tcp := TcpListener("here", limits=QUICK)):
        answered = await exchange(tcp.port, sent)
    assert answered == b"" if not sent else answered.startswith(b"HTTP/1.1 408 ") or answered == b""


async def test_dripping_bytes_do_not_move_the_headers_deadline() -> None:
    async with (
        serving(tcp := TcpListener("here", limits=QUICK)),
        asyncio.timeout(3),
        connected(tcp.port) as (reader, w),
    ):
        loop = asyncio.get_running_loop()
        started = loop.time()
        answered = asyncio.ensure_future(reader.read())
        w.write(b"GET / HTTP/1.1\r\n")
        while not answered.done():
            w.write(b"a: b\r\n")
            await asyncio.wait([answered], timeout=0.05)
        assert (await answered).startswith(b"HTTP/1.1 408 ")
        assert 0.2 < loop.time() - started < 1.5


async def test_the_second_request_of_a_connection_has_a_deadline_too() -> None:
    async with serving(tcp := TcpListener("here", limits=QUICK)):
        answered = await exchange(tcp.port, head(tcp.port, "\r\n"), b"GET / HT")
    assert answered.count(b"HTTP/1.1 200 ") == 1


async def test_an_idle_connection_outlives_the_headers_deadline() -> None:
    async with serving(tcp := TcpListener("here", limits=QUICK)), connected(tcp.port) as (reader, writer):
        writer.write(head(tcp.port, "\r\n"))
        await reader.readuntil(b"None None 0")
        more = asyncio.ensure_future(reader.readuntil(b"None None 0"))
        done, _ = await asyncio.wait([more], timeout=2 * QUICK.header_seconds)
        assert not done, "nothing comes and the connection stays open"
        writer.write(head(tcp.port, "\r\n"))
        assert (await asyncio.wait_for(more, 2)).startswith(b"HTTP/1.1 200 ")


async def test_an_idle_connection_ends_after_the_keep_alive() -> None:
    limits = ConnectionLimits(header_seconds=30, keep_alive=1)
    async with serving(tcp := TcpListener("here", limits=limits)):
        assert (await exchange(tcp.port, head(tcp.port, "\r\n"))).startswith(b"HTTP/1.1 200 ")


async def test_what_a_slow_caller_sends_late_is_still_answered_within_the_deadline() -> None:
    async with serving(tcp := TcpListener("here", limits=QUICK)), connected(tcp.port) as (reader, writer):
        for byte in head(tcp.port, "Connection: close\r\n\r\n"):
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000,
        b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000,
    ],
    ids=["target", "endless value", "large value", "many", "endless"],
)
async def test_a_header_too_large_is_431(sent: bytes) -> None:
    async with serving(tcp := TcpListener("here")):
        assert (await exchange(tcp.port, sent)).startswith(b"HTTP/1.1 431 ")
        assert (await get(tcp.port)).startswith("here")


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHo st: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused_without_a_log_line(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(tcp := TcpListener("here")):
        assert not (await exchange(tcp.port, sent)).startswith(b"HTTP/1.1 200 ")
        assert (await get(tcp.port)).startswith("here")
    assert not [each for each in caplog.records if each.name.startswith("uvicorn") and each.levelno > logging.INFO]


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
async def test_an_offer_to_upgrade_is_passed_over(protocol: str) -> None:
    """Java's client offers h2c with each first request in plain text."""
    asked = f"Connection: Upgrade, HTTP2-Settings\r\nUPGRADE: {protocol}\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    body = b"Upgrade"
    sent = f"POST / HTTP/1.1\r\nHost: a\r\n{asked}Content-Length: 7\r\n\r\n".encode() + body
    async with serving(tcp := TcpListener("here")), asyncio.timeout(5), connected(tcp.port) as (reader, writer):
        for _ in range(2):
            writer.write(sent)
            assert (await reader.readuntil(b"None None 7")).startswith(b"HTTP/1.1 200 ")


async def test_an_offer_to_upgrade_in_pieces_ends_the_connection_after_the_answer() -> None:
    async with serving(tcp := TcpListener("here")), asyncio.timeout(5), connected(tcp.port) as (reader, writer):
        for piece in (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgr", b"ade: h2c\r\n\r\n"):
            writer.write(piece)
            await writer.drain()
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0.05))])
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")


async def test_connect_is_only_another_method() -> None:
    async with serving(tcp := TcpListener("here")):
        assert not (await exchange(tcp.port, b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 101")
        assert (await get(tcp.port)).startswith("here")


async def test_connections_over_the_cap_are_told_so_and_the_place_is_free_again() -> None:
    async with serving(tcp := TcpListener("here", limits=ConnectionLimits(connections=4))):
        held = [await asyncio.open_connection("127.0.0.1", tcp.port) for _ in range(4)]
        for reader, writer in held:
            writer.write(head(tcp.port, "\r\n"))
            await reader.readuntil(b"None None 0")
        assert (await exchange(tcp.port)).startswith(b"HTTP/1.1 503 ")
        held[0][1].close()
        async with asyncio.timeout(5):
            while not (await exchange(tcp.port, head(tcp.port, "Connection: close\r\n\r\n"))).startswith(
                b"HTTP/1.1 200 "
            ):
                pass
        for _, writer in held:
            writer.close()


# --- the end -------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_tracebacks(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def errors_of(log: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in log.records if each.levelno >= logging.WARNING or each.exc_info]


async def test_stop_lets_a_request_finish_within_the_grace(no_tracebacks: pytest.LogCaptureFixture) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        await go.wait()
        await answer(send, "done")

    tcp = TcpListener("here")
    await tcp.start(slow)
    call = asyncio.ensure_future(get(tcp.port))
    await began.wait()
    stopped = asyncio.ensure_future(tcp.stop(5))
    await asyncio.sleep(0)
    go.set()
    assert await call == "done"
    await asyncio.wait_for(stopped, 2)
    assert errors_of(no_tracebacks) == []


@pytest.mark.parametrize("hears", [True, False])
async def test_stop_ends_open_streams_in_bounded_time(hears: bool, no_tracebacks: pytest.LogCaptureFixture) -> None:
    closed = asyncio.Event()

    async def events() -> AsyncIterator[str]:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await EventSourceResponse(events())(scope, receive, send)

    tcp = TcpListener("here")
    await tcp.start(stream if hears else deaf)
    async with connected(tcp.port) as (reader, writer):
        writer.write(head(tcp.port, "\r\n"))
        await reader.readuntil(b"one")
        loop = asyncio.get_running_loop()
        started = loop.time()
        await asyncio.wait_for(tcp.stop(0.2), 2)
        assert loop.time() - started < 1.5
        assert closed.is_set()
        assert b"\r\n0\r\n\r\n" not in await reader.read(), "a cut stream must not look like a whole one"
    assert errors_of(no_tracebacks) == []


async def test_stop_ends_a_stream_whose_reader_does_not_read(no_tracebacks: pytest.LogCaptureFixture) -> None:
    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            await asyncio.sleep(0)

    tcp = TcpListener("here")
    await tcp.start(flood)
    async with connected(tcp.port) as (reader, writer):
        writer.write(head(tcp.port, "\r\n"))
        await reader.readexactly(1)
        await asyncio.wait_for(tcp.stop(0.1), 3)
    assert errors_of(no_tracebacks) == []


async def test_stop_without_start_and_twice_is_nothing() -> None:
    tcp = TcpListener("here")
    await tcp.stop(1)
    await tcp.start(tell)
    await tcp.stop(0)
    await tcp.stop(0)


async def test_stop_with_only_idle_connections_does_not_wait() -> None:
    tcp = TcpListener("here")
    await tcp.start(tell)
    async with connected(tcp.port) as (reader, writer):
        writer.write(head(tcp.port, "\r\n"))
        await reader.readuntil(b"None None 0")
        await asyncio.wait_for(tcp.stop(60), 1)
        assert await reader.read() == b""
