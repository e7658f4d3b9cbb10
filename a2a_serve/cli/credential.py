"""`credential get`, and where every client command takes its token from (I4)."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

from a2a_serve.cli.commands import HOST_EPILOG
from a2a_serve.cli.control import ControlClient
from a2a_serve.config.directory import AgentDir
from a2a_serve.config.saved import find_server, origin_of, saved_token
from a2a_serve.core.errors import NotRunning, NotSignedIn

NO_TOKEN = 4


def token_for(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token for the URL's origin: over the control socket of the local server that serves it, else as saved.

    What listens on a local port is never trusted for being there. Raises NotSignedIn, NotAllowed.
    """
    origin = origin_of(url)
    root = find_server(origin, environment)
    if root is not None:
        try:
            token = ControlClient(AgentDir(root)).token(origin)
        except NotRunning:
            token = None
        if token:
            return token
    return saved_token(origin, environment)


@click.group(epilog=HOST_EPILOG)
def credential() -> None:
    """Give a saved token to a client."""


@credential.command(epilog=f"Exit codes: 0 printed, {NO_TOKEN} no token for this URL, 64 usage.")
@click.argument("url")
def get(url: str) -> None:
    """Print the token for URL, bare: `a2a send --auth "Bearer $(a2a-serve credential get URL)" URL ...`."""
    try:
        token = token_for(url)
        if token is None:
            hint = "Start its server, or save the token in credentials.json."
            raise NotSignedIn(f"There is no token for {origin_of(url)}.", hint)
    except NotSignedIn as error:
        error.exit_status = NO_TOKEN
        raise
    click.echo(token)
