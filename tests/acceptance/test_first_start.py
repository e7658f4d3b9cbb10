"""Story: the first start in a fresh folder, what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shlex
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from acceptance.project import A2A_SERVE, Project, gone, url_of
from acceptance.terminal import CTRL_C, Terminal, on_terminal
from serving import Json, state_of, text_of

REPOSITORY = Path(__file__).parents[2]
URL = re.compile(r"https?://[^\s\"']+")
COMMAND = re.compile(r"a2a-serve [a-z][^\n(]*?(?=$|\s\s| ends it| starts one|\n)", re.MULTILINE)
KEY = "sk-canary-5f1c3d"


@pytest.mark.req("H1", "H2")
async def test_the_first_start_writes_settings_with_comments_and_no_secret(plain: Project) -> None:
    status = await plain.start(OPENAI_API_KEY=KEY, A2A_SERVE_AGENT__KIND="demo")
    text = (plain.root / ".a2a" / "config.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert sum(line.lstrip().startswith("# ") for line in lines) > 30
    assert any(line.strip() == "#port: 41241" for line in lines)
    token = (await plain.must("credential", "get", status["card_url"])).out.strip()
    key = (plain.root / ".a2a/state/secret.key").read_bytes()
    for secret in (KEY, token, key.hex(), base64.b64encode(key).decode()):
        assert secret not in text
    assert await plain.must("config", "show")
    assert (plain.root / ".a2a/state").stat().st_mode & 0o777 == 0o700


@pytest.mark.req("H1")
async def test_a_key_at_hand_chooses_the_agent_and_is_not_written_down(plain: Project) -> None:
    status = await plain.start(ANTHROPIC_API_KEY=KEY)
    assert status["agent"] == "claude"
    for path in plain.root.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    assert "kind: claude" in (plain.root / ".a2a/config.yaml").read_text(encoding="utf-8")


@pytest.mark.req("H2")
async def test_git_sees_the_settings_and_nothing_of_the_state(plain: Project) -> None:
    await plain.start()
    await plain.shell("git", "init", "-q")
    seen = (await plain.shell("git", "status", "--porcelain", "-uall")).out
    assert sorted(line[3:] for line in seen.splitlines()) == [".a2a/.gitignore", ".a2a/config.yaml"]


@pytest.mark.req("H1", "H6")
async def test_status_says_what_is_there(project: Project) -> None:
    started = await project.start()
    status = await project.status()
    assert status | {"tasks": {"open": 0}, "questions": {"open": 0}} == status
    assert {key: status[key] for key in ("state", "directory", "agent", "sandbox")} == {
        "state": "running",
        "directory": str(project.root),
        "agent": "demo",
        "sandbox": project.sandbox,
    }
    assert status["pid"] == started["pid"]
    assert Path(f"/proc/{status['pid']}").exists()
    assert [each["binding"] for each in status["endpoints"]] == ["JSONRPC", "HTTP+JSON"]
    for command in (("status",), ("questions",), ("logs",)):
        assert (await project.must(*command)).code == 0
    owner = await project.caller()
    await owner.send("run echo hi")
    status = await project.status()
    assert (status["tasks"], status["questions"]) == ({"open": 1}, {"open": 1})


@pytest.mark.req("A2", "I3")
async def test_the_card_tells_where_and_how_and_a_token_is_needed_there(plain: Project) -> None:
    status = await plain.start("--grpc-port", "0")
    card = (await plain.http.get(status["card_url"])).json()
    served = {(each["protocolBinding"], each["url"]) for each in card["supportedInterfaces"]}
    assert {(each["binding"], each["url"]) for each in status["endpoints"]} == served
    assert {binding for binding, _ in served} == {"JSONRPC", "HTTP+JSON", "GRPC"}
    assert card["name"] == plain.root.name
    body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
    nobody = await plain.http.post(url_of(status), json=body)
    assert (nobody.status_code, nobody.headers["www-authenticate"].split()[0]) == (401, "Bearer")
    wrong = await plain.http.post(url_of(status), json=body, headers={"Authorization": "Bearer wrong"})
    assert wrong.status_code == 401


async def test_the_credential_helper_asks_the_server_itself(plain: Project) -> None:
    status = await plain.start()
    for url in (status["card_url"], url_of(status), url_of(status, "HTTP+JSON")):
        ran = await plain.must("credential", "get", url)
        assert re.fullmatch(r"\S+\n", ran.out)
    with socket.create_server(("127.0.0.1", 0)) as other:
        ran = await plain.run("credential", "get", f"http://127.0.0.1:{other.getsockname()[1]}")
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert (ran.code, ran.out) == (4, "")


@pytest.mark.req("H1")
async def test_what_is_printed_exists_and_works_as_printed(project: Project) -> None:
    async with project.terminal(*project.start_words()) as server:
        await server.until("Ctrl-C stops the server.")
        ran_at = server.text
        project.pids.append((await project.status())["pid"])
        for url in URL.findall(ran_at):
            assert (await project.http.get(url)).status_code == 200
        for path in re.findall(r"(?<!\S)/\S+", ran_at):
            assert Path(path.rstrip(".")).exists()
        commands = [shlex.split(command) for command in COMMAND.findall(ran_at)]
        assert sorted(words[1] for words in commands) == ["questions", "send"]
        for _, *words in commands:
            assert (await project.must(*words)).code == 0
        server.type(CTRL_C)
        assert await server.ended() == 0
    assert (await project.status())["state"] == "stopped"


async def test_from_another_folder_it_prints_commands_that_name_this_one(plain: Project) -> None:
    words = [*plain.start_words(str(plain.root)), "--detach"]
    ran = await plain.run(*words, cwd=plain.home)
    assert ran.code == 0, ran
    plain.pids.append((await plain.status())["pid"])
    commands = [shlex.split(command) for command in COMMAND.findall(ran.out)]
    assert [words[1] for words in commands] == ["send", "questions", "stop"]
    for _, *words in commands:
        done = await plain.run(*words, cwd=plain.home)
        assert done.code == 0, (words, done)
    assert (await plain.status())["state"] == "stopped"


@pytest.mark.req("H1")
async def test_make_start_ends_with_a_card_and_how_to_send(plain: Project) -> None:
    async with making(plain, DIR=str(plain.root), SANDBOX="local", PORT="0") as server:
        shown = await server.until("Ctrl-C stops the server.")
        status = await plain.status()
        assert status["card_url"] in shown
        assert "a2a-serve send" in shown
        assert "a2a-serve questions" in shown
        plain.pids.append(status["pid"])
        server.type(CTRL_C)
        await server.ended()


def making(project: Project, **variables: str) -> AbstractAsyncContextManager[Terminal]:
    """What `make start` runs once the package is installed."""
    environment = {**project.environment, "A2A_SERVE_LISTEN__GRPC_PORT": "off", **variables}
    return on_terminal([str(REPOSITORY / "scripts/start.sh")], project.home, environment)


@pytest.mark.req("H3")
async def test_a_second_start_names_the_first(plain: Project) -> None:
    first = await plain.start()
    for more in ([], ["--detach"]):
        second = await plain.run(*plain.start_words(), *more)
        assert second.code == 75
        assert f"(process {first['pid']})" in second.err
        assert "a2a-serve stop" in second.err
        assert len(second.err.strip().splitlines()) == 1, second.err
    assert (await plain.status())["pid"] == first["pid"]


@pytest.mark.req("H9")
async def test_a_taken_port(plain: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = await plain.run("start", "--sandbox", "local", "--port", port, "--grpc-port", "off", "--detach")
        assert (ran.code, len(ran.err.splitlines())) == (73, 2), ran
        assert f"Port {port} " in ran.err
        assert "--port" in ran.err
        ran = await plain.run("start", "--sandbox", "local", "--port", "0", "--grpc-port", port, "--detach")
        assert (ran.code, len(ran.err.splitlines())) == (73, 1), ran
        assert f"Port {port} " in ran.err
        assert "--grpc-port" in ran.err
    assert (await plain.status())["state"] == "stopped"


@pytest.mark.req("H3")
@pytest.mark.parametrize("left", [b"", b"\xff\0garbage", b"self"])
async def test_a_stale_lock_never_blocks(plain: Project, left: bytes) -> None:
    state = plain.root / ".a2a/state"
    state.mkdir(parents=True)
    (state / "lock").write_bytes(left.replace(b"self", str(os.getpid()).encode()))
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(state / "control.sock"))
    assert (await plain.start())["state"] == "running"


@pytest.mark.req("H3", "R1")
async def test_a_killed_server_does_not_block_the_next(plain: Project) -> None:
    await plain.start()
    await plain.kill()
    assert (await plain.status())["state"] == "stopped"
    await plain.start()
    assert state_of(await (await plain.caller()).send("say hi")) == "completed"


@pytest.mark.req("H6", "H9")
async def test_stop_ends_it_and_everything_of_it(project: Project) -> None:
    status = await project.start()
    owner = await project.caller()
    task = await owner.send("run touch made.txt")
    following = [event async for event in _last_events(project, owner.subscribe(task["id"]))]
    assert state_of(following[-1]["statusUpdate"]) == "failed"
    assert not Path(f"/proc/{status['pid']}").exists()
    assert (project.processes(), project.containers()) == ([], [])
    stopped = await project.run("status", "-o", "json")
    assert (stopped.code, stopped.json) == (3, {"state": "stopped", "directory": str(project.root)})
    for command in (("stop",), ("questions",), ("send", "hi"), ("pair", "add", "bob")):
        ran = await project.run(*command)
        assert ran.code == 3, ran
        assert "a2a-serve start" in ran.err
    assert not (project.root / "made.txt").exists()
    await project.start()
    assert state_of(await (await project.caller()).get(task["id"])) == "failed"


async def _last_events(project: Project, events: AsyncIterator[Json]) -> AsyncIterator[Json]:
    """The events of a subscriber that is there when the server is told to stop."""
    yield await anext(events)
    stopping = asyncio.create_task(project.must("stop"))
    async for event in events:
        yield event
    await stopping


@pytest.mark.req("H6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_is_a_stop(plain: Project, number: int) -> None:
    status = await plain.start()
    await (await plain.caller()).send("run echo hi")
    os.kill(status["pid"], number)
    await gone(status["pid"])
    assert plain.processes() == []
    assert list(_sockets(plain)) == []


def _sockets(project: Project) -> Iterator[Path]:
    return (path for path in project.root.rglob("*") if path.is_socket())


async def test_what_was_told_is_remembered_after_stop_and_start(project: Project) -> None:
    await project.start()
    await project.must("send", "--context-id", "c1", "say the word is plum")
    await project.must("stop")
    await project.start()
    owner = await project.caller()
    assert "plum" in text_of(await owner.send("recall", contextId="c1"))
    listed: Json = await owner.rpc("ListTasks", {"contextId": "c1"})
    assert [state_of(task) for task in listed["tasks"]] == ["completed", "completed"]


@pytest.mark.req("H8")
async def test_every_command_helps(plain: Project) -> None:
    told = await plain.must("--help")
    commands = re.findall(r"^  ([a-z]+)  ", told.out, re.MULTILINE)
    assert len(commands) >= 10
    for command in commands:
        ran = await plain.must(command, "--help")
        assert "Usage:" in ran.out
    assert json.loads((await plain.must("config", "show", "-o", "json")).out)
    assert A2A_SERVE.exists()
