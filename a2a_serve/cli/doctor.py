"""`doctor`: what a start needs, one line each, with the next step where something is missing (H6)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict

import click

from a2a_serve.cli.checks import Check, Facts, checks
from a2a_serve.cli.commands import HOST_EPILOG
from a2a_serve.cli.directory import directory_argument
from a2a_serve.cli.output import output_option, show_json, visible
from a2a_serve.config.directory import AgentDir
from a2a_serve.core.errors import ServeError

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command(epilog=HOST_EPILOG)
@directory_argument
@output_option
def doctor(directory: AgentDir, output: str) -> None:
    """Check what a start of this folder needs: settings, agent, engine, image, ports, permissions, disk, clock.

    Exits with 1 when something is missing.
    """
    found = list(_run(directory))
    if output == "json":
        show_json([asdict(each) for each in found])
    else:
        for each in found:
            _show(each)
    sys.exit(int(any(each.state == "fail" for each in found)))


def _run(directory: AgentDir) -> Iterator[Check]:
    from a2a_serve.agents.launch import choose_kind
    from a2a_serve.config import load

    try:
        settings = load(directory, os.environ).settings
        kind = choose_kind(settings, os.environ)
    except ServeError as error:
        yield Check("settings", "fail", error.sentence, error.hint)
        return
    yield Check("settings", "ok", f"{directory.config if directory.config.exists() else 'The defaults'}.")
    facts = Facts(directory, settings, kind, os.environ, time.time)
    for name, check in checks(facts):
        yield from _one(name, check)


def _one(name: str, check: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    try:
        yield from check()
    except ServeError as error:
        yield Check(name, "fail", error.sentence, error.hint)


def _show(found: Check) -> None:
    state = click.style(found.state.ljust(4), fg=_COLOURS[found.state])
    click.echo(f"{state}  {found.check.ljust(11)}  {visible(found.text)}")
    if found.next:
        click.echo(f"{' ' * 19}{visible(found.next)}")
