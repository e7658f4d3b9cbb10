"""How commands speak: text for people, JSON for programs, and nothing that could steer a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])

_STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_DIFF_COLOURS = (("+++", None), ("---", None), ("+", "green"), ("-", "red"), ("@@", "cyan"))


def visible(text: str) -> str:
    """`text` without anything that steers a terminal: such characters are written as `\\u{hex}`; lines stay lines."""
    return _STEERS.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text.replace("\r\n", "\n"))


def output_option(function: _Function) -> _Function:
    """`-o/--output text|json`, as parameter `output`."""
    option = click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Text for people, JSON for programs.",
    )
    return option(function)


def show_json(value: Any) -> None:
    """One document, indented, safe for a terminal too."""
    click.echo(json.dumps(value, indent=2))


def show_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """`Label: value` lines; a value that is not there is left out."""
    for label, value in pairs:
        if value not in (None, "", []):
            click.echo(f"{label}: {visible(str(value))}")


def show_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns with their heads, as wide as they need to be."""
    lines = [list(head), *([visible(str(cell)).replace("\n", " ") for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def warn(text: str) -> None:
    click.echo(f"Warning: {visible(text)}", err=True)


def coloured_action(text: str) -> str:
    """A question's text with its diff in colours."""
    return "\n".join(_coloured(line) for line in visible(text).split("\n"))


def _coloured(line: str) -> str:
    for start, colour in _DIFF_COLOURS:
        if line.startswith(start):
            return click.style(line, fg=colour, bold=None if colour else True)
    return line


def field(value: Mapping[str, Any], *names: str) -> Any:
    """What is under `names` in nested mappings; None where something on the way is missing or of another kind."""
    found: Any = value
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
