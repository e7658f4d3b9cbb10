"""`start` as a process: first start, in front and detached, second start, every refusal with its exit code."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from commanding import COMMAND, WAIT, Ran, Terminal, run_process

LOCAL = ("--sandbox", "local", "--port", "0", "--grpc-port", "off")


@dataclass
class Desk:
    """A project folder and an environment without keys or settings."""

    root: Path
    environment: dict[str, str]

    def run(self, *words: object, **environment: str) -> Ran:
        return run_process(*words, environment={**self.environment, **environment})

    @property
    def config(self) -> str:
        return (self.root / ".a2a" / "config.yaml").read_text()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    ours = ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: os.environ[name] for name in ours if name in os.environ}
    environment |= {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state")}
    made = Desk(tmp_path / "my project", environment)
    made.root.mkdir()
    (tmp_path / "home").mkdir()
    yield made
    made.run("stop", made.root)


@pytest.mark.req("H1", "H6", "H7")
def test_a_detached_server_from_first_start_to_stop(desk: Desk) -> None:
    started = desk.run("start", desk.root, *LOCAL, "--detach", "-o", "json")
    assert started.code == 0, started.err
    status = started.json
    assert (status["state"], status["agent"], status["sandbox"]) == ("running", "demo", "local")
    assert {each["binding"] for each in status["endpoints"]} == {"JSONRPC", "HTTP+JSON"}
    assert f"Wrote {desk.root}/.a2a/config.yaml" in started.err
    assert "  #kind: null" in desk.config
    assert desk.run("status", desk.root, "-o", "json").json["pid"] == status["pid"]
    origin = status["card_url"].removesuffix("/.well-known/agent-card.json")
    assert desk.run("credential", "get", origin).out.startswith("a2as_local_")
    assert " serves " not in desk.run("logs", desk.root).err
    second = desk.run("start", desk.root, *LOCAL, "--detach")
    assert second.code == 75
    assert f"process {status['pid']}" in second.err
    assert desk.run("stop", desk.root).out == f"Stopped: {desk.root}\n"
    assert desk.run("status", desk.root).code == 3
    with pytest.raises(ProcessLookupError):
        os.kill(status["pid"], 0)


@pytest.mark.req("H1")
def test_in_front_it_says_what_to_do_next_and_ends_with_ctrl_c(desk: Desk) -> None:
    with Terminal("start", desk.root, *LOCAL, environment=desk.environment) as terminal:
        terminal.until("serves")
        assert "http://127.0.0.1:" in terminal.until("Send a first message:")
        assert f"a2a-serve send --dir '{desk.root}'" in terminal.until("Ctrl-C stops the server.")
        terminal.interrupt()
        assert terminal.end() == 0
    assert "Traceback" not in terminal.seen


@pytest.mark.req("H8")
def test_in_front_with_json_it_prints_one_document_and_serves_on(desk: Desk) -> None:
    command = [*COMMAND, "start", str(desk.root), *LOCAL, "-o", "json"]
    with subprocess.Popen(
        command, env=desk.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        text = ""
        while not text.endswith("\n}\n"):
            line = process.stdout.readline()
            assert line, text
            text += line
        assert json.loads(text)["pid"] == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0


@pytest.mark.req("H1")
def test_the_agent_that_was_chosen_is_written_down(desk: Desk) -> None:
    with Terminal(
        "start", desk.root, *LOCAL, environment={**desk.environment, "OPENAI_API_KEY": "sk-canary-123456"}
    ) as terminal:
        terminal.until("codex serves")
        terminal.interrupt()
        assert terminal.end() == 0
    assert "  kind: codex" in desk.config
    for file in (desk.root / ".a2a").rglob("*"):
        assert file.is_dir() or b"canary" not in file.read_bytes(), file


@pytest.mark.req("H9")
def test_what_a_start_refuses(desk: Desk, tmp_path: Path) -> None:
    def start(*words: object, **environment: str) -> Ran:
        return desk.run("start", *words, **environment)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = start(desk.root, "--sandbox", "local", "--grpc-port", "off", "--port", port)
    assert busy.code == 73
    assert f"Port {port} on 127.0.0.1 is taken." in busy.err
    assert start("/etc").code == 78
    assert start(tmp_path / "home").code == 78
    assert start(desk.root, *LOCAL, "--agent", "nobody").code == 78
    assert start(desk.root, *LOCAL, "--grpc-port", "x").err.startswith("Error: --grpc-port: listen.grpc_port: must be")
    bad = start(desk.root, *LOCAL, A2A_SERVE_LISTEN__HOST="0.0.0.0")
    assert bad.code == 78
    assert "sign in" in bad.err
    assert not (tmp_path / "home" / ".a2a").exists()
    (desk.root / ".a2a" / "config.yaml").write_text("listen:\n  prot: 1\n")
    for words in ((), ("--detach",)):
        wrong = start(desk.root, *LOCAL, *words)
        assert wrong.code == 78
        assert "config.yaml:2: listen.prot: there is no such setting. Did you mean port?" in wrong.err
    (tmp_path / "file" / ".a2a").parent.mkdir()
    (tmp_path / "file" / ".a2a").write_text("")
    for words in ((), ("--detach",)):
        assert start(tmp_path / "file", *LOCAL, *words).code == 73


@pytest.mark.req("H9")
def test_an_engine_that_is_not_there(desk: Desk) -> None:
    gone = f"unix://{desk.root}/no.sock"
    for words in ((), ("--detach",)):
        ran = desk.run("start", desk.root, "--port", "0", "--grpc-port", "off", *words, DOCKER_HOST=gone)
        assert ran.code == 69
        assert gone in ran.err
        assert "--sandbox local" in ran.err
        assert ran.out == ""


def test_modules_in_the_served_folder_are_not_imported(desk: Desk) -> None:
    for name in ("click", "a2a_serve", "json"):
        (desk.root / f"{name}.py").write_text("raise SystemExit('imported')")
    command = ["start", ".", *LOCAL, "--detach", "-o", "json"]
    done = subprocess.run(
        [COMMAND[0], "-P", *COMMAND[1:], *command],
        env=desk.environment,
        cwd=desk.root,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
