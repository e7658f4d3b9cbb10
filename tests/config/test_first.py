"""The first config file: made from the settings, loads to the defaults, holds no secret (H1, H2)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from a2a_serve.config import AgentDir, Settings, load, write_first_config
from a2a_serve.config.first import render
from a2a_serve.core.errors import DirectoryNotWritable

pytestmark = pytest.mark.req("H1", "H2")


@pytest.fixture
def directory(tmp_path: Path) -> AgentDir:
    directory = AgentDir(tmp_path)
    directory.prepare()
    return directory


def test_it_loads_and_sets_only_what_was_chosen(directory: AgentDir) -> None:
    assert write_first_config(directory, {"agent.kind": "opencode"})
    result = load(directory, {})
    assert [key for key, origin in result.origins.items() if origin != "default"] == ["agent.kind"]
    assert result.settings.agent.kind == "opencode"
    assert result.settings.model_copy(update={"agent": Settings().agent}) == load(
        AgentDir(directory.own), {}
    ).settings.model_copy(update={"card": result.settings.card})


def test_every_line_can_be_uncommented(directory: AgentDir) -> None:
    directory.config.write_text(re.sub(r"(?m)^  #(?=\w)", "  ", render({})))
    result = load(directory, {})
    assert result.settings.model_copy(update={"card": Settings().card}) == Settings()
    assert all(origin != "default" for key, origin in result.origins.items() if not key.endswith("key_file"))


def test_every_setting_is_described() -> None:
    text = render({})
    for name, section in Settings().model_dump().items():
        for key in section:
            assert re.search(rf"(?m)^  #{key}: ", text), f"{name}.{key}"
    assert "None" not in text


def test_an_existing_file_stays(directory: AgentDir) -> None:
    directory.config.write_text("log: {level: debug}\n")
    assert not write_first_config(directory, {"agent.kind": "demo"})
    assert directory.config.read_text() == "log: {level: debug}\n"


def test_awkward_folder_names_are_quoted(tmp_path: Path) -> None:
    for name in ["a: b # c", 'q"uote', "true", "007", "ümlaut", "-", "new\nline", "trailing "]:
        directory = AgentDir(tmp_path / name)
        directory.root.mkdir()
        directory.prepare()
        assert write_first_config(directory, {"agent.environment": {"K": name.strip() or "x"}})
        assert load(directory, {}).settings.card.name == name
        directory.config.write_text(directory.config.read_text().replace("#name:", "name:"))
        assert load(directory, {}).settings.card.name == name


def test_no_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DirectoryNotWritable):
        write_first_config(AgentDir(tmp_path / "gone"), {})
