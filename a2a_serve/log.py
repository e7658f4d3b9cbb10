"""The log: one line a record, in UTC, without secrets; a file that is rotated, and the terminal."""

from __future__ import annotations

import base64
import logging
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO
from urllib.parse import quote

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that is being handled; it stands in every line logged meanwhile."""

HIDDEN = "[hidden]"
MAX_BYTES, FILES = 10 << 20, 5
SHORTEST = 8
"""Characters: a shorter value is not hidden, for it would be found in innocent words."""

QUIET = {
    "a2a": logging.WARNING,  # says whole agent cards at INFO
    "acp": logging.CRITICAL,  # says tracebacks for an agent's bad lines
    "asyncio": logging.ERROR,
    "docker": logging.WARNING,
    "grpc": logging.WARNING,
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,
    "sse_starlette": logging.WARNING,
    "urllib3": logging.ERROR,
    "uvicorn": logging.WARNING,
}
_PATTERNS = (
    re.compile(r"a2as_[A-Za-z0-9_]+"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{20,}"),
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"""(?i)(?<=authorization)(["']?\s*[:=,]\s*["']?)(?:(?:basic|digest|bearer)\s+)?[^\s"',;)\]}]+"""),
)
_BREAKS = {"\n": "\\n", "\r": "\\r", "\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\x85"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\n\r\u2028\u2029\ud800-\udfff]")


class Redactor:
    """Takes known secrets out of text, also where they are URL- or base64-encoded, and what looks like one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: set[str] = set()
        self._known: re.Pattern[str] | None = None
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Hide `secret` from now on. One shorter than SHORTEST is not hidden."""
        if len(secret) < SHORTEST:
            return
        self._forms.update(_forms(secret))
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first)))

    def clean(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern in _PATTERNS:
            text = pattern.sub(lambda found: (found[1] if found.lastindex else "") + HIDDEN, text)
        return text


def _forms(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {secret, repr(secret)[1:-1], quote(raw), quote(raw, safe="")}
    for shift in range(3):  # base64 of it inside something longer, wherever it starts there
        whole = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        core = whole[(0, 2, 3)[shift] : len(whole) - 1]
        forms |= {core, core.translate(str.maketrans("+/", "-_"))}
    return {form for form in forms if len(form) >= SHORTEST}


class LineFormatter(logging.Formatter):
    """`2026-12-01T04:31:36.123Z INFO a2a_serve.app [request id] message`, on one line whatever the message holds."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self.redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        head = f"{seconds}.{int(record.msecs):03d}Z {record.levelname} {record.name} "
        request = getattr(record, "request_id", "") or request_id.get()
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        if record.stack_info:
            text = f"{text}\n{record.stack_info}"
        return head + _one_line(self.redactor.clean(f"[{request}] {text}" if request else text))


def _one_line(text: str) -> str:
    return _CONTROL.sub(lambda found: _BREAKS.get(found[0]) or ascii(found[0])[1:-1], text)


class _PrivateFile(RotatingFileHandler):
    """Made for the owner's eyes only. A full disk costs lines of the log, never the work that logs them."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def start(level: str, file: Path, terminal: IO[str] | None, redactor: Redactor) -> None:
    """Send this process's log to `file`, and warnings to `terminal` where there is one. `level` as in settings.

    Raises OSError when the file cannot be opened.
    """
    handlers: list[logging.Handler] = [_PrivateFile(file, maxBytes=MAX_BYTES, backupCount=FILES - 1, encoding="utf-8")]
    if terminal is not None:
        handlers.append(logging.StreamHandler(terminal))
        handlers[-1].setLevel(logging.WARNING)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        handler.setFormatter(LineFormatter(redactor))
        root.addHandler(handler)
    root.setLevel(level.upper())
    for name, quiet in QUIET.items():
        logging.getLogger(name).setLevel(max(quiet, root.level))


def hide(*secrets: str) -> None:
    """Keep these values out of every log that `start` has set up in this process."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, LineFormatter):
            for secret in secrets:
                handler.formatter.redactor.add(secret)
