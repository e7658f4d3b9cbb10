"""Layers, origins and the errors of bad settings (H1, H4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from a2a_serve.config import AgentDir, Loaded, choose_agent, load
from a2a_serve.core.errors import ConfigError

pytestmark = pytest.mark.req("H4")


@pytest.fixture
def directory(tmp_path: Path) -> AgentDir:
    (tmp_path / ".a2a").mkdir()
    return AgentDir(tmp_path)


def loaded(directory: AgentDir, text: str = "", environment: dict[str, str] | None = None, **flags: object) -> Loaded:
    if text:
        directory.config.write_text(text, encoding="utf-8")
    named = {f"--{key}": (key.replace("__", "."), value) for key, value in flags.items()}
    return load(directory, environment or {}, named)


def test_defaults_need_no_file(directory: AgentDir) -> None:
    result = loaded(directory)
    assert result.settings.listen.port == 41241
    assert result.settings.sandbox.memory == 2 << 30
    assert result.settings.card.name == directory.root.name
    assert set(result.origins.values()) == {"default"}
    assert result.origins["models.openai.upstream"] == "default"


def test_each_layer_beats_the_one_below(directory: AgentDir) -> None:
    text = "listen:\n  port: 1001\n  grpc_port: 1002\nturns: {timeout: 5}\nlog:\n"
    environment = {"A2A_SERVE_LISTEN__PORT": "2001", "A2A_SERVE_TURNS__TIMEOUT": "7", "A2A_SERVE_DEBUG": "1"}
    result = loaded(directory, text, environment, listen__port=3001)
    assert result.settings.listen.port == 3001
    assert result.settings.listen.grpc_port == 1002
    assert result.settings.turns.timeout == 7
    assert result.origins["listen.port"] == "--listen__port"
    assert result.origins["listen.grpc_port"] == f"{directory.config}:3"
    assert result.origins["turns.timeout"] == "A2A_SERVE_TURNS__TIMEOUT"
    assert result.origins["listen.host"] == "default"


def test_one_model_api_is_changed_and_the_others_stay(directory: AgentDir) -> None:
    text = "models:\n  openai: {upstream: 'http://127.0.0.1:9/v/'}\n  mine: {upstream: 'http://127.0.0.1:8'}\n"
    models = loaded(directory, text).settings.models
    assert models["openai"].upstream == "http://127.0.0.1:9/v"
    assert models["openai"].key_env == "OPENAI_API_KEY"
    assert models["mine"].key_env is None
    assert models["anthropic"].scheme == "x-api-key"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("SANDBOX__NETWORK", "open", "open"),
        ("SANDBOX__NETWORK", "", None),
        ("SANDBOX__MEMORY", "512m", 512 << 20),
        ("sandbox__cpus", "1.5", 1.5),
        ("LISTEN__BINDINGS", "jsonrpc, rest", ["jsonrpc", "rest"]),
        ("LISTEN__BINDINGS", "[grpc]", ["grpc"]),
        ("LISTEN__GRPC_PORT", "off", "off"),
        ("AGENT__COMMAND", "python3 'my agent.py' -v", ["python3", "my agent.py", "-v"]),
        ("AGENT__ENVIRONMENT__MyName", "x", {"MyName": "x"}),
        ("AGENT__ENVIRONMENT", "{A: b}", {"A": "b"}),
        ("MODELS__OPENAI__UPSTREAM", "http://127.0.0.1:9", "http://127.0.0.1:9"),
        ("SESSION__REUSE_BY_CONTEXT", "false", False),
    ],
)
def test_variables_are_read_as_the_setting_wants(directory: AgentDir, name: str, text: str, expected: object) -> None:
    value: object = loaded(directory, "", {f"A2A_SERVE_{name}": text}).settings.model_dump()
    for step in name.lower().split("__")[:3]:
        if isinstance(value, dict) and step in value:
            value = value[step]
    assert value == expected


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("listen:\n  prot: 1\n", 2, ("listen.prot", "no such setting", "Did you mean port?")),
        ("lisen:\n  port: 1\n", 2, ("lisen", "Did you mean listen?")),
        ("agent:\n  kind: demo\nqqq: 1\n", 3, ("qqq", "no such setting", "Known here: agent")),
        ("listen:\n  port: many\n", 2, ("listen.port", "valid integer")),
        ("listen:\n  port: true\n", 2, ("listen.port", "must not be true or false")),
        ("listen:\n  port: 70000\n", 2, ("listen.port", "65535")),
        ("listen:\n  grpc_port: 65536\n", 2, ("listen.grpc_port", "or off")),
        ("listen:\n  host: 0.0.0.0\n", 2, ("listen.host", "sign in")),
        ("listen:\n  url: ftp://x\n", 2, ("listen.url", "http")),
        ("listen:\n  bindings: [jsonrpc,\n    soap]\n", 3, ("listen.bindings.1", "jsonrpc")),
        ("listen:\n  bindings: [grpc]\n  grpc_port: off\n", 3, ("listen", "serves nothing")),
        ("listen:\n  bindings: []\n", 2, ("listen.bindings", "at least 1")),
        ("listen: 3\n", 1, ("listen", "valid dictionary")),
        ("listen:\n  port: 5\n  grpc_port: 5\n", 3, ("two ports",)),
        ("sandbox:\n  kind: podman\n", 2, ("sandbox.kind", "'docker' or 'local'")),
        ("sandbox:\n  memory: lots\n", 2, ("sandbox.memory", "512m")),
        ("sandbox:\n  memory: 1k\n", 2, ("at least 16m",)),
        ("sandbox:\n  cpus: .inf\n", 2, ("sandbox.cpus", "finite")),
        ("sandbox:\n  cpus: .nan\n", 2, ("sandbox.cpus",)),
        ("agent:\n  environment:\n    'A B': c\n", 3, ("agent.environment", "variable name")),
        ("agent:\n  command: []\n", 2, ("agent.command",)),
        ("agent:\n  kind: 2020-01-01\n", 2, ("agent.kind", "valid string")),
        ("models:\n  openai:\n    key_env: sk-123\n", 3, ("models.openai.key_env", "not the key itself")),
        ("models:\n  mine: {}\n", 2, ("models.mine.upstream", "required")),
        ("card:\n  skills:\n    - {id: a, name: b}\n", 3, ("card.skills.0.description", "required")),
        ("card:\n  name: ${NOPE}\n", 2, ("card.name", "NOPE is not set")),
        ("card:\n  name: ${not a name}\n", 2, ("card.name", "does not name a variable")),
        ("a: b: c\n", 1, ("not YAML",)),
        ("listen:\n\tport: 1\n", 2, ("not YAML",)),
        ("listen:\n  port: 1\n  port: 2\n", 3, ("not YAML", "duplicate")),
        ("- a\n- b\n", 1, ("section",)),
        ("just words\n", 1, ("section",)),
        ("1: x\n", 1, ("key 1 is not text",)),
        ("listen: !python/object:os.system x\n", 1, ("tags",)),
        ("listen:\n  port: 1\x00\n", None, ("not YAML",)),
        ("[" * 5000, None, ("not YAML",)),
    ],
)
def test_a_bad_file_names_file_line_and_key(
    directory: AgentDir, text: str, line: int | None, words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, text)
    assert caught.value.sentence.startswith(f"{directory.config}:{line}: " if line else f"{directory.config}")
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.exit_status == 78


def test_bytes_that_are_not_text_name_their_line(directory: AgentDir) -> None:
    directory.config.write_bytes(b"log:\n  level: \xff\n")
    with pytest.raises(ConfigError, match=r"config.yaml:2: this is not UTF-8"):
        loaded(directory)


def test_a_file_that_cannot_be_read_is_an_error(directory: AgentDir) -> None:
    directory.config.mkdir()
    with pytest.raises(ConfigError, match="Cannot read"):
        loaded(directory)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"A2A_SERVE_LISTEN__PROT": "1"}, ("A2A_SERVE_LISTEN__PROT", "listen.prot", "port")),
        ({"A2A_SERVE_NOPE": "1"}, ("A2A_SERVE_NOPE",)),
        ({"A2A_SERVE_LISTEN__PORT__X": "1"}, ("A2A_SERVE_LISTEN__PORT__X",)),
        ({"A2A_SERVE_LISTEN__PORT": "x"}, ("A2A_SERVE_LISTEN__PORT", "listen.port", "integer")),
        ({"A2A_SERVE_LISTEN__BINDINGS": "[jsonrpc"}, ("A2A_SERVE_LISTEN__BINDINGS", "not YAML")),
        ({"A2A_SERVE_LISTEN__": "1"}, ("A2A_SERVE_LISTEN__",)),
        ({"A2A_SERVE_AGENT__COMMAND": "'open"}, ("A2A_SERVE_AGENT__COMMAND", "agent.command")),
    ],
)
def test_a_bad_variable_is_named(directory: AgentDir, environment: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, "", environment)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_bad_flag_is_named(directory: AgentDir) -> None:
    with pytest.raises(ConfigError, match=r"^--port: listen\.port"):
        load(directory, {}, {"--port": ("listen.port", 70000)})


def test_variables_fill_strings_and_are_not_shown(directory: AgentDir) -> None:
    skill = "{id: i, name: n, description: '${WHO}', tags: [t]}"
    text = f"card:\n  name: a ${{WHO}} b\n  description: $${{WHO}} costs $5\n  skills: [{skill}]\n"
    result = loaded(directory, text, {"WHO": "x: ${Y}\n- {"})
    assert result.settings.card.name == "a x: ${Y}\n- { b"
    assert result.settings.card.description == "${WHO} costs $5"
    assert result.settings.card.skills[0].description == "x: ${Y}\n- {"
    assert result.raw["card.name"] == "a ${WHO} b"


def test_no_value_is_repeated_in_an_error(directory: AgentDir) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, "models:\n  openai:\n    scheme: ${SECRET}\n", {"SECRET": "sk-canary"})
    assert "canary" not in str(caught.value)


@pytest.mark.req("H1")
@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("", {}, "demo"),
        ("", {"GEMINI_API_KEY": "g"}, "gemini"),
        ("", {"GEMINI_API_KEY": "g", "OPENAI_API_KEY": "o"}, "codex"),
        ("", {"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a"}, "claude"),
        ("", {"ANTHROPIC_API_KEY": "  "}, "demo"),
        ("agent: {kind: opencode}", {"ANTHROPIC_API_KEY": "a"}, "opencode"),
        ("agent: {command: my-agent --acp}", {"ANTHROPIC_API_KEY": "a"}, "custom"),
    ],
)
def test_the_agent_is_chosen_by_setting_then_key(
    directory: AgentDir, text: str, environment: dict[str, str], expected: str
) -> None:
    key_envs = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY", "demo": "", "gemini": "GEMINI_API_KEY"}
    assert choose_agent(loaded(directory, text).settings, environment, key_envs) == expected


def test_every_public_name_can_be_imported() -> None:
    from a2a_serve import config

    assert sorted(name for names in config._PLACES.values() for name in names) == sorted(config.__all__)
    assert all(getattr(config, name) is not None for name in config.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = config.nothing
