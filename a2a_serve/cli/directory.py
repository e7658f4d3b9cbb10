"""The DIR that commands take: a project folder, by default the current one."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from a2a_serve.config.directory import AgentDir

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _find(ctx: click.Context, param: click.Parameter, value: str) -> AgentDir:
    return AgentDir.at(Path(value))


def directory_argument(function: _Function) -> _Function:
    """`[DIR]`, as parameter `directory`."""
    return click.argument("directory", metavar="[DIR]", default=".", required=False, callback=_find)(function)


def directory_option(function: _Function) -> _Function:
    """`--dir DIR`, as parameter `directory`."""
    decorate = click.option(
        "--dir", "directory", metavar="DIR", default=".", callback=_find, help="The project folder.  [default: this]"
    )
    return decorate(function)


def as_option(directory: AgentDir) -> str:
    """What to add to a command so that it means this directory, typed from here: nothing, or ` --dir DIR`."""
    return "" if _is_here(directory) else f" --dir {shlex.quote(str(directory.root))}"


def as_argument(directory: AgentDir) -> str:
    """The same for commands that take `[DIR]`."""
    return "" if _is_here(directory) else f" {shlex.quote(str(directory.root))}"


def _is_here(directory: AgentDir) -> bool:
    try:
        return Path.cwd() == directory.root
    except OSError:
        return False
