"""Runs commands in this process, against a control server of the test's own on a real unix socket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from commanding import Ran, Run
from fakes.control_server import FakeControl

from a2a_serve.cli import main
from a2a_serve.config import AgentDir


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in list(os.environ):
        if name.startswith("A2A_SERVE_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    for name, folder in {"XDG_STATE_HOME": "xdg-state", "XDG_CONFIG_HOME": "xdg-config", "HOME": "home"}.items():
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))

    def call(*words: object) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, told.out, told.err)

    return call


@pytest.fixture
def directory(tmp_path: Path) -> AgentDir:
    (tmp_path / "project").mkdir()
    directory = AgentDir.at(tmp_path / "project")
    directory.prepare()
    return directory


@pytest.fixture
def control(directory: AgentDir) -> Iterator[FakeControl]:
    fake = FakeControl(directory)
    fake.start()
    yield fake
    fake.stop()
