from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest

from a2a_serve.core.errors import WorkspaceRefused
from a2a_serve.sandbox.workspace import User, give, owner_of, refuse_workspace

HOME = PurePosixPath("/home/alice")


@pytest.mark.req("S3")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", "one project"),
        ("/home/alice", "home directory"),
        ("/home/bob", "home directory"),
        ("/Users/bob", "home directory"),
        ("/home", "one project"),
        ("/root", "one project"),
        ("/tmp", "one project"),
        ("/var/lib", "one project"),
        ("/run", "one project"),
        ("/etc", "system"),
        ("/etc/project", "system"),
        ("/usr/src/project", "system"),
        ("/usr/bin", "system"),
        ("/proc/1/cwd", "system"),
        ("/run/a2a", "system"),
        ("/opt/a2a-serve", "system"),
        ("/opt/agent/bin", "system"),
        ("/home/agent/project", "system"),
        ("/home/alice/.ssh", "keys"),
        ("/home/alice/.config/project", "keys"),
        ("project", "absolute"),
        ("/srv/../etc", "absolute"),
    ],
)
def test_folders_that_no_agent_may_be_given(path: str, words: str) -> None:
    with pytest.raises(WorkspaceRefused, match=words) as refused:
        refuse_workspace(PurePosixPath(path), HOME)
    assert refused.value.hint
    assert refused.value.exit_status == 78


@pytest.mark.parametrize(
    "path",
    [
        *("/home/alice/project", "/srv/project", "/tmp/x", "/opt/project", "/var/lib/ci/workspace", "/run/media/a/usb"),
        *("/etcetera", "/home/alice/.dotfiles", "/work/main", "/home/agents/project"),
    ],
)
def test_project_folders(path: str) -> None:
    refuse_workspace(PurePosixPath(path), HOME)


def test_a_parent_of_an_unusual_home_is_refused() -> None:
    with pytest.raises(WorkspaceRefused):
        refuse_workspace(PurePosixPath("/data/people"), PurePosixPath("/data/people/alice"))


def test_passwd_names_the_user_whoever_it_is() -> None:
    assert "agent:x:1234:1235:Agent:/home/agent:" in User(1234, 1235).passwd
    assert "agent:x:1235:" in User(1234, 1235).group
    assert User(0, 0).passwd.count(":0:0:") == 1
    assert "agent" not in User(0, 0).group


def test_what_is_given_belongs_to_the_owner_and_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch()
    link = tmp_path / "link"
    link.symlink_to(target)
    before = target.stat().st_uid
    user = User(4321, 4321) if os.geteuid() == 0 else owner_of(tmp_path)
    give(link, user)
    assert link.lstat().st_uid == user.uid
    assert target.stat().st_uid == before
