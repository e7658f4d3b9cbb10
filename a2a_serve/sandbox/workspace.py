"""Which folders may be given to an agent, and whose the agent's files will be."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePath

from a2a_serve.core.errors import WorkspaceRefused

ALONE = ("/", "/home", "/root", "/Users", "/var", "/var/lib", "/var/log", "/opt", "/srv", "/mnt", "/media", "/tmp")  # noqa: S108
"""Refused themselves; a folder below them is a project's own matter."""
HOMES = ("/home", "/Users")
"""What lies directly below is a person's home directory."""
WITH_ALL_BELOW = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr"),
    *("/run/a2a", "/run/docker", "/run/systemd", "/var/run", "/var/lib/docker", "/var/lib/containerd"),
    *("/opt/a2a-serve", "/opt/agent", "/home/agent", "/System", "/Library"),
)
"""System folders, and folders that the image itself needs."""
SECRETS = (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".local")
"""Folders of a home directory that hold its owner's keys and programs."""


def refuse_workspace(path: PurePath, home: PurePath) -> None:
    """Refuse a folder that no agent may be given. `path` must be absolute and resolved; `home` is the server user's.

    Raises WorkspaceRefused (requirement S3).
    """
    reason = _reason(path, home)
    if reason:
        raise WorkspaceRefused(
            f"{path} cannot be a workspace: {reason}.", "Choose a project folder, for example one below your home."
        )


def _reason(path: PurePath, home: PurePath) -> str:
    name = str(path)
    if not path.is_absolute() or ".." in path.parts:
        return "its path is not absolute"
    if path == home or str(path.parent) in HOMES:
        return "it is a home directory"
    if name in ALONE or name == "/run" or home.is_relative_to(path):
        return "it is not one project's folder"
    if any(path.is_relative_to(folder) for folder in WITH_ALL_BELOW):
        return "it is a folder of the system, or one that the sandbox needs itself"
    if any(path.is_relative_to(home / folder) for folder in SECRETS):
        return "it holds your own keys or settings"
    return ""


@dataclass(frozen=True, slots=True)
class User:
    """Who the agent is: numbers as inside the container."""

    uid: int
    gid: int

    @property
    def is_root(self) -> bool:
        return self.uid == 0

    @property
    def passwd(self) -> str:
        """The lines of /etc/passwd: without one for its uid, git and ssh do not work."""
        own = "" if self.is_root else f"agent:x:{self.uid}:{self.gid}:Agent:/home/agent:/bin/bash\n"
        return f"root:x:0:0:root:/home/agent:/bin/bash\n{own}nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"

    @property
    def group(self) -> str:
        own = "" if self.gid == 0 else f"agent:x:{self.gid}:\n"
        return f"root:x:0:\n{own}nogroup:x:65534:\n"


def owner_of(workspace: Path) -> User:
    """The workspace's owner: files that the agent makes will be theirs (requirement S1)."""
    facts = workspace.stat()
    return User(facts.st_uid, facts.st_gid)


def give(path: Path, user: User) -> None:
    """Make `path` the user's own, where this server may; never through a link."""
    facts = path.lstat()
    if os.geteuid() == 0 and (facts.st_uid, facts.st_gid) != (user.uid, user.gid):
        os.chown(path, user.uid, user.gid, follow_symlinks=False)
