"""`questions` and `answer`."""

from __future__ import annotations

from typing import Any

import click

from a2a_serve.cli.commands import CLIENT_EPILOG
from a2a_serve.cli.control import ControlClient
from a2a_serve.cli.directory import directory_argument, directory_option
from a2a_serve.cli.output import coloured_action, output_option, show_json, show_pairs, visible
from a2a_serve.config.directory import AgentDir


@click.command(epilog=CLIENT_EPILOG)
@directory_argument
@output_option
def questions(directory: AgentDir, output: str) -> None:
    """List the questions that wait for an answer, each with the whole of what would happen."""
    found = ControlClient(directory).questions()
    if output == "json":
        show_json(found)
        return
    if not found:
        click.echo("No question is open.", err=True)
    for number, question in enumerate(found):
        if number:
            click.echo()
        _show(question)


def _show(question: dict[str, Any]) -> None:
    options = question.get("options")
    names = [str(each.get("id")) for each in options if isinstance(each, dict)] if isinstance(options, list) else []
    show_pairs(
        [
            ("Question", question.get("id")),
            ("From", question.get("from")),
            ("Task", question.get("taskId")),
            ("Expires", question.get("expiresAt")),
            ("Options", ", ".join(dict.fromkeys(["allow", "deny", *names]))),
        ]
    )
    click.echo(coloured_action(str(question.get("text") or "")))


@click.command(epilog=CLIENT_EPILOG)
@click.argument("question_id", metavar="ID")
@click.argument("option", metavar="allow|deny|OPTION")
@click.option("--reason", default="", help="Words for the agent.")
@directory_option
@output_option
def answer(question_id: str, option: str, reason: str, directory: AgentDir, output: str) -> None:
    """Answer a question of a folder's server. The first answer counts, wherever it comes from."""
    told = ControlClient(directory).answer(question_id, option, reason)
    if output == "json":
        show_json(told)
    else:
        click.echo(visible(f"Answered: {told.get('option')}"))
