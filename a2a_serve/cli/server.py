"""`status` and `stop`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from a2a_serve.cli.commands import HOST_EPILOG
from a2a_serve.cli.control import ControlClient
from a2a_serve.cli.directory import directory_argument
from a2a_serve.cli.output import field, output_option, show_json, show_pairs, warn
from a2a_serve.config.directory import AgentDir
from a2a_serve.core.errors import NotRunning, ServeError

STOP_SECONDS = 30.0


@click.command(epilog=HOST_EPILOG)
@directory_argument
@output_option
def status(directory: AgentDir, output: str) -> None:
    """Show whether a folder's server runs, and where it is reached. Exits with 3 when it does not run."""
    try:
        found = ControlClient(directory).status()
    except NotRunning:
        found = {"state": "stopped", "directory": str(directory.root)}
    show_status(found, output)
    if found.get("state") == "stopped":
        raise SystemExit(NotRunning.exit_status)


def show_status(found: dict[str, Any], output: str) -> None:
    """A server's status as `status` and `start` print it; its warnings go to stderr."""
    if output == "json":
        show_json(found)
        return
    started = found.get("started_at")
    endpoints = found.get("endpoints")
    show_pairs(
        [
            ("State", found.get("state")),
            ("Directory", found.get("directory")),
            ("Process", found.get("pid")),
            ("Agent", found.get("agent")),
            ("Sandbox", found.get("sandbox")),
            ("Card", found.get("card_url")),
            *(_endpoint(each) for each in (endpoints if isinstance(endpoints, list) else [])),
            ("Since", _time(started) if isinstance(started, (int, float)) else started),
            ("Open tasks", field(found, "tasks", "open")),
            ("Open questions", field(found, "questions", "open")),
        ]
    )
    for warning in found.get("warnings") or ():
        warn(str(warning))


def _endpoint(each: Any) -> tuple[str, Any]:
    return str(field(each, "binding") or "Endpoint"), field(each, "url")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@click.command(epilog=HOST_EPILOG)
@directory_argument
def stop(directory: AgentDir) -> None:
    """Stop a folder's server and wait until it has ended. Tasks that run fail and say why."""
    client = ControlClient(directory)
    pid = client.status().get("pid")
    client.stop()
    if not wait_until(lambda: _has_ended(client, pid), STOP_SECONDS, time.monotonic, time.sleep):
        raise ServeError(f"The server (process {pid}) does not end.", f"See `a2a-serve logs {directory.root}`.")
    click.echo(f"Stopped: {directory.root}")


def _has_ended(client: ControlClient, pid: Any) -> bool:
    try:
        if client.status().get("pid") == pid:
            return False
    except ServeError:
        pass
    return not (isinstance(pid, int) and _lives(pid))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def wait_until(
    done: Callable[[], bool], seconds: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> bool:
    """Ask `done` ten times a second, for at most `seconds`; tells whether it came true."""
    deadline = clock() + seconds
    while not done():
        if clock() >= deadline:
            return False
        sleep(0.1)
    return True
