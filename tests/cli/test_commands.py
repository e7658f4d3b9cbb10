"""The tree of commands: help, errors in one sentence, documented exit codes (H9), nothing imported too early."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from commanding import Run

from a2a_serve.cli import main
from a2a_serve.cli.commands import CLIENT_EPILOG, CLIENT_EXITS, HOST_EPILOG, Command, Commands
from a2a_serve.core import errors
from a2a_serve.core.errors import ServeError


def every_command(group: click.Group, ctx: click.Context) -> list[click.Command]:
    found: list[click.Command] = []
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        found.append(command)
        if isinstance(command, click.Group):
            found += every_command(command, ctx)
    return found


COMMANDS = every_command(main, click.Context(main))


def test_help_needs_nothing_heavy() -> None:
    script = (
        "import sys\nfrom a2a_serve.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'a2a', 'pydantic', 'httpx', 'ruamel', 'rich', 'uvicorn', 'docker', 'grpc', 'asyncio', 'starlette'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


@pytest.mark.req("H9")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help_and_names_its_exit_codes(command: click.Command) -> None:
    assert command.help
    assert "Exit codes" in (command.epilog or "")
    assert all(each.help for each in command.params if isinstance(each, click.Option) and not each.hidden)


def test_every_place_holds_its_command() -> None:
    for name, place in main._places.items():
        assert place.load().name == name, place
        assert place.help.endswith(".")


@pytest.mark.req("H9")
def test_the_exit_codes_in_the_help_are_those_of_the_errors() -> None:
    def all_errors(kind: type[ServeError]) -> set[type[ServeError]]:
        return {kind}.union(*(all_errors(each) for each in kind.__subclasses__()))

    used = {each.exit_status for each in all_errors(ServeError) if each.__module__ == errors.__name__}
    assert {str(each) for each in used | {0}} == set(re.findall(r"\b\d+\b", HOST_EPILOG))
    assert {str(each) for each in {*CLIENT_EXITS.values(), 0, 1, 130}} == set(re.findall(r"\b\d+\b", CLIENT_EPILOG))
    known = {each.code for each in all_errors(ServeError)}
    assert set(CLIENT_EXITS) <= known


def test_version(run: Run) -> None:
    ran = run("--version")
    assert ran.code == 0
    assert re.fullmatch(r"a2a-serve \d+\.\d+\.\d+\S*\n", ran.out)


@pytest.mark.req("H9")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nope"], 64),
        (["--nope"], 64),
        (["start", "--nope"], 64),
        (["start", "--port", "70000"], 64),
        (["start", "--sandbox", "podman"], 64),
        (["start", "a", "b"], 64),
        (["start", "/no/such/place"], 64),
        (["status", "/no/such/place"], 64),
        (["status", "-o", "yaml"], 64),
        (["pair", "add"], 64),
        (["pair", "add", "x", "--role", "king"], 64),
        (["credential", "get", "not-a-url"], 64),
        (["config", "show", "/etc/hostname"], 64),
        (["logs", "-n", "-1"], 64),
        (["send"], 2),
        (["send", " "], 2),
        (["send", "hi", "--timeout", "0"], 2),
        (["send", "hi", "--dir", "/no/such/place"], 2),
        (["send", "hi", "--url", "ftp://x"], 2),
        (["answer", "q"], 2),
        (["answer", "q", "allow", "more"], 2),
        (["questions", "/no/such/place"], 2),
    ],
)
def test_bad_usage(run: Run, words: list[str], code: int) -> None:
    ran = run(*words)
    assert ran.code == code, ran
    assert ran.out == ""
    assert ran.err


@pytest.mark.req("H9")
@pytest.mark.parametrize(
    "words", [["send", "hi"], ["questions"], ["answer", "q", "allow"], ["stop"], ["pair", "add", "x"]]
)
def test_without_a_server_it_says_how_to_start_one(
    run: Run, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(*words)
    assert ran.code == 3
    assert ran.err == f"Error: No server runs in {tmp_path}. `a2a-serve start {tmp_path}` starts one.\n"


def failing(error: BaseException) -> Commands:
    @click.command()
    def fail() -> None:
        raise error

    class Place(Command):
        def load(self) -> click.Command:
            return fail

    return Commands("a2a-serve", {"fail": Place("", "Fail.")})


def code_of(group: Commands) -> int:
    with pytest.raises(SystemExit) as ended:
        group.main(["fail"])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_an_unknown_error_is_one_sentence_and_its_details_are_kept(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert code_of(failing(ValueError("about a2as_pair_secret"))) == 1
    told = capsys.readouterr().err
    path = tmp_path / "xdg-state" / "a2a-serve" / "last-error.log"
    assert told == f"Error: a2a-serve failed in a way it should not (ValueError). The details are in {path}.\n"
    assert "Traceback" in path.read_text()
    assert "a2as_pair" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_debug_shows_the_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_SERVE_DEBUG", "1")
    with pytest.raises(ValueError, match="x"):
        failing(ValueError("x")).main(["fail"])


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (click.Abort(), 130), (SystemExit(7), 7)])
def test_interruptions(error: BaseException, code: int) -> None:
    assert code_of(failing(error)) == code


def test_text_of_others_cannot_steer_the_terminal(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(failing(ServeError("bad \x1b[2J\u202e"))) == 1
    assert capsys.readouterr().err == "Error: bad \\u{1b}[2J\\u{202e}\n"


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    command = [sys.executable, "-m", "a2a_serve.cli", "--help"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
