"""The agent directory's modes and owner, and its lock (H2, H3)."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from a2a_serve.config import AgentDir, Lock
from a2a_serve.core.errors import AlreadyRunning, DirectoryNotWritable, StateCorrupt, UsageError

HOLD = """
import sys, time
from pathlib import Path
from a2a_serve.config import AgentDir, Lock
with Lock(AgentDir(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def directory(tmp_path: Path) -> AgentDir:
    directory = AgentDir.at(tmp_path)
    directory.prepare()
    return directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.req("H2")
def test_state_is_private_and_ignored_by_git(directory: AgentDir) -> None:
    assert mode(directory.own) == 0o755
    assert {mode(path) for path in (directory.state, directory.logs.parent, directory.homes)} == {0o700}
    subprocess.run(["git", "init", "-q", directory.root], check=True)
    (directory.config).write_text("")
    seen = subprocess.run(
        ["git", "-C", directory.root, "status", "--porcelain", "-uall"], check=True, capture_output=True, text=True
    ).stdout
    assert ".a2a/config.yaml" in seen
    assert "state" not in seen


def test_a_narrow_umask_and_a_wide_state_are_corrected(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        directory = AgentDir(tmp_path)
        directory.prepare()
    finally:
        os.umask(before)
    assert mode(directory.own) == 0o755
    directory.state.chmod(0o777)
    directory.prepare()
    assert mode(directory.state) == 0o700


def test_a_users_own_gitignore_stays(tmp_path: Path) -> None:
    (tmp_path / ".a2a").mkdir()
    (tmp_path / ".a2a" / ".gitignore").write_text("mine\n")
    AgentDir(tmp_path).prepare()
    assert (tmp_path / ".a2a" / ".gitignore").read_text() == "mine\n"


def test_what_is_made_belongs_to_the_folders_owner(tmp_path: Path) -> None:
    owner = (1234, 4321) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    os.chown(tmp_path, *owner)
    directory = AgentDir(tmp_path)
    directory.prepare()
    directory.state_key()
    for path in (directory.own, directory.state, directory.homes, directory.own / ".gitignore", directory.secret_key):
        assert (path.stat().st_uid, path.stat().st_gid) == owner


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_something_in_the_way_is_named(tmp_path: Path, kind: str) -> None:
    if kind == "file":
        (tmp_path / ".a2a").write_text("")
    else:
        target = tmp_path / "elsewhere"
        if kind == "link":
            target.mkdir()
        (tmp_path / ".a2a").symlink_to(target)
    with pytest.raises(DirectoryNotWritable, match=r"\.a2a"):
        AgentDir(tmp_path).prepare()


@pytest.mark.parametrize("name", ["gone", "file", "a\0b", "x" * 5000])
def test_what_is_no_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        AgentDir.at(tmp_path / name)


def test_the_key_is_made_once(directory: AgentDir) -> None:
    key = directory.state_key()
    assert len(key) == 32
    assert directory.state_key() == key
    assert mode(directory.secret_key) == 0o600
    assert sorted(path.name for path in directory.state.iterdir()) == ["homes", "logs", "secret.key"]


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_damaged_key_is_not_replaced(directory: AgentDir, content: bytes) -> None:
    directory.secret_key.write_bytes(content)
    with pytest.raises(StateCorrupt):
        directory.state_key()
    assert directory.secret_key.read_bytes() == content


def test_a_key_that_is_a_link_is_refused(directory: AgentDir, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"k" * 32)
    directory.secret_key.symlink_to(tmp_path / "other")
    with pytest.raises(DirectoryNotWritable):
        directory.state_key()


@pytest.mark.req("H3")
def test_a_second_start_names_the_first_and_a_stale_lock_blocks_nobody(directory: AgentDir) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, directory.root], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunning, match=rf"process {process.pid}") as caught, Lock(directory):
            pass
        assert caught.value.exit_status == 75
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert directory.lock.read_text() == f"{process.pid}\n"
    with Lock(directory):
        assert directory.lock.read_text() == f"{os.getpid()}\n"


def test_rubbish_in_the_lock_is_not_repeated(directory: AgentDir) -> None:
    directory.lock.write_text("\x1b[2Jrm -rf")
    with Lock(directory):
        os.truncate(directory.lock, 0)
        directory.lock.write_text("\x1b[2J")
        with pytest.raises(AlreadyRunning) as caught, Lock(directory):
            pass
    assert "\x1b" not in str(caught.value)


def test_the_lock_is_not_inherited(directory: AgentDir) -> None:
    with Lock(directory):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with Lock(directory):
            pass
    finally:
        child.kill()
        child.wait()


def test_a_lock_that_is_a_link_is_refused(directory: AgentDir, tmp_path: Path) -> None:
    directory.lock.symlink_to(tmp_path / "victim")
    with pytest.raises(DirectoryNotWritable), Lock(directory):
        pass
    assert not (tmp_path / "victim").exists()
