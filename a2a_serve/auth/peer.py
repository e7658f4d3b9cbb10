"""Who is at the other end of a unix socket: by the uid that the kernel tells, and its pid namespace."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from a2a_serve.auth import Evidence
from a2a_serve.core.errors import BadCredential
from a2a_serve.core.model import Identity, Role


def user_name(uid: int) -> str:
    """The OS user's name; `uid <number>` where the system knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


class PeerMethod:
    """The owner by SO_PEERCRED (unix(7)): the uid is one of `uids`, by default our own and root's.

    A container's process shows the same uid, so a peer of another pid namespace is refused where that can be told;
    that its container cannot see the socket is the sandbox's part.
    """

    name = "peer"
    challenge = ""

    def __init__(self, uids: Iterable[int] | None = None) -> None:
        self._uids = frozenset({os.geteuid(), 0} if uids is None else uids)
        self._owner = Identity("local:owner", user_name(os.geteuid()), Role.OWNER, self.name)

    async def identify(self, evidence: Evidence) -> Identity | None:
        if evidence.uid is None:
            return None
        if evidence.uid not in self._uids or _is_elsewhere(evidence.pid, evidence.uid):
            raise BadCredential("Only the user who runs the server can use its control socket.")
        return self._owner


def _is_elsewhere(pid: int | None, uid: int) -> bool:
    """Whether the peer lives in another pid namespace. A process that hides that is taken for one, unless it is root's:
    of those an unprivileged server cannot tell."""
    if pid is None:
        return False
    if pid <= 0:  # the kernel's way to say: not visible from here
        return True
    try:
        theirs, ours = (Path(f"/proc/{each}/ns/pid").stat() for each in (pid, "self"))
    except PermissionError:
        return uid != 0
    except OSError:
        return True
    return (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)
