"""`image build`, `image list`, `image prune`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, is_dataclass
from importlib import import_module
from typing import Any

import click

from a2a_serve.cli.commands import HOST_EPILOG
from a2a_serve.cli.output import output_option, show_json, show_table, visible
from a2a_serve.cli.progress import Progress


@click.group(epilog=HOST_EPILOG)
def image() -> None:
    """Build, list and remove the images that agents run in."""


@image.command(epilog=HOST_EPILOG)
@click.argument("kinds", metavar="KIND...", nargs=-1, required=True)
@output_option
def build(kinds: tuple[str, ...], output: str) -> None:
    """Build the image of each KIND (claude, codex, demo, gemini, opencode), also without an image registry."""
    from a2a_serve.agents import AgentKind

    for kind in kinds:
        AgentKind.load(kind)  # refuses an unknown one before the first is built
    with Progress() as progress:
        built = [asyncio.run(_images().build(kind, progress=progress)) for kind in kinds]
    if output == "json":
        show_json(built)
    else:
        click.echo(visible("\n".join(f"Built: {tag}" for tag in built)))


@image.command("list", epilog=HOST_EPILOG)
@output_option
def list_(output: str) -> None:
    """List the images of this and other versions of a2a-serve."""
    rows = [_plain(each) for each in asyncio.run(_images().list_images())]
    if output == "json":
        show_json(rows)
    elif rows:
        show_table([key.upper() for key in rows[0]], [list(row.values()) for row in rows])
    else:
        click.echo("No images yet; the first start builds what it needs.", err=True)


@image.command(epilog=HOST_EPILOG)
@output_option
def prune(output: str) -> None:
    """Remove images of a2a-serve that nothing needs any more."""
    removed = [str(each) for each in asyncio.run(_images().prune())]
    if output == "json":
        show_json(removed)
    else:
        click.echo(visible("\n".join(f"Removed: {tag}" for tag in removed) or "There was nothing to remove."))


def _images() -> Any:
    return import_module("a2a_serve.sandbox.images")


def _plain(found: Any) -> dict[str, Any]:
    return asdict(found) if is_dataclass(found) and not isinstance(found, type) else dict(found)
