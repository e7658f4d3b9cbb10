"""The end of a stream, kept in bounded memory."""

from __future__ import annotations

KEPT = 64 << 10


class Tail:
    """Remembers the last 64 KiB that it was given."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self._kept += data[-KEPT:]
        del self._kept[:-KEPT]

    def __str__(self) -> str:
        return self._kept.decode("utf-8", "replace")
