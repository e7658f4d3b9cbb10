"""status, stop, logs, config show, pair, questions, answer, credential: text and JSON, good and bad."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commanding import Run
from fakes.control_server import FakeControl

from a2a_serve.config import AgentDir, register_server

STATUS = {
    "state": "running",
    "pid": 4711,
    "directory": "/p",
    "agent": "demo",
    "sandbox": "local",
    "version": "0.1.0",
    "started_at": 1_800_000_000.5,
    "endpoints": [{"binding": "JSONRPC", "url": "http://127.0.0.1:41241/a2a/jsonrpc"}],
    "card_url": "http://127.0.0.1:41241/.well-known/agent-card.json",
    "tasks": {"open": 0},
    "questions": {"open": 2},
    "warnings": ["careful \x1b[1m"],
}
QUESTION = {
    "id": "q1",
    "taskId": "t1",
    "from": "alice",
    "text": "Edit a.py\n--- a/a.py\n+++ b/a.py\n-old\n+new\x1b",
    "options": [{"id": "once", "kind": "allow_once", "name": "Allow"}],
    "expiresAt": "2026-12-01T00:00:00Z",
}


@pytest.mark.req("H6", "H8")
def test_status(run: Run, control: FakeControl, directory: AgentDir) -> None:
    control.answers["GET /status"] = (200, STATUS)
    ran = run("status", directory.root)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "State: running",
        "Directory: /p",
        "Process: 4711",
        "Agent: demo",
        "Sandbox: local",
        "Card: http://127.0.0.1:41241/.well-known/agent-card.json",
        "JSONRPC: http://127.0.0.1:41241/a2a/jsonrpc",
        "Since: 2027-01-15 08:00:00 UTC",
        "Open tasks: 0",
        "Open questions: 2",
    ]
    assert ran.err == "Warning: careful \\u{1b}[1m\n"
    assert run("status", directory.root, "-o", "json").json == STATUS


@pytest.mark.req("H6", "H9")
def test_status_of_a_stopped_directory(run: Run, directory: AgentDir) -> None:
    ran = run("status", directory.root, "--output", "json")
    assert ran.code == 3
    assert ran.json == {"state": "stopped", "directory": str(directory.root)}
    assert run("status", directory.root).out == f"State: stopped\nDirectory: {directory.root}\n"


@pytest.mark.parametrize("status", [{}, {"endpoints": 3, "tasks": [], "started_at": "x"}, {"endpoints": [None, {}]}])
def test_a_status_of_another_shape_breaks_nothing(
    run: Run, control: FakeControl, directory: AgentDir, status: dict[str, Any]
) -> None:
    control.answers["GET /status"] = (200, status)
    assert run("status", directory.root).code == 0


@pytest.mark.req("H6")
def test_stop_waits_until_the_process_is_gone(run: Run, control: FakeControl, directory: AgentDir) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        control.answers["GET /status"] = (200, {**STATUS, "pid": process.pid})

        def end() -> tuple[int, Any]:
            process.kill()
            process.wait()
            control.answers["GET /status"] = b""
            return 200, {"stopping": True}

        control.answers["POST /stop"] = end
        ran = run("stop", directory.root)
    assert (ran.code, ran.out) == (0, f"Stopped: {directory.root}\n")


def test_a_server_that_does_not_stop_is_told(
    run: Run, control: FakeControl, directory: AgentDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2a_serve.cli.server.STOP_SECONDS", 0.0)
    control.answers |= {"GET /status": (200, {**STATUS, "pid": os.getpid()}), "POST /stop": (200, {})}
    ran = run("stop", directory.root)
    assert ran.code == 1
    assert "does not end" in ran.err


@pytest.mark.req("Q2", "H8")
def test_questions(run: Run, control: FakeControl, directory: AgentDir) -> None:
    control.answers["GET /questions"] = (200, [QUESTION])
    ran = run("questions", directory.root)
    assert ran.out.splitlines() == [
        "Question: q1",
        "From: alice",
        "Task: t1",
        "Expires: 2026-12-01T00:00:00Z",
        "Options: allow, deny, once",
        "Edit a.py",
        "--- a/a.py",
        "+++ b/a.py",
        "-old",
        "+new\\u{1b}",
    ]
    assert run("questions", directory.root, "-o", "json").json == [QUESTION]
    control.answers["GET /questions"] = (200, [])
    assert (run("questions", directory.root).out, run("questions", directory.root, "-o", "json").json) == ("", [])
    control.answers["GET /questions"] = (200, [{"options": 3}])
    assert run("questions", directory.root).code == 0


@pytest.mark.req("Q4", "H9")
def test_answer(run: Run, control: FakeControl, directory: AgentDir) -> None:
    told = {"id": "q1", "state": "answered", "option": "once", "by": "local:owner"}
    control.answers["POST /questions/q1/answer"] = (200, told)
    ran = run("answer", "q1", "allow", "--reason", "fine", "--dir", directory.root)
    assert (ran.code, ran.out) == (0, "Answered: once\n")
    assert control.asked[-1][1] == {"option": "allow", "reason": "fine"}
    assert run("answer", "q1", "deny", "--dir", directory.root, "-o", "json").json == told


@pytest.mark.req("H9")
@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("question_closed", 1), ("question_unknown", 1), ("option_unknown", 2), ("not_allowed", 4), ("new_one", 1)],
)
def test_a_refused_answer(run: Run, control: FakeControl, directory: AgentDir, code: str, exit_code: int) -> None:
    control.answers["POST /questions/q/answer"] = (409, {"error": {"code": code, "sentence": "No.", "hint": "Do."}})
    ran = run("answer", "q", "allow", "--dir", directory.root)
    assert (ran.code, ran.err) == (exit_code, "Error: No. Do.\n")


@pytest.mark.req("I3")
def test_pair_add_shows_the_token_once(run: Run, control: FakeControl, directory: AgentDir) -> None:
    made = {"name": "alice", "role": "guest", "token": "a2as_pair_x"}
    control.answers["POST /pairings"] = (200, made)
    ran = run("pair", "add", "alice", "--role", "guest", "--dir", directory.root)
    assert ran.out == "Name: alice\nRole: guest\nToken: a2as_pair_x\n"
    assert control.asked[-1][1] == {"name": "alice", "role": "guest"}
    assert run("pair", "add", "alice", "--dir", directory.root, "-o", "json").json == made


@pytest.mark.req("I4")
def test_a_local_token_comes_from_the_server_that_serves_the_origin(
    run: Run, control: FakeControl, directory: AgentDir
) -> None:
    register_server("http://127.0.0.1:5000", directory.root)
    control.answers["GET /token"] = (200, {"token": "a2as_local_x"})
    ran = run("credential", "get", "http://localhost:5000/a2a/jsonrpc")
    assert (ran.code, ran.out) == (0, "a2as_local_x\n")
    assert control.asked == [("GET /token?origin=http%3A%2F%2F127.0.0.1%3A5000", None)]


@pytest.mark.req("I4")
def test_a_port_that_a_stopped_server_had_gets_no_token(run: Run, control: FakeControl, directory: AgentDir) -> None:
    register_server("http://127.0.0.1:5000", directory.root)
    ran = run("credential", "get", "http://127.0.0.1:5000")
    assert (ran.code, ran.out) == (4, "")
    control.stop()
    ran = run("credential", "get", "http://127.0.0.1:5000")
    assert (ran.code, ran.out) == (4, "")
    assert "There is no token for http://127.0.0.1:5000." in ran.err


@pytest.mark.req("I4")
def test_a_remote_token_comes_from_the_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "xdg-config" / "a2a-serve" / "credentials.json"
    file.parent.mkdir()
    file.write_text('{"https://agent.example": "remote-token"}')
    file.chmod(0o600)
    assert run("credential", "get", "https://agent.example/x").out == "remote-token\n"
    file.chmod(0o644)
    ran = run("credential", "get", "https://agent.example/x")
    assert (ran.code, ran.out) == (4, "")
    assert "remote-token" not in ran.err


@pytest.mark.req("H4")
def test_config_show(run: Run, directory: AgentDir, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.config.write_text(
        "listen:\n  port: 5\nagent:\n  environment:\n    MY_TOKEN: canary1\n    PLAIN: seen\n    REF: ${CANARY}\n"
        "card:\n  skills: [{id: i, name: n, description: '${CANARY}', tags: [t]}]\n"
    )
    monkeypatch.setenv("CANARY", "canary2")
    monkeypatch.setenv("OPENAI_API_KEY", "canary3")
    monkeypatch.setenv("A2A_SERVE_TURNS__TIMEOUT", "9")
    shown = {each["name"]: each for each in run("config", "show", directory.root, "-o", "json").json}
    assert shown["listen.port"] == {"name": "listen.port", "value": 5, "origin": f"{directory.config}:2"}
    assert shown["turns.timeout"]["origin"] == "A2A_SERVE_TURNS__TIMEOUT"
    assert shown["sandbox.memory"] == {"name": "sandbox.memory", "value": "2g", "origin": "default"}
    assert shown["agent.environment.REF"]["value"] == "${CANARY}"
    assert shown["agent.environment.PLAIN"]["value"] == "seen"
    text = run("config", "show", directory.root).out
    assert "canary" not in text + json.dumps(shown)
    assert text.splitlines()[0].split() == ["SETTING", "VALUE", "FROM"]


def test_config_show_of_a_bad_file(run: Run, directory: AgentDir) -> None:
    directory.config.write_text("listen:\n  prot: 5\n")
    ran = run("config", "show", directory.root)
    assert ran.code == 78
    expected = f"Error: {directory.config}:2: listen.prot: there is no such setting. Did you mean port?\n"
    assert ran.err == expected


@pytest.mark.req("H6")
def test_logs(run: Run, directory: AgentDir) -> None:
    ran = run("logs", directory.root)
    assert ran.code == 3
    directory.logs.with_name("server.log.1").write_text("2026-01-01T00:00:00.000Z INFO a old one\n")
    directory.logs.write_bytes(b"2026-01-01T00:00:01.000Z INFO a new \x1b\xff\nodd\n")
    assert run("logs", directory.root).out.splitlines() == [
        "2026-01-01T00:00:00.000Z INFO a old one",
        "2026-01-01T00:00:01.000Z INFO a new \\u{1b}\ufffd",
        "odd",
    ]
    assert run("logs", directory.root, "-n", 1).out == "odd\n"
    assert run("logs", directory.root, "-n", 0).out == ""
    lines = [json.loads(line) for line in run("logs", directory.root, "-o", "json").out.splitlines()]
    assert lines[0] == {"time": "2026-01-01T00:00:00.000Z", "level": "INFO", "logger": "a", "text": "old one"}
    assert lines[2]["time"] == "odd"


@pytest.mark.req("H6")
def test_logs_follow_through_rotation(run: Run, directory: AgentDir) -> None:
    directory.logs.write_text("one\n")
    command = [sys.executable, "-m", "a2a_serve.cli", "logs", str(directory.root), "-f"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == "one\n"
        with directory.logs.open("a") as file:
            file.write("two\nthr")
            file.flush()
            assert ran.stdout.readline() == "two\n"
            file.write("ee\n")
        assert ran.stdout.readline() == "three\n"
        directory.logs.rename(directory.logs.with_name("server.log.1"))
        directory.logs.write_text("four\n")
        assert ran.stdout.readline() == "four\n"
        ran.send_signal(2)
        assert ran.wait() == 130
