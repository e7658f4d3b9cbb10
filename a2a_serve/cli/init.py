"""`init`: a ready `.a2a/config.yaml` from a template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from a2a_serve.cli.commands import HOST_EPILOG
from a2a_serve.cli.directory import as_argument, directory_argument
from a2a_serve.cli.output import visible
from a2a_serve.config.directory import AgentDir
from a2a_serve.core.errors import UsageError
from a2a_serve.sandbox.workspace import refuse_workspace

TEMPLATES: dict[str, dict[str, Any]] = {
    "engineer": {
        "card.description": "An engineer who works on this project: changes files, runs commands, asks before each.",
        "questions.preset": "ask",
    },
    "reviewer": {
        "card.description": "A reviewer of this project: reads and comments, never changes a file or runs a command.",
        "card.skills": [
            {
                "id": "review",
                "name": "Review",
                "description": "Reads the project and says what is good, what is wrong and what to change.",
                "tags": ["review", "reading"],
                "examples": ["Review the last change.", "Where would you look for the bug?"],
            }
        ],
        "questions.preset": "plan",
    },
}


@click.command(epilog=HOST_EPILOG)
@directory_argument
@click.option("--template", type=click.Choice(sorted(TEMPLATES)), required=True, help="What the agent is to be.")
def init(directory: AgentDir, template: str) -> None:
    """Write a folder's .a2a/config.yaml from a template.

    engineer changes files and runs commands, and asks before each. reviewer only reads: whatever would change
    something is denied.
    """
    from a2a_serve.config import write_first_config

    refuse_workspace(directory.root, Path.home())
    directory.prepare()
    if not write_first_config(directory, TEMPLATES[template]):
        raise UsageError(f"{directory.config} is there already.", "Change it, or move it away first.")
    click.echo(visible(f"Wrote {directory.config}. Serve it: a2a-serve start{as_argument(directory)}"))
