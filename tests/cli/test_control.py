"""The control client: a real socket, answers that are wrong on purpose, sockets that are not ours."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from fakes.control_server import FakeControl

from a2a_serve.cli.control import ControlClient
from a2a_serve.config import AgentDir
from a2a_serve.core.errors import NotAllowed, NotRunning, ServeError


def test_calls_and_their_bodies(control: FakeControl, directory: AgentDir) -> None:
    client = ControlClient(directory)
    control.answers = {
        "GET /status": (200, {"pid": 1}),
        "GET /questions": (200, [{"id": "q"}]),
        "POST /questions/a%2Fb/answer": (200, {"option": "allow"}),
        "POST /pairings": (200, {"token": "t"}),
        "GET /token": (200, {"token": "secret"}),
        "POST /stop": (200, {"stopping": True}),
    }
    assert client.status() == {"pid": 1}
    assert client.questions() == [{"id": "q"}]
    assert client.answer("a/b", "allow", "because") == {"option": "allow"}
    assert client.pair("alice", "user") == {"token": "t"}
    assert client.token("http://127.0.0.1:1") == "secret"
    client.stop()
    assert control.asked == [
        ("GET /status", None),
        ("GET /questions", None),
        ("POST /questions/a%2Fb/answer", {"option": "allow", "reason": "because"}),
        ("POST /pairings", {"name": "alice", "role": "user"}),
        ("GET /token?origin=http%3A%2F%2F127.0.0.1%3A1", None),
        ("POST /stop", {}),
    ]


def test_nothing_there_and_a_stale_socket_say_how_to_start(directory: AgentDir) -> None:
    with pytest.raises(NotRunning, match="a2a-serve start"):
        ControlClient(directory).status()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(directory.control_socket))
    stale.close()
    with pytest.raises(NotRunning, match="a2a-serve start"):
        ControlClient(directory).status()


def test_a_directory_of_any_length(tmp_path: Path) -> None:
    root = tmp_path / ("long name " * 12).strip() / ("x" * 100)
    root.mkdir(parents=True)
    directory = AgentDir.at(root)
    directory.prepare()
    fake = FakeControl(directory, {"GET /status": (200, {"pid": 5})})
    fake.start()
    try:
        assert ControlClient(directory).status() == {"pid": 5}
    finally:
        fake.stop()


def test_an_error_keeps_its_code_sentence_and_hint(control: FakeControl, directory: AgentDir) -> None:
    control.answers["GET /status"] = (409, {"error": {"code": "question_closed", "sentence": "S.", "hint": "H."}})
    with pytest.raises(ServeError, match=r"^S\. H\.$") as caught:
        ControlClient(directory).status()
    assert caught.value.code == "question_closed"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"rubbish",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 500 X\r\nContent-Length: 4\r\n\r\nnull",
        b'HTTP/1.1 500 X\r\n\r\n{"error": 3}',
        b'HTTP/1.1 500 X\r\n\r\n{"error": {"code": 3, "sentence": null, "hint": []}}',
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
    ],
)
def test_a_server_that_talks_rubbish_is_one_error(control: FakeControl, directory: AgentDir, answer: bytes) -> None:
    control.answers["GET /status"] = answer
    with pytest.raises(ServeError):
        ControlClient(directory).status()


def test_a_silent_server_is_given_up(directory: AgentDir) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(directory.control_socket))
        silent.listen()
        with pytest.raises(NotRunning, match="does not answer"):
            ControlClient(directory, timeout=0.1).status()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_socket_is_not_used(directory: AgentDir, tmp_path: Path, kind: str) -> None:
    if kind == "file":
        directory.control_socket.write_text("")
    else:
        directory.control_socket.symlink_to(tmp_path / "elsewhere.sock")
    with pytest.raises(NotAllowed, match="not yours"):
        ControlClient(directory).status()


def test_anothers_socket_is_not_used(
    control: FakeControl, directory: AgentDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.answers["GET /status"] = (200, {"pid": 1})
    ours = os.geteuid()
    monkeypatch.setattr("a2a_serve.cli.control.os.geteuid", lambda: ours + 1)
    with pytest.raises(NotAllowed, match="not yours"):
        ControlClient(directory).status()
    assert control.asked == []


def test_a_server_of_another_user_behind_our_socket_gets_nothing(
    control: FakeControl, directory: AgentDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2a_serve.cli.control.read_peer", lambda sock: (os.geteuid() + 1, 1))
    with pytest.raises(NotAllowed, match="not yours"):
        ControlClient(directory).pair("alice", "user")
    assert control.asked == []


def test_an_origin_that_is_not_served_has_no_token(control: FakeControl, directory: AgentDir) -> None:
    assert ControlClient(directory).token("http://127.0.0.1:1") is None
    control.answers["GET /token"] = (500, {"error": {"code": "error", "sentence": "Broken."}})
    with pytest.raises(ServeError, match="Broken"):
        ControlClient(directory).token("http://127.0.0.1:1")
