from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from a2a_serve.core.errors import ConfigError, DirectoryNotWritable, PortTaken
from a2a_serve.listeners.sockets import MAX_UNIX_PATH, bind_tcp, bind_unix, read_peer, socket_address

needs_root = pytest.mark.usefixtures("as_root")


@pytest.fixture
def as_root() -> None:
    assert os.geteuid() == 0, "this test gives a socket to another user: run the tests as root"


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A directory whose path has over 150 bytes, and spaces."""
    made = tmp_path / ("a long name with spaces " * 3) / ("and another one " * 5)
    made.mkdir(parents=True)
    assert len(os.fsencode(made)) > 150
    return made


def test_a_free_port_is_found_and_only_on_loopback() -> None:
    with bind_tcp("127.0.0.1", 0) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"
        assert bound.getsockname()[1] > 0
        assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == 0


def test_localhost_is_127_0_0_1() -> None:
    with bind_tcp("localhost", 0) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"


def test_a_taken_port_says_so_and_what_to_do() -> None:
    with bind_tcp("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            bind_tcp("127.0.0.1", port)
    assert caught.value.exit_status == 73
    assert str(port) in caught.value.sentence
    assert "--port" in caught.value.hint


def test_a_port_that_another_holds_with_reuseport_is_taken_too() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortTaken):
            bind_tcp("127.0.0.1", other.getsockname()[1])


@pytest.mark.parametrize("host", ["192.0.2.77", "no.such.host.invalid", "", "127.0.0.1:80", "not an address"])
def test_an_address_that_is_not_ours_is_a_config_error(host: str) -> None:
    with pytest.raises(ConfigError):
        bind_tcp(host or "256.1.1.1", 0)


@pytest.mark.parametrize("port", [-1, 65536, 2**40])
def test_a_number_that_is_no_port_is_a_config_error(port: int) -> None:
    with pytest.raises(ConfigError):
        bind_tcp("127.0.0.1", port)


def test_a_short_path_is_used_as_it_is(tmp_path: Path) -> None:
    path = Path("/tmp/short.sock")
    with socket_address(path) as address:
        assert address == str(path)


def test_a_long_path_is_reached_and_its_descriptor_closed(deep: Path) -> None:
    path = deep / "control.sock"
    before = len(os.listdir("/proc/self/fd"))
    with bind_unix(path, 0o600) as bound:
        bound.listen()
        with socket_address(path) as address, socket.socket(socket.AF_UNIX) as client:
            assert len(os.fsencode(address)) <= MAX_UNIX_PATH
            client.connect(address)
        assert stat.S_ISSOCK(path.stat().st_mode)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_long_path_in_no_directory_is_an_error(deep: Path) -> None:
    with pytest.raises(DirectoryNotWritable), bind_unix(deep / "missing" / "control.sock", 0o600):
        pass


def test_a_name_too_long_for_any_way_is_an_error(deep: Path) -> None:
    with pytest.raises(ConfigError), socket_address(deep / ("n" * 100)):
        pass


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
def test_the_file_has_the_mode_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    for umask in (0, 0o077):
        old = os.umask(umask)
        try:
            with bind_unix(tmp_path / f"s{umask}", mode):
                assert stat.S_IMODE((tmp_path / f"s{umask}").stat().st_mode) == mode
        finally:
            os.umask(old)


def test_the_file_is_never_wider_than_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen at the moment between bind and chmod, under the widest umask."""
    seen: list[int] = []
    chmod = Path.chmod

    def spy(self: Path, mode: int) -> None:
        seen.append(stat.S_IMODE(self.stat().st_mode))
        chmod(self, mode)

    monkeypatch.setattr(Path, "chmod", spy)
    old = os.umask(0)
    try:
        bind_unix(tmp_path / "s", 0o600).close()
    finally:
        os.umask(old)
    assert seen == [0o600]


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    bind_unix(tmp_path / "s", 0o600).close()
    assert (tmp_path / "s").exists()
    with bind_unix(tmp_path / "s", 0o600) as bound:
        bound.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))


def test_a_socket_that_somebody_serves_is_left_alone(tmp_path: Path) -> None:
    with bind_unix(tmp_path / "s", 0o600) as bound:
        bound.listen()
        with pytest.raises(PortTaken):
            bind_unix(tmp_path / "s", 0o600)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_is_never_removed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    make: dict[str, Callable[[], object]] = {
        "file": lambda: path.write_text("precious"),
        "directory": path.mkdir,
        "link": lambda: path.symlink_to(tmp_path / "elsewhere"),
    }
    make[kind]()
    with pytest.raises(ConfigError):
        bind_unix(path, 0o600)
    assert path.is_symlink() if kind == "link" else path.exists()


@needs_root
def test_a_socket_can_belong_to_another_user(tmp_path: Path) -> None:
    with bind_unix(tmp_path / "s", 0o600, 4711, 4712):
        found = (tmp_path / "s").stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4711, 4712, 0o600)


def test_the_peer_is_who_connected(tmp_path: Path) -> None:
    with bind_unix(tmp_path / "s", 0o600) as bound, socket.socket(socket.AF_UNIX) as client:
        bound.listen()
        bound.setblocking(True)
        threading.Thread(target=client.connect, args=[str(tmp_path / "s")]).start()
        served, _ = bound.accept()
        with served:
            assert read_peer(served) == (os.geteuid(), os.getpid())
