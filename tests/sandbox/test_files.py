from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from a2a_serve.sandbox import files
from a2a_serve.sandbox.files import UnsafeFile, read_beneath

LIMIT = 1 << 20


@pytest.fixture(params=["kernel", "step by step"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of opening: a kernel without openat2 is had by letting the call say so."""
    if request.param != "kernel":

        def missing(*_: object) -> int:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        monkeypatch.setattr(files, "_openat2", missing)
    return str(request.param)


@pytest.fixture
def box(tmp_path: Path, way: str) -> Path:
    """A folder that an agent writes, beside a secret."""
    folder = tmp_path / "box"
    (folder / "sub").mkdir(parents=True)
    (folder / "plain").write_text("content")
    (folder / "sub/inner").write_text("inner")
    (tmp_path / "secret").write_text("SECRET")
    return folder


def test_regular_files_are_read(box: Path) -> None:
    assert read_beneath(box, "plain", LIMIT) == b"content"
    assert read_beneath(box, "sub/inner", LIMIT) == b"inner"
    assert read_beneath(box, "plain", 7) == b"content"


def test_a_missing_file_is_missing(box: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_beneath(box, "nothing", LIMIT)


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../secret", "sub/../plain", "./plain", "sub//inner", "a\0b", "sub/"]
)
def test_paths_that_are_not_plain(box: Path, path: str) -> None:
    with pytest.raises(UnsafeFile):
        read_beneath(box, path, LIMIT)


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "plain", "/proc/self/environ", "nowhere"])
def test_links_are_refused_wherever_they_lead(box: Path, target: str) -> None:
    (box / "link").symlink_to(target)
    with pytest.raises(UnsafeFile, match="symbolic link"):
        read_beneath(box, "link", LIMIT)


def test_a_linked_folder_on_the_way_is_refused(box: Path) -> None:
    (box / "way").symlink_to("..")
    with pytest.raises(UnsafeFile, match="symbolic link"):
        read_beneath(box, "way/secret", LIMIT)


@pytest.mark.req("A9")
def test_what_is_not_one_regular_file_is_refused(box: Path) -> None:
    os.mkfifo(box / "fifo")
    os.link(box / "plain", box / "second")
    with (box / "sparse").open("wb") as sparse:
        sparse.truncate(50 << 30)
    (box / "large").write_bytes(b"x" * 11)
    for name, limit, words in (
        ("fifo", LIMIT, "regular"),
        ("sub", LIMIT, "regular"),
        ("second", LIMIT, "second name"),
        ("sparse", LIMIT, "larger"),
        ("sparse", 1 << 40, "holes"),
        ("large", 10, "larger than 10 bytes"),
    ):
        with pytest.raises(UnsafeFile, match=words):
            read_beneath(box, name, limit)


def test_a_socket_is_refused(box: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(box, os.O_DIRECTORY)
        listener.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
        with pytest.raises(UnsafeFile, match="regular"):
            read_beneath(box, "socket", LIMIT)


def test_a_file_swapped_for_a_link_never_gives_what_is_outside(box: Path) -> None:
    """Row O2: the swap runs for the whole time that the file is read."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (box / "new").symlink_to("../secret")
            (box / "new").rename(box / "plain")
            (box / "new").write_text("content")
            (box / "new").rename(box / "plain")

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = {"read": 0, "refused": 0}
    deadline = time.monotonic() + 10
    try:
        while min(seen.values()) < 200 and time.monotonic() < deadline:
            try:
                assert read_beneath(box, "plain", LIMIT) in (b"content", b"")
                seen["read"] += 1
            except UnsafeFile:
                seen["refused"] += 1
    finally:
        stop.set()
        swapper.join()
    assert min(seen.values()) >= 200


def test_no_descriptor_is_left_open(box: Path) -> None:
    (box / "link").symlink_to("plain")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("plain", "link", "sub", "nothing", "sub/inner") * 20:
        try:
            read_beneath(box, name, LIMIT)
        except (UnsafeFile, FileNotFoundError):
            continue
    assert len(os.listdir("/proc/self/fd")) == before
