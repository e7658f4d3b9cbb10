"""`send`: one message to an agent, seen through to its end or to a question."""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from a2a_serve.cli.commands import CLIENT_EPILOG, INTERRUPTED
from a2a_serve.cli.control import ControlClient
from a2a_serve.cli.credential import token_for
from a2a_serve.cli.directory import as_option, directory_option
from a2a_serve.cli.output import coloured_action, output_option, show_json, show_pairs, visible
from a2a_serve.cli.terminal import Asker
from a2a_serve.cli.views import JsonView, TextView
from a2a_serve.config.directory import AgentDir
from a2a_serve.config.saved import origin_of
from a2a_serve.core.errors import ServeError, TimedOut
from a2a_serve.core.errors import UsageError as BadUsage
from a2a_serve.outbound.client import connect
from a2a_serve.outbound.conversation import Conversation


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for on the command line."""

    url: str
    where: str
    """The option that names the same agent again, for hints."""
    text: str
    context_id: str
    task_id: str
    stream: bool
    at_once: bool
    timeout: float | None
    output: str


@click.command(epilog=CLIENT_EPILOG)
@click.argument("words", metavar="TEXT...", nargs=-1)
@click.option("--url", help="The agent's address.  [default: the server of --dir]")
@directory_option
@click.option("--context-id", default="", metavar="ID", help="Go on with this conversation.")
@click.option("--task-id", default="", metavar="ID", help="Answer this task; without TEXT, come back to it.")
@click.option(
    "--stream/--no-stream", default=None, help="Show the answer as it comes, or whole.  [default: as it comes]"
)
@click.option("--async", "at_once", is_flag=True, help="Return as soon as the task exists.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Wait no longer.")
@output_option
def send(words: tuple[str, ...], url: str | None, directory: AgentDir, stream: bool | None, **given: Any) -> None:
    """Send TEXT (`-`: from stdin) to an agent and see it through.

    On a terminal, a question before a change is asked right here: y, n, or words that deny and say why. Elsewhere
    nothing is ever asked: the question and how to answer it are printed. Ctrl-C leaves the task running.
    """
    text = sys.stdin.read() if words == ("-",) else " ".join(words)
    if not text.strip() and not given["task_id"]:
        raise BadUsage("There is no text to send.", "Write it after `send`, or give it on stdin and write `-`.")
    if url is None:
        url, where = str(ControlClient(directory).status().get("card_url") or ""), as_option(directory)
    else:
        origin_of(url)  # refuses what is no URL
        where = f" --url {shlex.quote(url)}"
    streams = given["output"] == "text" if stream is None else stream
    request = Request(url=url, where=where, text=text, stream=streams, **given)
    logging.getLogger().addHandler(logging.NullHandler())  # the SDK's words are not for people
    sys.exit(_conduct(request))


def _conduct(request: Request) -> int:
    interactive = request.output == "text" and sys.stdin.isatty() and sys.stdout.isatty()
    view = TextView(sys.stderr.isatty()) if request.output == "text" else JsonView(request.stream)
    known: list[Conversation] = []
    try:
        asyncio.run(_converse(request, view, interactive, known.append))
    except KeyboardInterrupt:
        _come_back(request, known, view)
        return INTERRUPTED
    except TimedOut:
        _come_back(request, known, view)
        raise
    except ServeError:
        if isinstance(view, TextView):
            view.end_line()
        if known and known[0].task_id and not known[0].has_ended:
            _come_back(request, known, view)
        raise
    _conclude(request, known[0], view, interactive)
    return 0


async def _converse(
    request: Request, view: TextView | JsonView, interactive: bool, tell: Callable[[Conversation], None]
) -> None:
    try:
        async with asyncio.timeout(request.timeout), connect(request.url, token_for) as agent:
            ask = Asker(view) if interactive and isinstance(view, TextView) else None
            conversation = Conversation(agent, view, ask, stream=request.stream)
            tell(conversation)
            if not request.text.strip():
                await conversation.resume(request.task_id)
                return
            act = conversation.start if request.at_once else conversation.send
            await act(request.text, request.context_id, request.task_id)
    except TimeoutError:
        raise TimedOut(f"The task did not end within {request.timeout:g} seconds.") from None


def _come_back(request: Request, known: list[Conversation], view: TextView | JsonView) -> None:
    task_id = (known[0].task_id if known else "") or request.task_id
    if task_id:
        view.note(f"The task goes on. To come back: a2a-serve send{request.where} --task-id {task_id}")
    else:
        view.note("The agent had not told the task's id yet; if the message arrived, the task goes on.")


def _conclude(request: Request, conversation: Conversation, view: TextView | JsonView, interactive: bool) -> None:
    if isinstance(view, JsonView):
        if not request.stream:
            show_json(view.document)
        return
    view.end_line()
    _show_waiting(request, conversation, interactive)
    if conversation.task_id:
        _show_ids(request, conversation)


def _show_waiting(request: Request, conversation: Conversation, interactive: bool) -> None:
    for question in conversation.questions:
        if not interactive:
            click.echo(coloured_action(question.text))
        if question.id:
            show_pairs([("Question", question.id)])
        if question.id and "--url" not in request.where:
            click.echo(visible(f"Answer: a2a-serve answer {question.id} allow|deny{request.where}"))
        else:
            click.echo(visible(f"Answer: a2a-serve send{request.where} --task-id {conversation.task_id} WORDS"))


def _show_ids(request: Request, conversation: Conversation) -> None:
    ids = f"Task: {conversation.task_id}\nContext: {conversation.context_id}\nState: {conversation.state}"
    click.echo(visible(ids), err=True)
    if request.at_once:
        command = f"a2a-serve send{request.where} --task-id {conversation.task_id}"
        click.echo(visible(f"To see it through: {command}"), err=True)
