"""Finding and ending processes by a mark in their environment, which children inherit wherever they go.

Linux only (/proc); elsewhere nothing is found, and a process group is all there is to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
OWNER, BOOT = "A2A_SERVE_OWNER", "A2A_SERVE_BOOT"


@dataclass(frozen=True, slots=True)
class Marked:
    """A process that carries the marks. `boot` is `<server process>/<agent process>`."""

    pid: int
    owner: str
    boot: str


def marked() -> Iterator[Marked]:
    """Every process of this user that carries the marks, but this one."""
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and (found := _read(int(entry.name))):
            yield found


def _read(pid: int) -> Marked | None:
    try:
        block = (PROC / str(pid) / "environ").read_bytes()
    except OSError:  # gone, or another user's
        return None
    values = dict(line.partition(b"=")[::2] for line in block.split(b"\0"))
    owner, boot = values.get(OWNER.encode()), values.get(BOOT.encode())
    return Marked(pid, os.fsdecode(owner), os.fsdecode(boot)) if owner and boot else None


def kill(target: Marked) -> bool:
    """Kill exactly that process: a pid that has meanwhile become another process is left alone."""
    try:
        handle = os.pidfd_open(target.pid)
    except OSError:
        return False
    try:
        if _read(target.pid) != target:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def kill_boot(boot: str) -> None:
    """Kill what carries this mark until nothing is left: it may be forking meanwhile."""
    while [each for each in marked() if each.boot == boot and kill(each)]:
        continue


def signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
