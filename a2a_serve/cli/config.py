"""`config show`."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import click

from a2a_serve.cli.commands import HOST_EPILOG
from a2a_serve.cli.directory import directory_argument
from a2a_serve.cli.output import output_option, show_json, show_table
from a2a_serve.config.directory import AgentDir

HIDDEN = "[hidden]"
_SECRET = re.compile(r"(?i)(key|token|secret|passw|credential|auth)")


@click.group(epilog=HOST_EPILOG)
def config() -> None:
    """Show the settings and where each comes from."""


@config.command(epilog=HOST_EPILOG)
@directory_argument
@output_option
def show(directory: AgentDir, output: str) -> None:
    """Show every setting, its value, and where the value comes from: a line of the file, a variable or the default.

    What may be secret is hidden; a value that reads a variable is shown as it is written.
    """
    from a2a_serve.config import Loaded, load
    from a2a_serve.config.layers import leaves

    loaded: Loaded = load(directory, os.environ)
    rows = []
    for path, value in leaves(loaded.settings.model_dump(mode="json")):
        name = ".".join(path)
        rows.append((name, _shown(name, value, loaded.raw), loaded.origins[name]))
    if output == "json":
        show_json([{"name": name, "value": value, "origin": origin} for name, value, origin in rows])
        return
    show_table(("SETTING", "VALUE", "FROM"), [(name, json.dumps(value), origin) for name, value, origin in rows])


def _shown(name: str, value: Any, raw: dict[str, str]) -> Any:
    if name in raw:
        return raw[name]
    if name.startswith("agent.environment.") and _SECRET.search(name.removeprefix("agent.environment.")):
        return HIDDEN
    if any(place.startswith(f"{name}.") for place in raw):  # inside a list
        return HIDDEN
    return value
