"""Files of the workspace that this machine runs later, without anybody asking: were they changed? (requirement S3)

An agent needs no exploit where its user's editor, shell, git or package manager runs what it wrote. Such files are
hashed before and after a turn and a change is told. Everything is read by files.py, so nothing here follows a link.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from a2a_serve.sandbox.files import UnsafeFile, open_at

FILES = (
    *(".git/config", ".git/config.worktree", ".git/commondir", ".git/info/attributes", ".gitmodules", ".gitattributes"),
    *(".envrc", ".bashrc", ".profile", ".tool-versions", "mise.toml", ".mise.toml", ".pre-commit-config.yaml"),
    *("Makefile", "makefile", "GNUmakefile", "justfile", "Taskfile.yml", "package.json", ".npmrc", ".yarnrc.yml"),
    *("pyproject.toml", "setup.py", "setup.cfg", "conftest.py", "sitecustomize.py", "tox.ini", "noxfile.py"),
    *(".mcp.json", "opencode.json", "opencode.jsonc", "CLAUDE.md", "AGENTS.md", "GEMINI.md"),
)
FOLDERS = (
    *(".git/hooks", ".git/modules", ".husky", ".github/workflows", ".vscode", ".idea", ".devcontainer"),
    *(".claude", ".codex", ".gemini", ".opencode", ".agents", ".venv/bin", "venv/bin", "node_modules/.bin"),
)
DEPTH = 3
ENTRIES = 2000
"""Of all folders together: a bound, not a promise."""
HASHED = 1 << 20
"""Bytes of one file that are hashed; a change beyond them shows in its size and times."""

Facts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Print:
    """What a file was like: `facts` tell whether it must be read again, `digest` and `mode` whether it changed."""

    facts: Facts
    mode: int
    digest: str


@dataclass(frozen=True, slots=True)
class HostFiles:
    """One snapshot, by path relative to the workspace."""

    prints: Mapping[str, Print] = field(default_factory=dict)

    def changes(self, later: HostFiles) -> list[str]:
        """One line for each difference: `new`, `changed` or `removed`, and the path, in order of path."""
        found = {}
        for path in {*self.prints, *later.prints}:
            old, new = self.prints.get(path), later.prints.get(path)
            if old is None or new is None:
                found[path] = "new" if old is None else "removed"
            elif (old.mode, old.digest) != (new.mode, new.digest):
                found[path] = "changed"
        return [f"{found[path]} {path}" for path in sorted(found)]


def snapshot(workspace: Path, earlier: HostFiles | None = None) -> HostFiles:
    """Read the host-executed files of the workspace; those unchanged since `earlier` are not read again. Blocks."""
    known = earlier.prints if earlier else {}
    base = os.open(workspace, os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = {}
        for path in _paths(base):
            if (made := _print(base, path, known.get(path))) is not None:
                found[path] = made
        return HostFiles(found)
    finally:
        os.close(base)


def _paths(base: int) -> Iterator[str]:
    yield from FILES
    left = ENTRIES
    for folder in FOLDERS:
        for path in _below(base, folder, DEPTH):
            if not left:
                return
            left -= 1
            yield path


def _below(base: int, folder: str, depth: int) -> Iterator[str]:
    try:
        fd = open_at(base, folder, os.O_RDONLY | os.O_DIRECTORY)
    except UnsafeFile:
        yield folder  # a link in the folder's place is itself what to watch
        return
    except OSError:
        return
    try:
        with os.scandir(fd) as listing:
            entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing)
    finally:
        os.close(fd)
    for name, is_folder in entries:
        if not is_folder:
            yield f"{folder}/{name}"
        elif depth > 1:
            yield from _below(base, f"{folder}/{name}", depth - 1)


def _print(base: int, path: str, known: Print | None) -> Print | None:
    """None for what is not there, or lies behind a link (the link itself is then watched)."""
    folder, _, name = path.rpartition("/")
    try:
        parent = open_at(base, folder, os.O_RDONLY | os.O_DIRECTORY) if folder else os.dup(base)
    except (OSError, UnsafeFile):
        return None
    try:
        facts = os.stat(name, dir_fd=parent, follow_symlinks=False)
        kept = (facts.st_ino, facts.st_dev, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        if known and known.facts == kept:
            return known
        return Print(kept, facts.st_mode, _digest(parent, name, facts))
    except OSError:
        return None
    finally:
        os.close(parent)


def _digest(parent: int, name: str, facts: os.stat_result) -> str:
    if stat.S_ISLNK(facts.st_mode):
        return "link to " + os.readlink(name, dir_fd=parent)
    if not stat.S_ISREG(facts.st_mode):
        return "special"
    try:
        fd = open_at(parent, name)
    except (OSError, UnsafeFile):
        return "unreadable"
    try:
        start = hashlib.sha256(os.read(fd, HASHED)).hexdigest()
    finally:
        os.close(fd)
    return start if facts.st_size <= HASHED else f"{start} {facts.st_size} {facts.st_ctime_ns}"
