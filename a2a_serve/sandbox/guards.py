"""What of the workspace the agent may not change: `.a2a`, the hooks and settings of git, other agents' folders.

A mount of a path on itself, read-only, holds in the container as long as the host's path keeps its inode: a tool on
the host that renames another file over it (as `git config` does) makes the mount vanish. So the inodes are kept and
compared (requirement S3). A folder can be moved away and made anew unless it is a mount point, so every folder on
the way to a protected path is one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from a2a_serve.core.errors import SandboxBroken, WorkspaceRefused
from a2a_serve.sandbox.workspace import User, give

OWN = ".a2a"
NEEDED_FOLDERS = ("hooks", "modules", "info")
"""In `.git`; made where they are missing, or the agent could make them."""
NEEDED_FILES = ("config", "info/attributes")
READ_ONLY = (*("hooks", "modules", "config", "info/attributes"), *("config.worktree", "commondir", "worktrees"))
"""In `.git`; the last three only where they exist."""
ABSENT = ("commondir",)
"""In `.git`: would point git at other hooks and settings. Cannot be mounted over where it is missing."""

Inode = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Bind:
    """A path of the workspace, mounted on itself."""

    path: Path
    read_only: bool


@dataclass(frozen=True, slots=True)
class Guards:
    """What is mounted over the workspace. `masks` are folders hidden behind an empty one."""

    masks: tuple[Path, ...] = ()
    binds: tuple[Bind, ...] = ()
    inodes: tuple[tuple[Path, Inode], ...] = ()
    absent: tuple[Path, ...] = ()

    def check(self) -> None:
        """Raise SandboxBroken where a guarded path on the host is no longer what was mounted."""
        for path, inode in self.inodes:
            if _inode(path) != inode:
                raise SandboxBroken(
                    f"{path} was replaced on this machine while the agent ran, so it is no longer protected.",
                    "The sandbox is replaced; send the message again.",
                )
        for path in self.absent:
            if _inode(path):
                raise SandboxBroken(f"{path} has appeared: it would change what git runs.", "Look at it and remove it.")


def guard(workspace: Path, protect: str, agent_folders: tuple[str, ...], user: User) -> Guards:
    """Make what must exist and tell what to mount. `protect` is off, git or strict.

    Raises WorkspaceRefused where a link stands in the place of something to protect.
    """
    masks = (_own(workspace, user), *_folders(workspace, agent_folders))
    git = workspace / ".git"
    binds = tuple(_git(git, protect, user))
    protected = (*masks, *(bind.path for bind in binds))
    inodes = tuple((path, inode) for path in protected if (inode := _inode(path)))
    loose = git.is_dir() and protect == "git"
    return Guards(masks, binds, inodes, tuple(git / name for name in ABSENT if loose and not _inode(git / name)))


def _own(workspace: Path, user: User) -> Path:
    path = workspace / OWN
    if not os.path.lexists(path):
        path.mkdir(mode=0o755)
        give(path, user)
    _refuse_link(path)
    return path


def _folders(workspace: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """Those that exist: mounting over a missing one would leave a folder on the host."""
    for name in names:
        path = workspace / name
        if path.is_symlink():
            path = path.resolve()  # the agent would follow it: hide what it leads to, where that is in reach
        if path.is_dir() and path != workspace and path.is_relative_to(workspace):
            yield path


def _git(git: Path, protect: str, user: User) -> Iterator[Bind]:
    if protect == "off" or not os.path.lexists(git):
        return
    _refuse_link(git)
    if protect == "strict" or not git.is_dir():  # a file: the `.git` of a worktree or a submodule
        yield Bind(git, read_only=True)
        return
    _complete(git, user)
    yield Bind(git, read_only=False)
    yield Bind(git / "info", read_only=False)
    for name in READ_ONLY:
        path = git / name
        if os.path.lexists(path):
            _refuse_link(path)
            yield Bind(path, read_only=True)


def _complete(git: Path, user: User) -> None:
    """Make what git would read but has no need of: empty, and the workspace owner's."""
    for name in NEEDED_FOLDERS:
        path = git / name
        if not os.path.lexists(path):
            path.mkdir(mode=0o755)
            give(path, user)
        _refuse_link(path)
    for name in NEEDED_FILES:
        path = git / name
        if not os.path.lexists(path):
            path.touch(mode=0o644, exist_ok=False)
            give(path, user)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise WorkspaceRefused(
            f"{path} is a symbolic link, so it cannot be protected from the agent.",
            "Put what it leads to in its place, or set sandbox.protect: off.",
        )


def _inode(path: Path) -> Inode | None:
    try:
        facts = path.lstat()
    except OSError:
        return None
    return None if stat.S_ISLNK(facts.st_mode) else (facts.st_dev, facts.st_ino)
