"""Bound sockets: a TCP port of our own, and unix sockets whatever the length of their path. Linux."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from a2a_serve.core.errors import ConfigError, DirectoryNotWritable, PortTaken, ServeError

MAX_UNIX_PATH = 107
"""Bytes that fit into sockaddr_un (unix(7))."""


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """What to bind or connect to for the unix socket `path`: itself, or a short way to it while the block runs.

    A path over 107 bytes is reached through an open descriptor of its directory. Raises OSError when that directory
    cannot be opened, ConfigError when the file's own name is too long for even that.
    """
    if len(os.fsencode(path)) <= MAX_UNIX_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = f"/proc/self/fd/{directory}/{path.name}"
        if len(os.fsencode(short)) > MAX_UNIX_PATH:
            raise ConfigError(f"The socket's name is too long: {path.name}.", "Use a name of at most 80 bytes.")
        yield short
    finally:
        os.close(directory)


def bind_tcp(host: str, port: int) -> socket.socket:
    """A bound socket, not yet listening, that shares its port with nobody. `host` is an IP address or `localhost`.

    Raises PortTaken, or ConfigError when the address is not this machine's.
    """
    family, address = _resolve(host, port)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        # lets a restart take over a port with closed connections; two listeners it does not let in on Linux
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(1)  # another's listening socket only shows here when both set SO_REUSEADDR
    except OSError as error:
        bound.close()
        raise _tcp_error(error, host, port) from error
    bound.setblocking(False)
    return bound


def _resolve(host: str, port: int) -> tuple[int, tuple[str, int]]:
    name = "127.0.0.1" if host == "localhost" else host
    if not 0 <= port <= 65535:
        raise ConfigError(f"{port} is not a port.", "Use a number from 1 to 65535, or 0 for a free one.")
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror as error:
        raise ConfigError(f"{host!r} is not an address to listen on.", "Use 127.0.0.1.") from error
    family, _, _, _, address = found[0]
    return family, address  # type: ignore[return-value]


def _tcp_error(error: OSError, host: str, port: int) -> ServeError:
    if error.errno == errno.EADDRINUSE:
        hint = "Stop what uses it, or choose another with --port (0 takes a free one)."
        return PortTaken(f"Port {port} on {host} is taken.", hint)
    if error.errno == errno.EACCES:
        return PortTaken(f"This user may not open port {port}.", "Choose one above 1023 with --port.")
    return ConfigError(f"Cannot listen on {host}: {os.strerror(error.errno or 0)}.", "Use 127.0.0.1.")


def bind_unix(path: Path, mode: int, uid: int | None = None, gid: int | None = None) -> socket.socket:
    """A bound unix socket at `path`, at no moment open to more than `mode` says; a stale one is replaced.

    Raises PortTaken when somebody serves there, ConfigError when something else is in the way, DirectoryNotWritable.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_address(path) as address:
            _clear_stale(path, address)
            # Linux makes the file with the socket's own mode; umask(2) would act on the whole process
            os.fchmod(bound.fileno(), mode)
            bound.bind(address)
            Path(address).chmod(mode)
            if uid is not None and (uid, gid) != (os.geteuid(), None):
                os.chown(address, uid, -1 if gid is None else gid)
    except OSError as error:
        bound.close()
        sentence = f"Cannot make the socket {path}: {os.strerror(error.errno or 0)}."
        raise DirectoryNotWritable(sentence, "Check that its directory exists and is yours.") from error
    except ServeError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


def _clear_stale(path: Path, address: str) -> None:
    try:
        mode = Path(address).lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} is in the way: it is not a socket.", "Move it elsewhere.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            Path(address).unlink(missing_ok=True)
            return
        except OSError:
            pass  # full, or not ours to ask: somebody holds it
    raise PortTaken(f"Somebody serves at {path} already.", "Stop that server first.")


def identify_file(path: Path) -> tuple[int, int] | None:
    """Which file `path` is now: device and inode, None when there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def read_peer(sock: socket.socket) -> tuple[int, int]:
    """(uid, pid) of a unix socket's other end when it connected (SO_PEERCRED, unix(7))."""
    pid, uid, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    return uid, pid
