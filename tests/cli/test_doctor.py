"""`doctor` and `image`: what is there, what is missing, and the next step."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from commanding import Run, run_process
from fakes.control_server import FakeControl

from a2a_serve.agents import AgentKind
from a2a_serve.cli.checks import Check, Facts, checks
from a2a_serve.config import AgentDir, Settings

pytestmark = pytest.mark.req("H6")


def look(directory: AgentDir, name: str, kind: str = "demo", clock: float = 1.8e9, **sections: Any) -> list[Check]:
    settings = Settings.model_validate({"sandbox": {"kind": "local"}, **sections})
    facts = Facts(
        directory, settings, AgentKind.load(kind), {"PATH": os.environ["PATH"], "KEY": "k" * 20}, lambda: clock
    )
    return list(dict(checks(facts))[name]())


def test_a_healthy_local_folder(run: Run, directory: AgentDir, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SANDBOX__KIND": "local", "LISTEN__PORT": "0", "LISTEN__GRPC_PORT": "0"}.items():
        monkeypatch.setenv(f"A2A_SERVE_{name}", value)
    ran = run("doctor", directory.root)
    assert ran.code == 0, ran
    lines = [line.split()[:2] for line in ran.out.splitlines() if line[:1] != " "]
    names = ["settings", "permissions", "disk", "clock", "agent", "network", "ports", "ports"]
    assert [name for _, name in lines] == names
    shown = run("doctor", directory.root, "-o", "json").json
    assert [each["check"] for each in shown] == names
    assert {"check", "state", "text", "next"} == set(shown[0])


def test_bad_settings_are_the_first_thing_told(run: Run, directory: AgentDir) -> None:
    directory.config.write_text("log: {level: loud}\n")
    ran = run("doctor", directory.root, "-o", "json")
    assert ran.code == 1
    (only,) = ran.json
    assert (only["check"], only["state"]) == ("settings", "fail")
    assert "config.yaml:1" in only["text"]


def test_an_engine_that_is_not_there(directory: AgentDir) -> None:
    environment = {**os.environ, "DOCKER_HOST": f"unix://{directory.root}/none.sock"}
    ran = run_process("doctor", directory.root, "-o", "json", environment=environment)
    assert ran.code == 1
    (docker,) = [each for each in ran.json if each["check"] == "docker"]
    assert docker["state"] == "fail"
    assert "--sandbox local" in docker["next"]
    for words in (["list"], ["prune"], ["build", "demo"]):
        assert run_process("image", *words, environment=environment).code == 69


@pytest.mark.docker
def test_the_engine_and_its_images(run: Run, directory: AgentDir) -> None:
    found = {each["check"]: each for each in run("doctor", directory.root, "-o", "json").json}
    assert found["docker"]["state"] == "ok"
    assert found["image"]["state"] in ("ok", "warn")
    rows = run("image", "list", "-o", "json").json
    assert all({"kind", "tag", "current"} <= set(row) for row in rows)
    assert run("image", "list").code == 0


@pytest.mark.parametrize("words", [["nobody"], ["demo", "nobody"], ["../x"]])
def test_an_unknown_image(run: Run, words: list[str]) -> None:
    ran = run("image", "build", *words)
    assert ran.code == 64
    assert "Choose from" in ran.err


def test_permissions(directory: AgentDir) -> None:
    assert [each.state for each in look(directory, "permissions")] == ["ok"]
    directory.state.chmod(0o755)
    (check,) = look(directory, "permissions")
    assert (check.state, check.next) == ("warn", f"chmod 700 {directory.state}")


def test_the_clock(directory: AgentDir) -> None:
    assert look(directory, "clock", clock=1.0)[0].state == "warn"
    directory.database.write_text("")
    os.utime(directory.database, (1.9e9, 1.9e9))
    assert look(directory, "clock", clock=1.8e9)[0].state == "warn"
    assert look(directory, "clock", clock=1.95e9)[0].state == "ok"


@pytest.mark.parametrize(
    ("kind", "sections", "state", "words"),
    [
        ("demo", {}, "ok", "no model key"),
        ("claude", {"sandbox": {"kind": "docker"}}, "warn", "ANTHROPIC_API_KEY"),
        (
            "claude",
            {"sandbox": {"kind": "docker"}, "models": {"anthropic": {"upstream": "http://h", "key_env": "KEY"}}},
            "ok",
            "key",
        ),
    ],
)
def test_the_agents_key(directory: AgentDir, kind: str, sections: dict[str, Any], state: str, words: str) -> None:
    (check,) = look(directory, "agent", kind, **sections)
    assert check.state == state
    assert words in check.text + check.next
    assert "kkkk" not in check.text + check.next


def test_a_local_command_that_is_missing(directory: AgentDir) -> None:
    kind = AgentKind("custom", "Custom", ("no-such-command-here",))
    facts = Facts(directory, Settings.model_validate({"sandbox": {"kind": "local"}}), kind, dict(os.environ), lambda: 0)
    (check,) = dict(checks(facts))["agent"]()
    assert check.state == "fail"
    assert "'no-such-command-here'" in check.text


def test_the_way_to_the_model(directory: AgentDir) -> None:
    with socket.create_server(("127.0.0.1", 0)) as model:
        api = {"upstream": f"http://127.0.0.1:{model.getsockname()[1]}", "key_env": "KEY"}
        assert look(directory, "network", "claude", models={"anthropic": api})[0].state == "ok"
    assert look(directory, "network", "claude", models={"anthropic": api})[0].state == "warn"


def test_ports(directory: AgentDir) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        web, grpc = look(directory, "ports", listen={"port": port, "grpc_port": 0})
    assert (web.state, grpc.state) == ("fail", "ok")
    assert str(port) in web.text
    assert len(look(directory, "ports", listen={"port": 0, "grpc_port": "off"})) == 1


def test_ports_of_a_running_server(directory: AgentDir, control: FakeControl) -> None:
    control.answers["GET /status"] = (200, {"pid": 7})
    (check,) = look(directory, "ports")
    assert (check.state, check.text) == ("ok", "In use by this folder's own server (process 7).")


def test_nothing_is_changed(tmp_path: Path, run: Run) -> None:
    (tmp_path / "fresh").mkdir()
    run("doctor", tmp_path / "fresh")
    assert list((tmp_path / "fresh").iterdir()) == []
