"""Agent kinds are data: every file loads, says what the host needs, and agrees with what its image enforces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from a2a_serve.agents import AgentKind, kinds
from a2a_serve.core.errors import ConfigError

IMAGES = Path(__file__).parents[2] / "images"
KINDS = [AgentKind.load(name) for name in kinds()]
REAL = [kind for kind in KINDS if kind.name != "demo"]
FILE = 'title = "T"\ncommand = ["run", "me"]\n'


def test_all_kinds_are_there() -> None:
    assert kinds() == ["claude", "codex", "demo", "gemini", "opencode"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_says_what_the_host_needs(kind: AgentKind) -> None:
    assert kind.title
    assert kind.command
    assert kind.network[0] == "none"
    assert bool(kind.model) == bool(kind.model_env) == (kind.name != "demo")


@pytest.mark.parametrize("kind", REAL, ids=lambda kind: kind.name)
def test_the_way_to_the_model_holds_a_placeholder_for_a_key(kind: AgentKind) -> None:
    environment = kind.model_environment("http://127.0.0.1/m/x")
    assert "a2a-managed" in " ".join(environment.values())
    assert "http://127.0.0.1/m/x" in " ".join(environment.values())
    assert not any("{base}" in value for value in environment.values())


@pytest.mark.parametrize("kind", REAL, ids=lambda kind: kind.name)
def test_json_in_an_environment_is_json(kind: AgentKind) -> None:
    for value in (*kind.environment.values(), *kind.model_environment("http://x").values()):
        if value.startswith("{"):
            assert isinstance(json.loads(value), dict)


@pytest.mark.parametrize("kind", REAL, ids=lambda kind: kind.name)
def test_each_masks_its_own_project_folder(kind: AgentKind) -> None:
    assert f".{kind.name}" in kind.folders


def test_modes_in_which_they_ask() -> None:
    modes = {kind.name: kind.mode for kind in KINDS}
    assert modes == {"claude": "default", "codex": "read-only", "demo": "", "gemini": "default", "opencode": ""}


def test_the_demo_needs_nothing() -> None:
    demo = AgentKind.load("demo")
    assert demo.command == ("python3", "/opt/a2a-serve/demo.py")
    assert demo.hears_reason
    assert (demo.key_env, demo.model, demo.folders, demo.unasked) == ("", "", (), ())


def test_no_hosted_model_without_a_provider() -> None:
    """With none configured opencode would quietly take one of its own on the internet."""
    config = json.loads(AgentKind.load("opencode").model_environment("http://h/m/openai")["OPENCODE_CONFIG_CONTENT"])
    assert config["enabled_providers"] == list(config["provider"]) == ["openai"]
    assert config["provider"]["openai"]["options"] == {"baseURL": "http://h/m/openai/v1", "apiKey": "a2a-managed"}


def test_opencode_asks_the_same_with_and_without_its_image() -> None:
    managed = json.loads((IMAGES / "opencode" / "opencode.json").read_text(encoding="utf-8"))
    rules = json.loads(AgentKind.load("opencode").environment["OPENCODE_PERMISSION"])
    assert list(rules.items()) == list(managed["permission"].items()), "the last match wins, so order counts"
    assert next(iter(rules)) == "*"
    assert rules["*"] == "ask"
    assert rules["task"] == "deny"
    assert not {"bash", "edit", "write", "webfetch"} & {tool for tool, rule in rules.items() if rule == "allow"}


def test_claude_asks_the_same_with_and_without_its_image() -> None:
    managed: dict[str, Any] = json.loads((IMAGES / "claude" / "managed-settings.json").read_text(encoding="utf-8"))
    options = AgentKind.load("claude").session_meta["claudeCode"]["options"]
    rules = options["settings"]["permissions"]
    assert options["settingSources"] == []
    assert rules["ask"] == managed["permissions"]["ask"]
    assert rules["deny"] == managed["permissions"]["deny"]
    assert {"Bash", "Write", "Edit", "WebFetch", "Agent", "mcp__*"} <= set(rules["ask"])
    assert {"EnterPlanMode", "CronCreate", "Workflow"} <= set(options["disallowedTools"])


# --- bad data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cursor", "", "../secrets", "demo.toml", "Demo", "demo\0"])
def test_an_unknown_kind_names_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AgentKind.load(name)
    assert "claude, codex, demo, gemini, opencode" in str(caught.value)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (FILE + 'mod = "x"', "Agent kind 'k' has an unknown key 'mod'. Known: title, command, "),
        (FILE + 'name = "x"', "unknown key 'name'"),
        (FILE + "mode = 7", "Agent kind 'k': mode must be a string."),
        (FILE + 'unasked = "todo"', "Agent kind 'k': unasked must be a list of strings."),
        (FILE + "folders = [1]", "folders must be a list of strings."),
        (FILE + "hears_reason = 1", "hears_reason must be true or false."),
        (FILE + "progress_grace = true", "progress_grace must be a number."),
        (FILE + "open_sessions = 1.5", "open_sessions must be a whole number."),
        (FILE + "[environment]\nA = 1", "environment must be a table of strings."),
        (FILE + "session_meta = []", "session_meta must be a table."),
        ('title = "T"', "Agent kind 'k' needs a title and a command."),
        ('title = "T"\ncommand = []', "needs a title and a command."),
        ("title =", "The data of agent kind 'k' is not TOML"),
    ],
)
def test_bad_data_names_kind_and_key(text: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AgentKind.parse("k", text)
    assert wanted in str(caught.value)


def test_a_whole_kind() -> None:
    text = (
        FILE + 'progress_grace = 5\nunasked = ["a"]\nmodel_env = {X = "{base}/v1 {not}"}\nsession_meta = {a = {b = []}}'
    )
    kind = AgentKind.parse("k", text)
    assert (kind.command, kind.unasked, kind.progress_grace) == (("run", "me"), ("a",), 5)
    assert kind.session_meta == {"a": {"b": []}}
    assert kind.model_environment("http://h") == {"X": "http://h/v1 {not}"}


@pytest.mark.req("H1")
def test_which_key_chooses_which_kind() -> None:
    chosen = {kind.key_env: name for name in kinds() if (kind := AgentKind.load(name)).key_env}
    assert chosen == {"ANTHROPIC_API_KEY": "claude", "OPENAI_API_KEY": "codex", "GEMINI_API_KEY": "gemini"}
