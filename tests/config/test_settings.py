from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_serve.config import ModelApi, Settings
from a2a_serve.config.settings import parse_size, size_text
from a2a_serve.core.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "size"),
    [("2g", 2 << 30), ("512m", 512 << 20), ("1.5 GiB", 3 << 29), ("10KB", 10240), (77, 77), ("0", 0), ("1T", 1 << 40)],
)
def test_sizes(written: str | int, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "g", "-1m", "1 x", "1e3", None, True, 1.5, "nan", "１g g"])
def test_what_is_no_size(written: object) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(written)


@given(st.integers(min_value=0, max_value=1 << 50))
def test_a_size_is_written_exactly(size: int) -> None:
    assert parse_size(size_text(size)) == size


def test_defaults_survive_being_written_and_read() -> None:
    assert Settings.model_validate(Settings().model_dump(mode="json")) == Settings()


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().listen.port = 1  # type: ignore[misc]


def test_a_model_key_comes_from_its_file_before_the_environment(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(" from-file\n")
    environment = {"K": " from-env "}
    both = ModelApi(upstream="http://127.0.0.1:1", key_env="K", key_file=key)
    assert both.read_key(environment) == "from-file"
    assert ModelApi(upstream="http://127.0.0.1:1", key_env="K").read_key(environment) == "from-env"
    assert ModelApi(upstream="http://127.0.0.1:1", key_env="GONE").read_key(environment) == ""
    assert ModelApi(upstream="http://127.0.0.1:1").read_key({"": "x"}) in ("", "x")


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_key_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    key = tmp_path / "key"
    if content:
        key.write_bytes(content)
    with pytest.raises(ConfigError, match=str(key)):
        ModelApi(upstream="http://127.0.0.1:1", key_file=key).read_key({})


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://a", "http://", "http://u:p@h", "http://h:0", "http://h:99999", "http://h /", "http://[::1"]
)
def test_bad_urls(url: str) -> None:
    with pytest.raises(ValueError, match="http"):
        ModelApi(upstream=url)
