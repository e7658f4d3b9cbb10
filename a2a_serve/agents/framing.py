"""JSON objects out of an agent's stdout, one a line, within bounds (the agent is not trusted to keep any)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from a2a_serve.core.errors import AgentFailure

log = logging.getLogger(__name__)

READ_SIZE = 256 << 10
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class ProtocolViolation(AgentFailure):
    """The agent broke a bound of the line protocol: its process ends, nothing else does."""

    code = "agent_protocol"


class Lines:
    """Reads newline-delimited JSON from `read(limit) -> bytes` (`b""` at the end).

    Bounds: a line of `max_line` bytes, `max_bad` lines a turn that are not JSON objects, `max_turn` bytes a turn.
    Reading is on demand, so a caller that does not ask for the next object holds the agent up.
    """

    def __init__(
        self,
        read: Callable[[int], Awaitable[bytes]],
        *,
        max_line: int = 16 << 20,
        max_bad: int = 100,
        max_turn: int = 1 << 30,
    ) -> None:
        self._read = read
        self._max_line, self._max_bad, self._max_turn = max_line, max_bad, max_turn
        self._complete: list[bytes] = []
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._bad = 0
        self._turn = 0

    def begin_turn(self) -> None:
        """A new prompt begins: what counts per turn counts from zero."""
        self._bad = self._turn = 0

    async def next(self) -> dict[str, Any] | None:
        """The next object, or None at the end. Raises ProtocolViolation when a bound is broken."""
        while True:
            while self._complete:
                if (message := self._parse(self._complete.pop())) is not None:
                    return message
            if not await self._fill():
                return None

    async def _fill(self) -> bool:
        chunk = await self._read(READ_SIZE)
        self._turn += len(chunk)
        if self._turn > self._max_turn:
            raise ProtocolViolation(f"The agent sent more than {self._max_turn >> 20} MiB in one turn.")
        first, *rest = chunk.split(b"\n")
        self._partial.append(first)
        self._partial_size += len(first)
        if self._partial_size > self._max_line or any(len(line) > self._max_line for line in rest):
            raise ProtocolViolation(f"The agent sent a line longer than {self._max_line >> 20} MiB.")
        if rest:
            *whole, last = rest
            self._complete = [b"".join(self._partial), *whole][::-1]
            self._partial, self._partial_size = [last], len(last)
        return bool(chunk)

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError:
            message = _mended(line)
        if isinstance(message, dict):
            return message
        self._bad += 1
        if self._bad == 1:
            log.warning("the agent printed a line that is not a JSON object (%d bytes); skipped", len(line))
        if self._bad > self._max_bad:
            raise ProtocolViolation(f"The agent printed more than {self._max_bad} lines that are not JSON objects.")
        return None


def _mended(line: bytes) -> Any:
    """JSON with half a surrogate pair in its text, as JavaScript writes a string that was cut there; else None.

    U+FFFD stands for the half (RFC 8259, section 8.2: such text is valid, and what it means is open).
    """
    if not _SURROGATE.search(line):
        return None
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
        return orjson.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError):
        return None
