"""Reading what an agent may have written, without following it anywhere.

An agent can put links, FIFOs, devices and files of any size where the server reads. So a path is resolved by the
kernel strictly below a directory, links refused (openat2, Linux 5.6; elsewhere step by step without following), and
everything is decided on the open descriptor, never on the name again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from a2a_serve.core.errors import ServeError

OPENAT2 = 437  # the same number on every architecture
BENEATH, NO_SYMLINKS, NO_MAGICLINKS = 0x08, 0x04, 0x02
SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
SMALL = 1 << 20
"""Below it a file may be sparse: small files are stored in odd ways."""
BLOCK = 512
DENSITY = 8
"""A larger file must have a block for at least one in so many."""


class UnsafeFile(ServeError):
    """A file that an agent may have made is not what it should be; the sentence names it and says why."""

    code = "unsafe_file"


def read_beneath(root: Path, path: str, limit: int) -> bytes:
    """The whole content of the regular file `path` below `root`, at most `limit` bytes.

    `root` itself must be the server's own choice. Raises FileNotFoundError, and UnsafeFile for a link on the way, for
    what is not a regular file with one name, and for one that is too large or sparse.
    """
    with opened_beneath(root, path) as fd:
        return read_checked(fd, path, limit)


@contextmanager
def opened_beneath(root: Path, path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of `path` below `root`, closed at the end. Raises FileNotFoundError, UnsafeFile."""
    base = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if hasattr(os, "O_PATH") else os.open(root, 0)
    try:
        fd = open_at(base, path, flags)
    finally:
        os.close(base)
    try:
        yield fd
    finally:
        os.close(fd)


def open_at(base: int, path: str, flags: int = os.O_RDONLY) -> int:
    """As `opened_beneath`, from an open directory; the caller closes what is returned."""
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise UnsafeFile(f"{path!r} is not a plain path below its folder.")
    try:
        return _openat2(base, path, flags | SAFELY)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return _walk(base, parts, flags | SAFELY)
        raise _judged(error, path) from error


def _openat2(base: int, path: str, flags: int) -> int:
    if not hasattr(os, "O_PATH"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)
    how = struct.pack("QQQ", flags, 0, BENEATH | NO_SYMLINKS | NO_MAGICLINKS)
    fd: int = ctypes.CDLL(None, use_errno=True).syscall(OPENAT2, base, os.fsencode(path), how, len(how))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return fd


def _walk(base: int, parts: list[str], flags: int) -> int:
    """One step at a time, never through a link; safe, and slower than the kernel's own."""
    here = os.dup(base)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_DIRECTORY | SAFELY, dir_fd=here)
            os.close(here)
            here = below
        return os.open(parts[-1], flags, dir_fd=here)
    except OSError as error:
        raise _judged(error, "/".join(parts)) from error
    finally:
        os.close(here)


def _judged(error: OSError, path: str) -> Exception:
    if error.errno in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR):
        return UnsafeFile(f"{path!r} is, or goes through, a symbolic link.")
    if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):
        return UnsafeFile(f"{path!r} is not a regular file.")
    return error


def read_checked(fd: int, name: str, limit: int) -> bytes:
    """The content of an open file, once it has been found fit. Raises UnsafeFile."""
    facts = os.fstat(fd)
    if reason := _unfit(facts, limit):
        raise UnsafeFile(f"{name!r} {reason}.")
    chunks, left = [], limit + 1
    while left and (chunk := os.read(fd, min(left, SMALL))):
        chunks.append(chunk)
        left -= len(chunk)
    if not left:  # it grew meanwhile
        raise UnsafeFile(f"{name!r} {_too_large(limit)}.")
    return b"".join(chunks)


def _unfit(facts: os.stat_result, limit: int) -> str:
    if not stat.S_ISREG(facts.st_mode):
        return "is not a regular file"
    if facts.st_nlink != 1:
        return "has a second name (a hard link)"
    if facts.st_size > limit:
        return _too_large(limit)
    if facts.st_size > SMALL and facts.st_blocks * BLOCK < facts.st_size // DENSITY:
        return "is mostly holes (a sparse file)"
    return ""


def _too_large(limit: int) -> str:
    return f"is larger than {limit} bytes"
