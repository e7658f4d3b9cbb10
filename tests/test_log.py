"""The log: one line a record, no secret in any form, rotation."""

from __future__ import annotations

import base64
import io
import logging
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_serve import log

SECRET = "k€y/with+odd=chars&more"
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+ .*")


@pytest.fixture
def untouched() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in log.QUIET}
    root.handlers[:] = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, value in levels.items():
        logging.getLogger(name).setLevel(value)


def line(message: str, *args: object, redactor: log.Redactor | None = None, **extra: object) -> str:
    record = logging.LogRecord("a.b", logging.INFO, "f", 1, message, args, None)
    record.created, record.msecs = 1.25, 250
    record.__dict__.update(extra)
    return log.LineFormatter(redactor or log.Redactor()).format(record)


def test_a_line_has_time_level_logger_and_request() -> None:
    assert line("hi %s", "you") == "1970-01-01T00:00:01.250Z INFO a.b hi you"
    assert line("hi", request_id="r1") == "1970-01-01T00:00:01.250Z INFO a.b [r1] hi"
    token = log.request_id.set("r2")
    try:
        assert line("hi").endswith(" [r2] hi")
    finally:
        log.request_id.reset(token)


@given(st.text())
def test_a_record_is_one_line_of_printable_text(text: str) -> None:
    made = line("%s", text)
    assert len(made.splitlines()) == 1
    assert made.encode()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", made)


def test_a_traceback_stays_in_its_line() -> None:
    try:
        raise ValueError(f"about {SECRET}")
    except ValueError:
        made = line("it broke", redactor=log.Redactor([SECRET]), exc_info=sys.exc_info())
    assert "Traceback" in made
    assert SECRET not in made
    assert len(made.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        repr({"key": SECRET}),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"u:{SECRET}".encode()).decode(),
        base64.b64encode(f"us:{SECRET} and more".encode()).decode(),
        base64.b64encode(f"use:{SECRET}!".encode()).decode(),
    ],
)
def test_a_known_secret_is_hidden_in_every_form(text: str) -> None:
    made = line("got %s here", text, redactor=log.Redactor([SECRET]))
    assert log.HIDDEN in made
    assert made.endswith(" here")
    for form in (SECRET[4:12], base64.b64encode(SECRET.encode()).decode()[4:16]):
        assert form not in made


@given(st.binary(min_size=8, max_size=40), st.binary(max_size=9), st.binary(max_size=9))
def test_base64_of_a_longer_text_gives_nothing_away(raw: bytes, before: bytes, after: bytes) -> None:
    secret = raw.hex()
    text = base64.b64encode(before + secret.encode() + after).decode()
    shown = log.Redactor([secret]).clean(text)
    assert log.HIDDEN in shown
    visible = shown.replace(log.HIDDEN, "")
    assert len(visible) <= len(base64.b64encode(before + after)) + 8


@pytest.mark.parametrize(
    ("text", "canary"),
    [
        ("token a2as_pair_Canary123_abc!", "Canary"),
        ("key sk-ant-api03-Canary123", "Canary"),
        ("key AIzaCanary123456789012345678", "Canary"),
        ("Authorization: Bearer Canary123", "Canary"),
        ("Authorization: Canary", "Canary"),
        ("authorization: basic Canary==", "Canary"),
        ("{'authorization': 'Bearer Canary'}", "Canary"),
        ('{"Authorization":"Canary"}', "Canary"),
        ("(b'authorization', b'x') bearer Canary123", "Canary"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, canary: str) -> None:
    assert canary not in line("%s", text)


@pytest.mark.parametrize("text", ["task-1 risk-free desk-lamp", "authorized by alice", "sk-1", "a2a_serve.app"])
def test_plain_words_stay(text: str) -> None:
    assert line("%s", text).endswith(text)


def test_short_values_are_not_taken_for_secrets() -> None:
    assert line("the demo agent", redactor=log.Redactor(["demo", ""])).endswith("the demo agent")


@pytest.mark.usefixtures("untouched")
def test_file_terminal_and_levels(tmp_path: Path) -> None:
    terminal = io.StringIO()
    log.start("info", tmp_path / "server.log", terminal, log.Redactor())
    logging.getLogger("a2a_serve.x").debug("not this")
    logging.getLogger("a2a_serve.x").info("this %s", "one")
    logging.getLogger("a2a.client.card_resolver").info("a whole card")
    logging.getLogger("acp").error("Traceback")
    log.hide("longsecret")
    logging.getLogger("a2a_serve.x").warning("and longsecret")
    lines = (tmp_path / "server.log").read_text().splitlines()
    assert [each.split(" ", 1)[1] for each in lines] == [
        "INFO a2a_serve.x this one",
        "WARNING a2a_serve.x and [hidden]",
    ]
    assert all(LINE.fullmatch(each) for each in lines)
    assert terminal.getvalue().splitlines() == [lines[1]]
    assert stat.S_IMODE((tmp_path / "server.log").stat().st_mode) == 0o600


@pytest.mark.usefixtures("untouched")
def test_the_file_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (log.MAX_BYTES, log.FILES) == (10 << 20, 5)
    monkeypatch.setattr(log, "MAX_BYTES", 10_000)
    log.start("info", tmp_path / "server.log", None, log.Redactor())
    message = "x" * 1000
    for _ in range(60):
        logging.getLogger("a2a_serve.x").info(message)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["server.log", *(f"server.log.{number}" for number in range(1, log.FILES))]
    assert all(path.stat().st_size <= log.MAX_BYTES for path in tmp_path.iterdir())


@pytest.mark.usefixtures("untouched")
def test_a_full_disk_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.start("info", tmp_path / "server.log", None, log.Redactor())
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, logging.FileHandler)
    assert handler.stream is not None
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, handler.stream.fileno())
    os.close(full)
    logging.getLogger("a2a_serve.x").info("lost")
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("untouched")
def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "server.log").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        log.start("info", tmp_path / "server.log", None, log.Redactor())
    assert not (tmp_path / "victim").exists()
