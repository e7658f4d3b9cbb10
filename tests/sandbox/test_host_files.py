from __future__ import annotations

import os
from pathlib import Path

import pytest

from a2a_serve.sandbox.host_files import DEPTH, ENTRIES, HASHED, HostFiles, snapshot


@pytest.fixture
def before(project: Path) -> HostFiles:
    (project / ".git/hooks").mkdir(parents=True)
    (project / ".git/config").write_text("[core]\n")
    (project / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    (project / "Makefile").write_text("all:\n")
    (project / "main.py").write_text("print()\n")
    return snapshot(project)


@pytest.mark.req("S3")
def test_changes_to_what_the_host_runs_are_told(project: Path, before: HostFiles) -> None:
    (project / ".git/config").write_text("[core]\n\tfsmonitor = evil\n")
    (project / ".envrc").write_text("evil")
    (project / ".github/workflows").mkdir(parents=True)
    (project / ".github/workflows/ci.yml").write_text("on: push")
    (project / "Makefile").unlink()
    (project / ".git/hooks/pre-commit").chmod(0o755)
    (project / "main.py").write_text("changed, and nobody runs it unasked")
    assert before.changes(snapshot(project, before)) == [
        "new .envrc",
        "changed .git/config",
        "changed .git/hooks/pre-commit",
        "new .github/workflows/ci.yml",
        "removed Makefile",
    ]


def test_the_same_content_is_no_change(project: Path, before: HostFiles) -> None:
    text = (project / "Makefile").read_text()
    (project / "Makefile").unlink()
    (project / "Makefile").write_text(text)
    os.utime(project / ".git/config", (1, 1))
    assert before.changes(snapshot(project, before)) == []


def test_a_forged_time_does_not_hide_a_change(project: Path, before: HostFiles) -> None:
    file = project / ".git/config"
    facts = file.stat()
    file.write_text("[evil]\n")
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert file.stat().st_size == facts.st_size
    assert before.changes(snapshot(project, before)) == ["changed .git/config"]


def test_links_are_watched_and_never_followed(project: Path, before: HostFiles, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "one").write_text("x")
    (project / ".husky").symlink_to(outside)
    (project / "package.json").symlink_to("/etc/passwd")
    later = snapshot(project, before)
    assert before.changes(later) == ["new .husky", "new package.json"]
    (outside / "one").write_text("changed outside, not ours to read")
    assert later.changes(snapshot(project, later)) == []
    (project / "package.json").unlink()
    (project / "package.json").symlink_to("/etc/shadow")
    assert later.changes(snapshot(project, later)) == ["changed package.json"]


def test_special_and_huge_files_hold_nothing_up(project: Path, before: HostFiles) -> None:
    os.mkfifo(project / "Makefile.fifo")
    (project / "Makefile").unlink()
    os.mkfifo(project / "Makefile")
    with (project / "package.json").open("wb") as huge:
        huge.truncate(50 << 30)
    later = snapshot(project, before)
    assert before.changes(later) == ["changed Makefile", "new package.json"]
    with (project / "package.json").open("r+b") as huge:
        huge.seek(HASHED * 3)
        huge.write(b"beyond what is hashed")
    assert later.changes(snapshot(project, later)) == ["changed package.json"]


def test_folders_are_read_within_bounds(project: Path, before: HostFiles) -> None:
    deep = project / ".vscode"
    for level in range(DEPTH + 2):
        deep = deep / f"level{level}"
    deep.mkdir(parents=True)
    (deep / "too-deep").touch()
    many = project / ".husky"
    many.mkdir()
    for number in range(ENTRIES + 50):
        (many / str(number)).touch()
    found = snapshot(project).prints
    assert not [path for path in found if "too-deep" in path]
    assert len([path for path in found if path.startswith(".husky/")]) <= ENTRIES
