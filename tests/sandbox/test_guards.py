from __future__ import annotations

import os
from pathlib import Path

import pytest

from a2a_serve.core.errors import SandboxBroken, WorkspaceRefused
from a2a_serve.sandbox.guards import Guards, guard
from a2a_serve.sandbox.workspace import User, owner_of


@pytest.fixture
def user(project: Path) -> User:
    return owner_of(project)


@pytest.fixture
def git(project: Path) -> Path:
    """A repository as `git init` leaves it, without the folders that it does not need."""
    folder = project / ".git"
    for name in ("hooks", "info", "objects", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text("[core]\n")
    return folder


def binds(guards: Guards, project: Path) -> dict[str, str]:
    return {str(each.path.relative_to(project)): "ro" if each.read_only else "rw" for each in guards.binds}


@pytest.mark.req("S3")
def test_git_is_bound_on_itself_and_what_the_host_runs_is_read_only(project: Path, git: Path, user: User) -> None:
    guards = guard(project, "git", (), user)
    assert binds(guards, project) == {
        ".git": "rw",
        ".git/info": "rw",
        ".git/hooks": "ro",
        ".git/modules": "ro",
        ".git/config": "ro",
        ".git/info/attributes": "ro",
    }
    assert [path.stat().st_uid for path in (git / "modules", git / "info/attributes")] == [user.uid] * 2
    guards.check()


def test_existing_worktrees_and_their_settings_are_read_only_too(project: Path, git: Path, user: User) -> None:
    (git / "worktrees").mkdir()
    (git / "config.worktree").touch()
    found = binds(guard(project, "git", (), user), project)
    assert found[".git/worktrees"] == found[".git/config.worktree"] == "ro"


def test_strict_leaves_nothing_in_git_to_change(project: Path, git: Path, user: User) -> None:
    assert binds(guard(project, "strict", (), user), project) == {".git": "ro"}
    assert not (git / "modules").exists()


def test_off_protects_only_our_own_folder(project: Path, git: Path, user: User) -> None:
    guards = guard(project, "off", (), user)
    assert guards.binds == ()
    assert guards.masks == (project / ".a2a",)


def test_a_git_file_is_read_only(project: Path, user: User) -> None:
    (project / ".git").write_text("gitdir: /elsewhere/.git/worktrees/x\n")
    assert binds(guard(project, "git", (), user), project) == {".git": "ro"}


@pytest.mark.parametrize("protect", ["off", "git", "strict"])
def test_git_is_never_created_and_our_own_folder_is(project: Path, user: User, protect: str) -> None:
    guards = guard(project, protect, (".claude",), user)
    assert os.listdir(project) == [".a2a"]
    assert (project / ".a2a").stat().st_uid == user.uid
    assert guards.binds == ()


def test_only_agent_folders_that_exist_are_masked(project: Path, user: User) -> None:
    (project / ".claude").mkdir()
    (project / ".codex").write_text("a file")
    (project / "elsewhere").mkdir()
    (project / ".gemini").symlink_to("elsewhere")
    (project / ".agents").symlink_to("/etc")
    guards = guard(project, "git", (".claude", ".codex", ".gemini", ".agents", ".opencode"), user)
    assert guards.masks == (project / ".a2a", project / ".claude", project / "elsewhere")
    assert not (project / ".opencode").exists()


@pytest.mark.parametrize("name", [".a2a", ".git", ".git/hooks", ".git/config", ".git/info", ".git/modules"])
def test_a_link_in_the_place_of_something_protected_is_refused(
    project: Path, git: Path, user: User, tmp_path: Path, name: str
) -> None:
    path = project / name
    if path.exists():
        path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(WorkspaceRefused, match="symbolic link"):
        guard(project, "git", (), user)


@pytest.mark.parametrize("name", [".git/config", ".git/hooks", ".a2a", ".claude"])
def test_a_guarded_path_replaced_or_gone_is_noticed(project: Path, git: Path, user: User, name: str) -> None:
    (project / ".claude").mkdir()
    guards = guard(project, "git", (".claude",), user)
    path = project / name
    kept = path.with_name("kept")
    path.rename(kept)
    with pytest.raises(SandboxBroken, match=name):
        guards.check()
    path.write_bytes(b"") if kept.is_file() else path.mkdir()
    with pytest.raises(SandboxBroken, match=name):
        guards.check()


def test_a_changed_content_is_no_replacement(project: Path, git: Path, user: User) -> None:
    guards = guard(project, "git", (), user)
    (git / "config").write_text("[core]\n\tbare = false\n")
    guards.check()


def test_git_led_to_other_settings_is_noticed(project: Path, git: Path, user: User) -> None:
    """A file `commondir` makes git read hooks and config elsewhere; a missing one cannot be mounted over."""
    guards = guard(project, "git", (), user)
    (git / "commondir").write_text("../evil\n")
    with pytest.raises(SandboxBroken, match="commondir"):
        guards.check()
