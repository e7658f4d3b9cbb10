"""`pair add`."""

from __future__ import annotations

import click

from a2a_serve.cli.commands import HOST_EPILOG
from a2a_serve.cli.control import ControlClient
from a2a_serve.cli.directory import directory_option
from a2a_serve.cli.output import output_option, show_json, show_pairs
from a2a_serve.config.directory import AgentDir

ROLES = ("user", "guest", "agent", "owner")


@click.group(epilog=HOST_EPILOG)
def pair() -> None:
    """Let others in: each caller has a token of its own."""


@pair.command(epilog=HOST_EPILOG)
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="user", show_default=True, help="What the caller may do.")
@directory_option
@output_option
def add(name: str, role: str, directory: AgentDir, output: str) -> None:
    """Make a token for NAME. It is shown this once: the server keeps only its digest."""
    made = ControlClient(directory).pair(name, role)
    if output == "json":
        show_json(made)
        return
    show_pairs([("Name", made.get("name")), ("Role", made.get("role")), ("Token", made.get("token"))])
    click.echo("The token is shown this once. Callers send it as `Authorization: Bearer TOKEN`.", err=True)
