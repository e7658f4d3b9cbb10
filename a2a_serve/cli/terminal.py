"""Asks a person on the terminal, in a way that can be broken off when the answer comes from elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
import termios

import click

from a2a_serve.cli.output import coloured_action, visible
from a2a_serve.cli.views import TextView
from a2a_serve.core.approvals import ALLOW, DENY, read_words
from a2a_serve.outbound.conversation import Question, Reply


class Asker:
    """Shows a question and reads `y`, `n`, an option or words."""

    def __init__(self, view: TextView) -> None:
        self._view = view

    async def __call__(self, question: Question) -> Reply | None:
        """The reply, or None at the end of input (Ctrl-D)."""
        self._view.end_line()
        click.echo(f"\n{coloured_action(question.text)}")
        choices = [each for each in question.options if each[1] == "allow_once"]
        if len(choices) > 1:
            for option_id, _, name in question.options:
                click.echo(visible(f"  {option_id}: {name}"))
        prompt = "allow? [y/n/words] " if question.id and len(choices) <= 1 else "answer: "
        while True:
            line = await _read_line(prompt)
            if line is None:
                click.echo()
                return None
            if line.strip():
                return _understood(line.strip(), question)


def _understood(line: str, question: Question) -> Reply:
    if not question.id:
        return Reply(words=line)
    for option_id, _, name in question.options:
        if line in (option_id, name):
            return Reply(option_id)
    option, words = read_words(line)
    assert option in (ALLOW, DENY)
    return Reply(option, words)


async def _read_line(prompt: str) -> str | None:
    """One line typed after the prompt has been shown: what was typed before it was not meant for it."""
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()

    def take() -> None:
        loop.remove_reader(terminal)
        try:
            line = os.read(terminal, 65536)
        except OSError:  # the terminal is gone
            line = b""
        if not typed.done():
            typed.set_result(line)

    termios.tcflush(terminal, termios.TCIFLUSH)
    click.echo(click.style(prompt, bold=True), nl=False)
    sys.stdout.flush()
    loop.add_reader(terminal, take)
    try:
        line = await typed
    except asyncio.CancelledError:
        click.echo()
        raise
    finally:
        loop.remove_reader(terminal)
    return line.decode("utf-8", "replace") if line else None
