"""`image build`, `image list`, `image prune`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import click

from a2a_serve.cli.commands import HOST_EPILOG
from a2a_serve.cli.output import output_option, show_json, show_table, visible
from a2a_serve.cli.progress import Progress
from a2a_serve.core.errors import UsageError


@click.group(epilog=HOST_EPILOG)
def image() -> None:
    """Build, list and remove the images that agents run in."""


@image.command(epilog=HOST_EPILOG)
@click.argument("kinds", metavar="KIND...", nargs=-1, required=True)
@output_option
def build(kinds: tuple[str, ...], output: str) -> None:
    """Build the image of each KIND (claude, codex, demo, gemini, opencode), also without an image registry."""
    from a2a_serve.sandbox import images

    if unknown := [kind for kind in kinds if kind not in images.kinds()]:
        raise UsageError(f"There is no image of {unknown[0]!r}.", f"Choose from {', '.join(images.kinds())}.")
    with Progress() as progress:
        built = [asyncio.run(images.build(kind, progress=progress)) for kind in kinds]
    if output == "json":
        show_json(built)
    else:
        click.echo(visible("\n".join(f"Built: {tag}" for tag in built)))


@image.command("list", epilog=HOST_EPILOG)
@output_option
def list_(output: str) -> None:
    """List the images of this and other versions of a2a-serve."""
    from a2a_serve.sandbox import images

    rows = [asdict(each) for each in asyncio.run(images.list_images())]
    if output == "json":
        show_json(rows)
    elif rows:
        show_table(("KIND", "IMAGE", "SIZE", "A2A CLI", "MADE FROM"), [_row(row) for row in rows])
    else:
        click.echo("No images yet; the first start builds what it needs.", err=True)


@image.command(epilog=HOST_EPILOG)
@output_option
def prune(output: str) -> None:
    """Remove images of a2a-serve that nothing needs any more."""
    from a2a_serve.sandbox import images

    removed = asyncio.run(images.prune())
    if output == "json":
        show_json(removed)
    else:
        click.echo(visible("\n".join(f"Removed: {tag}" for tag in removed) or "There was nothing to remove."))


def _row(image: dict[str, Any]) -> tuple[str, ...]:
    made = "this version" if image["current"] else f"another version ({image['version']})"
    return image["kind"], image["tag"], f"{image['size'] / 1e6:.0f} MB", image["cli"], made
