"""`start`: serve a folder in the foreground, or leave a server behind (`--detach`)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from a2a_serve import log
from a2a_serve.cli.commands import HOST_EPILOG
from a2a_serve.cli.control import ControlClient
from a2a_serve.cli.directory import as_argument, as_option, directory_argument
from a2a_serve.cli.output import output_option, show_json, visible, warn
from a2a_serve.cli.progress import Progress
from a2a_serve.config.directory import AgentDir
from a2a_serve.core.errors import DirectoryNotWritable, ServeError
from a2a_serve.sandbox.workspace import refuse_workspace

if TYPE_CHECKING:
    from a2a_serve.config import Settings

FLAGS = {
    "agent": ("--agent", "agent.kind"),
    "sandbox": ("--sandbox", "sandbox.kind"),
    "port": ("--port", "listen.port"),
    "grpc_port": ("--grpc-port", "listen.grpc_port"),
}
STATUS_SECONDS = 2.0


@click.command(epilog=HOST_EPILOG)
@directory_argument
@click.option("--agent", metavar="KIND", help="The coding agent: claude, codex, gemini, opencode or demo.")
@click.option("--sandbox", type=click.Choice(["docker", "local"]), help="Where the agent runs.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of JSON-RPC, HTTP+JSON and the card; 0: a free one.")
@click.option("--grpc-port", metavar="PORT|off", help="Port of gRPC; 0: a free one.")
@click.option("--detach", is_flag=True, help="Leave the server running and return once it serves.")
@click.option("--background", is_flag=True, hidden=True)
@output_option
def start(directory: AgentDir, detach: bool, background: bool, output: str, **given: Any) -> None:
    """Serve the coding agent of a project folder over A2A.

    The first start writes .a2a/config.yaml. Without --agent and without a setting, the agent is chosen by the model
    key that is there (ANTHROPIC_API_KEY: claude, OPENAI_API_KEY: codex, GEMINI_API_KEY: gemini), else it is demo,
    which needs none.
    """
    refuse_workspace(directory.root, Path.home())
    flags = {FLAGS[name][0]: (FLAGS[name][1], value) for name, value in given.items() if value is not None}
    if detach:
        _detach(directory, flags, output)
    else:
        _serve(directory, flags, output, background)


def _serve(directory: AgentDir, flags: Mapping[str, tuple[str, Any]], output: str, background: bool) -> None:
    from a2a_serve.config import load

    _start_lean()
    loaded = load(directory, os.environ, flags)
    _write_first(directory, loaded.settings, "--agent" in flags)
    _start_log(directory, loaded.settings.log.level, None if background else sys.stderr)
    with Progress() as progress:
        from a2a_serve import app

        def announce(status: dict[str, Any]) -> None:
            progress.done()
            if not background:
                # said a moment later: by then a signal ends the server in order
                said = (status, directory, output, "Ctrl-C stops the server.")
                asyncio.get_running_loop().call_soon(show_start, *said)

        _run(app.run(directory, loaded, announce, progress))


def _start_lean() -> None:
    """A fifth of the start and 3 MiB, measured. The collector comes back once the server serves (`app.run`)."""
    gc.disable()
    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # httpx's own command line: rich, pygments


def _write_first(directory: AgentDir, settings: Settings, flagged: bool) -> None:
    """The first config file, with the agent chosen. A fall-back to demo is not written down: a key may come later."""
    from a2a_serve.agents.launch import choose_kind
    from a2a_serve.config import write_first_config

    kind = choose_kind(settings, os.environ)  # an unknown kind is refused before anything is written
    directory.prepare()
    by_key = settings.agent.kind is None and bool(kind.key_env)
    if write_first_config(directory, {"agent.kind": kind.name} if by_key or flagged else {}):
        click.echo(visible(f"Wrote {directory.config}"), err=True)


def _start_log(directory: AgentDir, level: str, terminal: IO[str] | None) -> None:
    try:
        log.start(level, directory.logs, terminal, log.Redactor())
    except OSError as error:
        sentence = f"Cannot write {directory.logs}: {error.strerror}."
        raise DirectoryNotWritable(sentence, "Check who owns it.") from error


def _run(main: Coroutine[Any, Any, None]) -> None:
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main)


def show_start(status: dict[str, Any], directory: AgentDir, output: str, last: str) -> None:
    """What a start says once everything serves."""
    if output == "json":
        show_json(status)
        sys.stdout.flush()
        return
    click.echo(visible(f"{status.get('agent')} serves {status.get('directory')} (sandbox: {status.get('sandbox')})."))
    click.echo(visible(f"Card: {status.get('card_url')}"))
    click.echo("\nSend a first message:")
    click.echo(visible(f'  a2a-serve send{as_option(directory)} "What can you do?"'))
    click.echo("Questions before a change come up right there. To see or answer them from another terminal:")
    click.echo(visible(f"  a2a-serve questions{as_argument(directory)}"))
    click.echo(f"\n{last}")
    for warning in status.get("warnings") or ():
        warn(str(warning))
    sys.stdout.flush()


def _detach(directory: AgentDir, flags: Mapping[str, tuple[str, Any]], output: str) -> None:
    directory.prepare()
    told = directory.logs.with_name("start.log")
    given = [word for flag, (_, value) in flags.items() for word in (flag, str(value))]
    # -P: the folder that is served must not be a place to import modules from
    command = [sys.executable, "-P", "-m", "a2a_serve.cli", "start", str(directory.root), "--background", *given]
    with open(told, "wb", opener=_private) as file:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    try:
        with told.open(encoding="utf-8", errors="replace") as lines, Progress() as progress:
            status = _wait_for(child, directory, lines, progress, time.sleep)
    except BaseException:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        raise
    child.returncode = 0  # it is on its own now: nobody waits for it
    last = f"It runs in the background: a2a-serve stop{as_argument(directory)} ends it."
    show_start(status, directory, output, last)


def _wait_for(
    child: subprocess.Popen[bytes],
    directory: AgentDir,
    lines: IO[str],
    progress: Progress,
    sleep: Callable[[float], None],
) -> dict[str, Any]:
    """The status once the child serves. What it says on the way is shown; when it ends, so do we, with its code."""
    client = ControlClient(directory, STATUS_SECONDS)
    while True:
        ended = child.poll()
        for line in lines:
            if ended is None:
                progress(line.rstrip("\n"))
            else:
                progress.done()
                click.echo(visible(line), err=True, nl=False)
        if ended is not None:
            raise SystemExit(ended if ended > 0 else 1)
        with contextlib.suppress(ServeError):
            status = client.status()
            if status.get("pid") == child.pid:
                return status
        sleep(0.05)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
