"""Where a token comes from: the server that really serves an origin, or a file only the user can read (I4)."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from a2a_serve.config import find_server, origin_of, register_server, saved_token
from a2a_serve.core.errors import NotSignedIn, UsageError

pytestmark = pytest.mark.req("I4")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def project(tmp_path: Path, name: str) -> Path:
    (tmp_path / name / ".a2a").mkdir(parents=True)
    return tmp_path / name


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://127.0.0.1:41241/a2a/jsonrpc", "http://127.0.0.1:41241"),
        ("HTTP://LocalHost:80", "http://127.0.0.1"),
        ("https://Example.org:443/x?y#z", "https://example.org"),
        ("http://[::1]:5", "http://[::1]:5"),
        ("http://user:pw@h:1/", "http://h:1"),
    ],
)
def test_origins(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize("url", ["", "127.0.0.1:41241", "ftp://x", "http://", "http://h:99999", "http://[::1", "//h"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UsageError):
        origin_of(url)


def test_a_server_is_found_by_any_url_of_its_origin(tmp_path: Path, home: dict[str, str]) -> None:
    root = project(tmp_path, "a")
    register_server("http://127.0.0.1:5000", root, home)
    assert find_server("http://localhost:5000/a2a/rest", home) == root
    assert find_server("http://127.0.0.1:5001", home) is None
    assert find_server("https://127.0.0.1:5000", home) is None


def test_gone_directories_are_dropped_and_a_damaged_file_is_replaced(tmp_path: Path, home: dict[str, str]) -> None:
    file = tmp_path / "state" / "a2a-serve" / "servers.json"
    file.parent.mkdir(parents=True)
    for damage in ["", "[1]", "{", '{"a": 3}']:
        file.write_text(damage)
        assert find_server("http://127.0.0.1:5000", home) is None
        register_server("http://127.0.0.1:5000", project(tmp_path, f"d{len(damage)}"), home)
    file.write_text(json.dumps({"http://127.0.0.1:1": str(tmp_path / "gone")}))
    register_server("http://127.0.0.1:2", project(tmp_path, "b"), home)
    assert list(json.loads(file.read_text())) == ["http://127.0.0.1:2"]


def test_servers_that_start_together_do_not_lose_each_other(tmp_path: Path, home: dict[str, str]) -> None:
    root = project(tmp_path, "a")
    threads = [
        threading.Thread(target=register_server, args=(f"http://127.0.0.1:{port}", root, home)) for port in range(1, 20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(find_server(f"http://127.0.0.1:{port}", home) == root for port in range(1, 20))


def credentials(home: dict[str, str], text: str, mode: int = 0o600) -> Path:
    file = Path(home["XDG_CONFIG_HOME"]) / "a2a-serve" / "credentials.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_saved_token(home: dict[str, str]) -> None:
    assert saved_token("https://h", home) is None
    credentials(home, json.dumps({"https://H:443/": "t", "broken": "u", "https://e": ""}))
    assert saved_token("https://h/a2a", home) == "t"
    assert saved_token("http://h", home) is None
    assert saved_token("https://e", home) is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_that_others_can_use_is_not_read(home: dict[str, str], mode: int) -> None:
    credentials(home, '{"https://h": "canary"}', mode)
    with pytest.raises(NotSignedIn, match="chmod 600") as caught:
        saved_token("https://h", home)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 50000])
def test_a_damaged_file_says_so(home: dict[str, str], text: str) -> None:
    credentials(home, text)
    with pytest.raises(NotSignedIn, match="damaged"):
        saved_token("https://h", home)


def test_relative_xdg_paths_are_ignored(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "rel"}
    assert saved_token("https://h", home) is None
    file = tmp_path / ".config" / "a2a-serve" / "credentials.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"https://h": "t"}')
    file.chmod(0o600)
    assert saved_token("https://h", home) == "t"
