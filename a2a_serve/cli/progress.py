"""Long steps: one line that changes on a terminal, plain lines elsewhere (H8)."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

import click

from a2a_serve.cli.output import visible

if TYPE_CHECKING:
    from rich.status import Status


class Progress:
    """Call it with what happens now. On a terminal the line vanishes at the end of the block."""

    def __init__(self) -> None:
        self._status = _status() if sys.stderr.isatty() else None

    def __enter__(self) -> Progress:
        return self

    def __call__(self, line: str) -> None:
        if self._status is None:
            click.echo(visible(line), err=True)
            return
        from rich.text import Text

        self._status.update(Text(visible(line).replace("\n", " ")))
        self._status.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done()

    def done(self) -> None:
        if self._status is not None:
            self._status.stop()


def _status() -> Status:
    from rich.console import Console

    return Console(stderr=True).status("")
