"""The top of the command tree: commands by name, errors as one sentence, documented exit codes (H9)."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from a2a_serve.cli.output import visible
from a2a_serve.core.errors import ServeError, UsageError

CLIENT_EXITS = {
    "usage": 2,
    "option_unknown": 2,
    "not_running": 3,
    "unreachable": 3,
    "stream_lost": 3,
    "not_signed_in": 4,
    "bad_credential": 4,
    "too_many_sign_ins": 4,
    "not_allowed": 4,
    "timeout": 5,
}
"""What send, questions and answer exit with, by error code; any other error is 1 (the A2A CLI specification)."""

INTERRUPTED = 130

HOST_EPILOG = """\b
Exit codes: 0 done, 1 failed, 3 not running, 64 usage, 65 damaged state, 69 sandbox unavailable,
73 port taken or directory not writable, 75 already running, 78 bad settings or newer state."""
CLIENT_EPILOG = """\b
Exit codes: 0 conducted (whatever the task's state), 1 failed, 2 usage, 3 unreachable, 4 not signed in,
5 timeout, 130 interrupted."""


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is (`module:name` in this package), its one line of help, and which exit codes it has."""

    place: str
    help: str
    client: bool = False

    def load(self) -> click.Command:
        module, name = self.place.split(":")
        command = getattr(importlib.import_module(f"a2a_serve.cli.{module}"), name)
        assert isinstance(command, click.Command)
        command.short_help = self.help
        return command


class Commands(click.Group):
    def __init__(self, name: str, commands: Mapping[str, Command]) -> None:
        super().__init__(
            name,
            help="Make a project folder's coding agent a colleague that others reach over A2A.",
            epilog=HOST_EPILOG + "\n\n" + CLIENT_EPILOG.replace("Exit codes:", "Of send, questions and answer:"),
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        )
        self._places = commands
        self.params.append(_version_option())

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._places.get(cmd_name)
        return place.load() if place else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in self._places.items()])

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Run one command and exit. Every error is one sentence on stderr; A2A_SERVE_DEBUG=1 shows tracebacks."""
        words = list(sys.argv[1:] if args is None else args)
        place = next((self._places[word] for word in words if word in self._places), None)
        client = place is not None and place.client
        try:
            code = super().main(words, prog_name or "a2a-serve", standalone_mode=False, **extra)
        except (KeyboardInterrupt, click.Abort):
            code = INTERRUPTED
        except BaseException as error:
            if os.environ.get("A2A_SERVE_DEBUG") == "1" and not isinstance(error, (SystemExit, click.ClickException)):
                raise
            code = _tell(error, client)
        sys.exit(code if isinstance(code, int) else 0)


def _version_option() -> click.Option:
    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            from a2a_serve import __version__

            click.echo(f"a2a-serve {__version__}")
            ctx.exit()

    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show, help="Show the version."
    )


def _tell(error: BaseException, client: bool) -> int:
    match error:
        case SystemExit():
            return error.code if isinstance(error.code, int) else int(bool(error.code))
        case click.exceptions.Exit():
            return error.exit_code
        case click.UsageError():
            error.show()
            return CLIENT_EXITS["usage"] if client else UsageError.exit_status
        case click.ClickException():
            error.show()
            return 1
        case ServeError():
            click.echo(visible(f"Error: {error}"), err=True)
            return CLIENT_EXITS.get(error.code, 1) if client else error.exit_status
    click.echo(f"Error: a2a-serve failed in a way it should not ({type(error).__name__}). {_keep(error)}", err=True)
    return 1


def _keep(error: BaseException) -> str:
    """Put the details into a file of the user's own, and tell where."""
    from a2a_serve.log import Redactor

    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "a2a-serve"
    details = Redactor().clean("".join(traceback.format_exception(error)))
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = home / "last-error.log"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(details)
    except (OSError, RuntimeError):
        return "A2A_SERVE_DEBUG=1 shows the details."
    return f"The details are in {path}."
