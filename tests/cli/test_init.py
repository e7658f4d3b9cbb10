"""`init`: a template's settings, whole and commented, and never over what is there (requirement H1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from commanding import Run

from a2a_serve.config import AgentDir, load


@pytest.mark.req("H1")
@pytest.mark.parametrize(("template", "preset"), [("engineer", "ask"), ("reviewer", "plan")])
def test_a_template_is_ready_to_be_served(run: Run, tmp_path: Path, template: str, preset: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    ran = run("init", folder, "--template", template)
    assert ran.code == 0
    assert f"a2a-serve start {folder}" in ran.out
    settings = load(AgentDir.at(folder), {}).settings
    assert settings.questions.preset == preset
    assert settings.card.name == "project"
    assert "#" in (folder / ".a2a" / "config.yaml").read_text()


@pytest.mark.req("H1")
def test_settings_that_are_there_stay(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "project" / ".a2a" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("log: {level: debug}\n")
    ran = run("init", tmp_path / "project", "--template", "reviewer")
    assert ran.code == 64
    assert "is there already" in ran.err
    assert config.read_text() == "log: {level: debug}\n"


@pytest.mark.parametrize(
    ("arguments", "code"), [([], 64), (["--template", "king"], 64), (["/", "--template", "engineer"], 78)]
)
def test_bad_arguments(run: Run, tmp_path: Path, arguments: list[str], code: int) -> None:
    assert run("init", *arguments).code == code
