"""`logs`."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import click

from a2a_serve.cli.commands import HOST_EPILOG
from a2a_serve.cli.directory import directory_argument
from a2a_serve.cli.output import output_option, visible
from a2a_serve.config.directory import AgentDir
from a2a_serve.core.errors import NotRunning

WAIT_SECONDS = 0.2


@click.command(epilog=HOST_EPILOG)
@directory_argument
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=100, show_default=True, help="How many, from the end."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@output_option
def logs(directory: AgentDir, lines: int, follow: bool, output: str) -> None:
    """Show a folder's log, which is there whether or not its server runs."""
    if not directory.logs.exists():
        raise NotRunning(
            f"There is no log in {directory.root}.", f"`a2a-serve start {directory.root}` starts a server."
        )
    show = _as_json if output == "json" else visible
    with _open(directory.logs) as file:
        for line in _last(directory.logs, file, lines):
            click.echo(show(line))
        if follow:
            for line in _coming(directory.logs, file, time.sleep):
                click.echo(show(line))


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="replace")


def _last(path: Path, file: TextIO, count: int) -> list[str]:
    """The last lines, from the rotated file before too where this one has fewer. Leaves `file` at its end."""
    found: deque[str] = deque(maxlen=count)
    before = path.with_name(path.name + ".1")
    if before.exists():
        with _open(before) as earlier:
            found.extend(line.rstrip("\n") for line in earlier)
    found.extend(line.rstrip("\n") for line in file)
    return list(found)


def _coming(path: Path, file: TextIO, sleep: Callable[[float], None]) -> Iterator[str]:
    """New lines for ever; where the file is rotated, on in the new one."""
    kept = ""
    while True:
        if piece := file.readline():
            kept += piece
            if kept.endswith("\n"):
                yield kept.rstrip("\n")
                kept = ""
        elif path.exists() and not os.path.samestat(path.stat(), os.fstat(file.fileno())):
            with _open(path) as new:
                yield from _coming(path, new, sleep)
        else:
            sleep(WAIT_SECONDS)


def _as_json(line: str) -> str:
    when, level, logger, text = [*line.split(" ", 3), "", "", ""][:4]
    return json.dumps({"time": when, "level": level, "logger": logger, "text": text})
