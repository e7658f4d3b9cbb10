from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
import tomllib
from pathlib import Path

import pytest

from a2a_serve.agents import AgentKind
from a2a_serve.agents import kinds as agent_kinds
from a2a_serve.sandbox import images, recipes


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of images/ that a test may change."""
    made = tmp_path / "images"
    shutil.copytree(recipes.folder(), made)
    monkeypatch.setattr(recipes, "folder", lambda: made)
    return made


def names(kind: str) -> list[str]:
    return [recipe.name for recipe in recipes.in_order(kind)]


def test_parents_come_first() -> None:
    assert names("demo") == ["runtime", "demo"]
    assert names("claude") == ["node", "runtime", "claude"]


@pytest.mark.req("S7")
def test_each_agent_kind_has_an_image() -> None:
    assert set(images.kinds()) == set(agent_kinds())


def test_the_context_is_the_folder_and_the_demo_agent_and_always_the_same(copy: Path) -> None:
    first = recipes.context(recipes.RECIPES["demo"])
    (copy / "demo/__pycache__").mkdir()
    (copy / "demo/__pycache__/x.pyc").touch()
    assert recipes.context(recipes.RECIPES["demo"]) == first
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        assert tar.getnames() == ["Dockerfile", "demo.py"]


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("runtime/launcher.py", {"runtime", "demo", "opencode", "claude", "codex", "gemini"}),
        ("node/Dockerfile", {"node", "opencode", "claude", "codex", "gemini"}),
        ("opencode/opencode.json", {"opencode"}),
        ("base.sh", set()),
    ],
)
def test_a_changed_file_makes_stale_what_stands_on_it(copy: Path, changed: str, stale: set[str]) -> None:
    before = {name: recipes.digest(name) for name in recipes.RECIPES}
    with (copy / changed).open("a") as file:
        file.write("\n")
    assert {name for name in recipes.RECIPES if recipes.digest(name) != before[name]} == stale


def test_dockerfiles_keep_to_what_every_builder_can(copy: Path) -> None:
    """And name no registry."""
    for file in copy.rglob("Dockerfile"):
        text = file.read_text()
        steps = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        assert not re.search(r"--mount|--secret|<<|https?://", steps), file
        assert not text.lower().startswith("# syntax")


def test_versions_are_exact() -> None:
    for file in recipes.folder().rglob("Dockerfile"):
        for argument in re.findall(r"^ARG (\w+)=(\S+)$", file.read_text(), re.M):
            if argument[0] not in ("BASE", "RUNTIME", "NODE"):
                assert re.search(r"(==|@|^)\d+\.\d+\.\d+$", argument[1]), (file, argument)
    assert re.fullmatch(r"v\d+\.\d+\.\d+", recipes.cli_version())


@pytest.mark.req("Q1")
def test_managed_settings_make_every_changing_tool_ask() -> None:
    root = recipes.folder()
    opencode = json.loads((root / "opencode/opencode.json").read_text())["permission"]
    assert opencode["*"] == "ask"
    assert opencode["task"] == "deny"
    assert json.loads(AgentKind.load("opencode").environment["OPENCODE_PERMISSION"]) == opencode
    claude = json.loads((root / "claude/managed-settings.json").read_text())
    assert {"Bash", "Write", "Edit", "mcp__*"} <= set(claude["permissions"]["ask"])
    assert claude["allowManagedHooksOnly"]
    assert claude["allowManagedPermissionRulesOnly"]
    codex = tomllib.loads((root / "codex/requirements.toml").read_text())
    assert codex["allowed_sandbox_modes"] == ["read-only"]
    gemini = tomllib.loads((root / "gemini/ask.toml").read_text())
    assert {"run_shell_command", "write_file", "replace"} <= set(gemini["rule"][0]["toolName"])
    assert gemini["rule"][0]["decision"] == "ask_user"
