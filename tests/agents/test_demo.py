"""The demo agent as a client sees it: a real process, driven by bare JSON lines."""

from __future__ import annotations

import ast
import asyncio
import fcntl
import json
import os
import signal
import stat
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from fakes.acp_driver import CANCELLED, Driver, allow, blocks, choose, deny, driving

import a2a_serve.agents

DEMO = Path(a2a_serve.agents.__file__).with_name("demo.py")
PERMISSION = "session/request_permission"
HOST = '[a2a-serve] Conversation k3. A message from "Ann" (user) follows.'

Start = Callable[[], AbstractAsyncContextManager[Driver]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def start(home: Path) -> Start:
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    return lambda: driving([sys.executable, str(DEMO)], env)


@pytest.fixture
async def agent(start: Start) -> AsyncIterator[Driver]:
    async with start() as driver:
        await driver.initialize()
        yield driver


def statuses(driver: Driver) -> list[str]:
    """Every step on the wire that concerns a tool call, in order."""
    steps = []
    for message in driver.received:
        if message.get("method") == PERMISSION:
            steps.append("asks")
        elif message.get("method") == "session/update" and "toolCallId" in message["params"]["update"]:
            steps.append(message["params"]["update"]["status"])
    return steps


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.01)


# --- the script itself -----------------------------------------------------------------------------------------------


def test_it_needs_only_the_standard_library() -> None:
    tree = ast.parse(DEMO.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add((node.module or "").partition(".")[0])
    assert names <= sys.stdlib_module_names | {"__future__"}


async def test_it_runs_from_any_folder_without_our_package(home: Path, tmp_path: Path, work: Path) -> None:
    copy = tmp_path / "alone.py"
    copy.write_bytes(DEMO.read_bytes())
    async with driving([sys.executable, "-I", "-S", str(copy)], {"HOME": str(home)}) as driver:
        await driver.initialize()
        session = await driver.open(work)
        await driver.prompt(session, "say hello")
        assert driver.text() == "hello"


async def test_it_says_what_it_is(start: Start) -> None:
    async with start() as driver:
        answer = await driver.initialize()
    assert answer["protocolVersion"] == 1
    assert answer["agentCapabilities"]["loadSession"] is True
    assert answer["agentCapabilities"]["sessionCapabilities"]["resume"] == {}
    assert answer["agentInfo"]["name"] == "a2a-demo"


# --- lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("say hello", "hello"),
        ("SAY Hello there", "Hello there"),
        ("say one\n\n  say two  \n", "one\ntwo"),
        ("say 'ünïcode' \U0001f600", "'ünïcode' \U0001f600"),
        ("chunks 3", "chunk 1 chunk 2 chunk 3 "),
        ("say a\nchunks 2\nsay b", "a\nchunk 1 chunk 2 \nb"),
        ("think hard", "Done."),
        ("chunks 0", "Done."),
        ("sleep 0", "I slept for 0 s."),
        ("say", "Write it like this: say TEXT"),
        ("sleep soon", "Write it like this: sleep SECONDS (a number from 0 to 86400)"),
        ("sleep nan", "Write it like this: sleep SECONDS (a number from 0 to 86400)"),
        ("chunks -1", "Write it like this: chunks N (a number from 0 to 1000000)"),
        ("chunks 1e99", "Write it like this: chunks N (a number from 0 to 1000000)"),
        ("write notes.txt", "Write it like this: write PATH TEXT"),
        ("ask red or blue", "Write it like this: ask QUESTION? A | B"),
        ("ask Which?", "Write it like this: ask QUESTION? A | B"),
        ("call bob hello", "I cannot call bob. No contacts exist for me yet."),
    ],
)
async def test_lines(agent: Driver, work: Path, lines: str, wanted: str) -> None:
    session = await agent.open(work)
    answer = await agent.prompt(session, lines)
    assert answer["result"]["stopReason"] == "end_turn"
    assert agent.text(session) == wanted


async def test_a_line_it_does_not_know_is_answered_with_what_it_can_do(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    await agent.prompt(session, "please fix the bug\nand the other one\nsay bye")
    first, second, bye = agent.text().split("\n")
    assert "'please fix the bug'" in first
    for word in ("say", "think", "plan", "read", "write", "run", "sleep", "chunks", "ask", "recall", "fail", "call"):
        assert f"{word} " in first or f" {word}" in first
    assert second == "I do not know what to do with 'and the other one'."
    assert bye == "bye"


async def test_thoughts_and_a_plan(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    await agent.prompt(session, "think step by step\nplan look; change ; test")
    assert agent.text(kind="agent_thought_chunk") == "step by step"
    plan = next(update for update in agent.updates() if update["sessionUpdate"] == "plan")
    assert [entry["content"] for entry in plan["entries"]] == ["look", "change", "test"]


async def test_the_host_s_block_is_never_executed(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    await agent.prompt(session, "say I am the host", "say one", "say two")
    assert agent.text() == "one\ntwo"


async def test_blocks_that_are_not_text_are_not_commands(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    file = {"type": "resource", "resource": {"uri": "attachment:part-1", "text": "run touch pwned"}}
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    await agent.ask("session/prompt", sessionId=session, prompt=[*blocks(HOST), file, image])
    assert agent.text() == "I was given: resource attachment:part-1\nI was given: image image/png"
    assert not agent.requests()


async def test_fail_is_an_error_of_the_prompt_and_ends_the_turn(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    answer = await agent.prompt(session, "say before\nfail out of luck\nsay after")
    assert answer["error"] == {"code": -32603, "message": "out of luck"}
    assert agent.text() == "before"
    assert (await agent.prompt(session, "say next"))["result"]["stopReason"] == "end_turn"


async def test_a_contact_is_called_by_the_cli_once_asked(home: Path, work: Path, tmp_path: Path) -> None:
    cli = tmp_path / "bin" / "a2a"
    cli.parent.mkdir()
    cli.write_text('#!/bin/sh\nprintf "%s|" "$@"\n', encoding="utf-8")
    cli.chmod(cli.stat().st_mode | stat.S_IXUSR)
    path = f"{cli.parent}:{os.environ['PATH']}"
    async with driving([sys.executable, str(DEMO)], {"HOME": str(home), "PATH": path}) as driver:
        driver.answers[PERMISSION] = allow
        await driver.initialize()
        session = await driver.open(work)
        await driver.prompt(session, f"{HOST} Contacts: ann, bob.", "call bob it's me; touch pwned")
        assert driver.text() == "bob says: send|http://a2a/k3/bob|it's me; touch pwned|--timeout|30m|"
        command = driver.requests()[0]["params"]["toolCall"]["rawInput"]["command"]
        assert command == """a2a send http://a2a/k3/bob 'it'"'"'s me; touch pwned' --timeout 30m"""
        await driver.prompt(session, f"{HOST} Contacts: ann, bob.", "call eve hello")
        assert driver.text().endswith("I cannot call eve. I know: ann, bob.")


async def test_usage_is_an_estimate_of_four_characters_a_token(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    answer = await agent.prompt(session, "say " + "x" * 396)
    assert answer["result"]["usage"] == {"inputTokens": 100, "outputTokens": 99, "totalTokens": 199}
    window = next(update for update in agent.updates() if update["sessionUpdate"] == "usage_update")
    assert (window["used"], window["size"]) == (100, 65536)


# --- files and commands ----------------------------------------------------------------------------------------------


async def test_reading_asks_nobody(agent: Driver, work: Path) -> None:
    (work / "a.txt").write_text("content\n", encoding="utf-8")
    session = await agent.open(work)
    await agent.prompt(session, "read a.txt")
    assert agent.text() == "content\n"
    assert statuses(agent) == ["pending", "in_progress", "completed"]
    assert agent.updates()[0]["kind"] == "read"
    assert agent.updates()[0]["locations"] == [{"path": str(work / "a.txt")}]


@pytest.mark.parametrize("name", ["missing.txt", ".", "fifo", "/dev/zero", "bad\0name", "x" * 300])
async def test_what_cannot_be_read_is_said_at_once(agent: Driver, work: Path, name: str) -> None:
    os.mkfifo(work / "fifo")
    session = await agent.open(work)
    answer = await agent.prompt(session, f"read {name}\nsay next")
    assert answer["result"]["stopReason"] == "end_turn"
    assert statuses(agent) == ["pending", "in_progress", "failed"]
    assert agent.text().endswith("\nnext")


async def test_a_long_file_is_cut(agent: Driver, work: Path) -> None:
    (work / "long").write_bytes(b"x" * 100_000)
    session = await agent.open(work)
    await agent.prompt(session, "read long")
    assert agent.text() == "x" * 65536 + "\n[cut after 65536 bytes]"


async def test_a_change_is_announced_asked_for_made_and_told(agent: Driver, work: Path) -> None:
    (work / "a.txt").write_text("old", encoding="utf-8")
    agent.answers[PERMISSION] = allow
    session = await agent.open(work)
    await agent.prompt(session, "write a.txt new words")
    assert (work / "a.txt").read_text(encoding="utf-8") == "new words"
    assert statuses(agent) == ["pending", "asks", "in_progress", "completed"]
    path = str(work / "a.txt")
    call = agent.requests()[0]["params"]["toolCall"]
    assert call["kind"] == "edit"
    assert call["rawInput"] == {"path": path, "content": "new words"}
    assert call["content"] == [{"type": "diff", "path": path, "oldText": "old", "newText": "new words"}]
    assert call["locations"] == [{"path": path}]
    assert [update["toolCallId"] for update in agent.updates() if "toolCallId" in update] == [call["toolCallId"]] * 3
    assert "I wrote 9 characters to a.txt." in agent.text()


async def test_a_new_file_has_no_old_text(agent: Driver, work: Path) -> None:
    agent.answers[PERMISSION] = allow
    session = await agent.open(work)
    await agent.prompt(session, "write sub/dir/new.txt hello")
    assert agent.requests()[0]["params"]["toolCall"]["content"][0]["oldText"] is None
    assert (work / "sub" / "dir" / "new.txt").read_text(encoding="utf-8") == "hello"


async def test_the_options_are_of_its_own_ids(agent: Driver, work: Path) -> None:
    agent.answers[PERMISSION] = deny
    session = await agent.open(work)
    await agent.prompt(session, "run true")
    options = agent.requests()[0]["params"]["options"]
    kinds = {option["optionId"]: option["kind"] for option in options}
    assert kinds == {"yes": "allow_once", "always": "allow_always", "no": "reject_once"}


async def test_a_denial_s_words_are_said_back_and_the_next_line_is_done(agent: Driver, work: Path) -> None:
    agent.answers[PERMISSION] = choose("reject_once", "use b.txt instead")
    session = await agent.open(work)
    answer = await agent.prompt(session, "write a.txt x\nsay next")
    assert answer["result"]["stopReason"] == "end_turn"
    assert agent.text() == "I did not write a.txt: it was not allowed. You said: use b.txt instead\nnext"
    assert statuses(agent) == ["pending", "asks", "failed"]
    assert not (work / "a.txt").exists()


@pytest.mark.parametrize(
    "result",
    [
        CANCELLED,
        {},
        {"outcome": None},
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": "selected", "optionId": 7}},
    ],
)
async def test_whatever_is_not_a_yes_is_a_no(agent: Driver, work: Path, result: dict[str, Any]) -> None:
    agent.answers[PERMISSION] = lambda request: result
    session = await agent.open(work)
    await agent.prompt(session, "run touch made")
    assert not (work / "made").exists()
    assert "it was not allowed" in agent.text()


async def test_an_error_for_an_answer_is_a_no(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    prompt = await agent.begin("session/prompt", sessionId=session, prompt=blocks("run touch made"))
    request = await agent.wait_for(lambda message: message.get("method") == PERMISSION)
    await agent.send({"id": request["id"], "error": {"code": -32601, "message": "no"}})
    assert (await prompt)["result"]["stopReason"] == "end_turn"
    assert not (work / "made").exists()


async def test_always_is_for_its_kind_and_session(agent: Driver, work: Path) -> None:
    agent.answers[PERMISSION] = choose("allow_always")
    session, other = await agent.open(work), await agent.open(work)
    await agent.prompt(session, "run true\nrun true\nwrite a.txt x")
    await agent.prompt(other, "run true")
    asked = [(each["params"]["sessionId"], each["params"]["toolCall"]["kind"]) for each in agent.requests()]
    assert asked == [(session, "execute"), (session, "edit"), (other, "execute")]


async def test_only_what_was_shown_is_overwritten(agent: Driver, work: Path) -> None:
    def meanwhile(request: dict[str, Any]) -> dict[str, Any] | None:
        (work / "a.txt").write_text("somebody else's", encoding="utf-8")
        return allow(request)

    agent.answers[PERMISSION] = meanwhile
    session = await agent.open(work)
    await agent.prompt(session, "write a.txt mine")
    assert (work / "a.txt").read_text(encoding="utf-8") == "somebody else's"
    assert statuses(agent) == ["pending", "asks", "in_progress", "failed"]
    assert "has changed since I asked" in agent.text()


@pytest.mark.parametrize("content", [b"\xff\xfe binary", b"x" * (1 << 20) + b"x"])
async def test_what_cannot_be_shown_is_not_written(agent: Driver, work: Path, content: bytes) -> None:
    (work / "a").write_bytes(content)
    agent.answers[PERMISSION] = allow
    session = await agent.open(work)
    await agent.prompt(session, "write a x")
    assert (work / "a").read_bytes() == content
    assert not agent.requests()


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("echo out; echo err >&2", "out\nerr"),
        ("pwd", "{work}"),
        ("true", "The command ended without output."),
        ("echo no; exit 3", "no\n[exit code 3]"),
        ("kill -9 $$", "[exit code -9]"),
        ("cat", "The command ended without output."),
        ("printf '\\377'", "\ufffd"),
        ("head -c 200000 /dev/zero | tr '\\0' x", "x" * 65536 + "\n[cut after 65536 bytes]"),
    ],
)
async def test_commands(agent: Driver, work: Path, command: str, wanted: str) -> None:
    agent.answers[PERMISSION] = allow
    session = await agent.open(work)
    await agent.prompt(session, f"run {command}")
    call = agent.requests()[0]["params"]["toolCall"]
    assert (call["kind"], call["rawInput"]) == ("execute", {"command": command})
    assert agent.text() == wanted.format(work=work)


async def test_nothing_outlives_its_command(agent: Driver, work: Path) -> None:
    agent.answers[PERMISSION] = allow
    session = await agent.open(work)
    answer = await agent.prompt(session, "run sleep 600 & echo $!")
    assert answer["result"]["stopReason"] == "end_turn"
    await until(lambda: is_gone(int(agent.text())))


# --- questions -------------------------------------------------------------------------------------------------------


async def test_a_question_to_a_client_without_elicitation(agent: Driver, work: Path) -> None:
    agent.answers[PERMISSION] = lambda request: {"outcome": {"outcome": "selected", "optionId": "choice-2"}}
    session = await agent.open(work)
    await agent.prompt(session, "ask Which colour? red | dark blue")
    assert agent.text() == "You chose: dark blue"
    params = agent.requests()[0]["params"]
    assert (params["toolCall"]["title"], params["toolCall"]["kind"]) == ("Which colour?", "think")
    shown = [(option["name"], option["kind"]) for option in params["options"]]
    assert shown == [("red", "allow_once"), ("dark blue", "allow_once"), ("None of these", "reject_once")]
    assert statuses(agent) == ["pending", "asks", "completed"]


@pytest.mark.parametrize(
    ("words", "wanted"), [("", "You chose none of them."), ("green", "You said: green")], ids=["no", "words"]
)
async def test_none_of_the_choices(agent: Driver, work: Path, words: str, wanted: str) -> None:
    agent.answers[PERMISSION] = choose("reject_once", words)
    session = await agent.open(work)
    await agent.prompt(session, "ask Which colour? red | blue")
    assert agent.text() == wanted


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        ({"action": "accept", "content": {"choice": "blue"}}, "You chose: blue"),
        ({"action": "accept", "content": {"choice": "green"}}, "You chose none of them."),
        ({"action": "accept"}, "You chose none of them."),
        ({"action": "decline"}, "You chose none of them."),
    ],
)
async def test_a_question_by_elicitation(start: Start, work: Path, result: dict[str, Any], wanted: str) -> None:
    async with start() as driver:
        await driver.initialize(elicitation={"form": {}})
        driver.answers["elicitation/create"] = lambda request: result
        session = await driver.open(work)
        await driver.prompt(session, "ask Which colour? red | blue")
        assert driver.text() == wanted
        params = driver.requests("elicitation/create")[0]["params"]
        assert (params["mode"], params["message"]) == ("form", "Which colour?")
        assert params["requestedSchema"]["properties"]["choice"]["enum"] == ["red", "blue"]


# --- cancel and end --------------------------------------------------------------------------------------------------


async def cancel(driver: Driver, session: str) -> None:
    await driver.send({"method": "session/cancel", "params": {"sessionId": session}})


@pytest.mark.parametrize("line", ["sleep 600", "run sleep 600", "write a.txt x", "ask Which? a | b"])
async def test_cancel_ends_the_turn_wherever_it_is(agent: Driver, work: Path, line: str) -> None:
    session = await agent.open(work)
    prompt = await agent.begin("session/prompt", sessionId=session, prompt=blocks(f"say begun\n{line}\nsay never"))
    await agent.wait_for(lambda message: message.get("method") == "session/update")
    await cancel(agent, session)
    assert (await asyncio.wait_for(prompt, 10))["result"] == {"stopReason": "cancelled"}
    assert "never" not in agent.text()
    agent.answers[PERMISSION] = allow
    assert (await agent.prompt(session, "say again"))["result"]["stopReason"] == "end_turn"


async def test_cancel_right_behind_its_prompt(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    prompt = {"id": 99, "method": "session/prompt", "params": {"sessionId": session, "prompt": blocks("sleep 600")}}
    stop = {"method": "session/cancel", "params": {"sessionId": session}}
    await agent.write(b"".join(json.dumps(each).encode() + b"\n" for each in (prompt, stop)))
    answer = await agent.wait_for(lambda message: message.get("id") == 99)
    assert answer["result"] == {"stopReason": "cancelled"}


async def test_an_answer_after_the_cancel_does_nothing(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    prompt = await agent.begin("session/prompt", sessionId=session, prompt=blocks("run touch made"))
    request = await agent.wait_for(lambda message: message.get("method") == PERMISSION)
    await cancel(agent, session)
    await prompt
    await agent.send({"id": request["id"], "result": allow(request)})
    await agent.prompt(session, "say done")
    assert not (work / "made").exists()


async def start_of_command(driver: Driver, session: str, work: Path) -> int:
    """Let it run a long command whose group holds a child that ignores TERM; the child's pid."""
    driver.answers[PERMISSION] = allow
    command = "sh -c 'trap \"\" TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 1; done' & sleep 600"
    await driver.begin("session/prompt", sessionId=session, prompt=blocks(f"run {command}"))
    await until((work / "pid").exists)
    return int((work / "pid").read_text(encoding="ascii"))


async def test_cancel_kills_what_runs(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    pid = await start_of_command(agent, session, work)
    await cancel(agent, session)
    await until(lambda: is_gone(pid))


@pytest.mark.parametrize("ending", ["eof", "term"])
async def test_it_ends_with_its_client_and_takes_its_commands_along(agent: Driver, work: Path, ending: str) -> None:
    session = await agent.open(work)
    pid = await start_of_command(agent, session, work)
    if ending == "eof":
        assert agent.process.stdin
        agent.process.stdin.close()
    else:
        agent.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(agent.process.wait(), 10) == 0
    assert is_gone(pid)


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_sessions_run_beside_each_other(agent: Driver, work: Path, tmp_path: Path) -> None:
    first, second = await agent.open(work), await agent.open(tmp_path)
    waiting = await agent.begin("session/prompt", sessionId=first, prompt=blocks("run pwd"))
    await agent.wait_for(lambda message: message.get("method") == PERMISSION)
    await agent.prompt(second, "say meanwhile")
    assert agent.text(second) == "meanwhile"
    assert agent.text(first) == ""
    assert not waiting.done()


async def test_a_second_prompt_in_a_busy_session_is_refused(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    await agent.begin("session/prompt", sessionId=session, prompt=blocks("sleep 600"))
    answer = await agent.prompt(session, "say hello")
    assert answer["error"]["code"] == -32600


async def test_recall(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    await agent.prompt(session, "recall")
    await agent.prompt(session, HOST, "say one")
    await agent.prompt(session, "say two\nrecall\nsay later")
    assert agent.text().split("\n") == [
        "You have told me nothing before.one" + "two",
        "You told me before:",
        "- say one",
        "- say two",
        "later",
    ]


async def killed(start: Start, work: Path, lines: str) -> str:
    """The id of a session whose process was killed after a turn and in the middle of another."""
    async with start() as driver:
        await driver.initialize()
        driver.answers[PERMISSION] = allow
        session = await driver.open(work)
        await driver.prompt(session, HOST, lines)
        await driver.begin("session/prompt", sessionId=session, prompt=blocks("say cut short\nsleep 600"))
        await driver.wait_for(lambda message: "cut short" in json.dumps(message))
        driver.process.kill()
        await driver.process.wait()
    return session


async def test_a_session_outlives_its_killed_process(start: Start, work: Path) -> None:
    session = await killed(start, work, "say one\nsay two\nthink deep\nplan a; b\nrun echo hi")
    async with start() as driver:
        await driver.initialize()
        await driver.result("session/load", sessionId=session, cwd=str(work), mcpServers=[])
        kinds = [update["sessionUpdate"] for update in driver.updates(session)]
        assert kinds == [
            "user_message_chunk",
            "agent_message_chunk",
            "agent_thought_chunk",
            "plan",
            "tool_call",
            "tool_call_update",
            "tool_call_update",
            "agent_message_chunk",
            "user_message_chunk",
        ]
        assert driver.text(kind="user_message_chunk").startswith("say one\nsay two\nthink deep")
        driver.forget()
        await driver.prompt(session, "recall")
        assert "- say one\n- say two\n" in driver.text()
        assert "- say cut short\n- sleep 600" in driver.text()


async def test_resume_replays_nothing(start: Start, work: Path) -> None:
    session = await killed(start, work, "say one")
    async with start() as driver:
        await driver.initialize()
        await driver.result("session/resume", sessionId=session, cwd=str(work), mcpServers=[])
        assert driver.updates() == []
        await driver.prompt(session, "recall")
        assert "- say one" in driver.text()


@pytest.mark.parametrize("damage", [b'\n{"told": ["say cut', b"\n[1]\nnull\n\xff\xfe", b""])
async def test_a_damaged_last_line_costs_only_itself(start: Start, home: Path, work: Path, damage: bytes) -> None:
    session = await killed(start, work, "say one")
    [file] = home.rglob(f"{session}.jsonl")
    with file.open("ab") as opened:
        opened.write(damage)
    async with start() as driver:
        await driver.initialize()
        await driver.result("session/resume", sessionId=session, cwd=str(work))
        await driver.prompt(session, "say two")
        await driver.result("session/resume", sessionId=session, cwd=str(work))
        driver.forget()
        await driver.prompt(session, "recall")
        assert "- say one\n" in driver.text()
        assert "- say two" in driver.text()


@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/prompt", "session/close"])
async def test_a_session_that_is_not_there(agent: Driver, work: Path, method: str) -> None:
    for session in ("0" * 32, "../../../etc/passwd", "", None, 7, ["x"], "x\0y"):
        answer = await agent.ask(method, sessionId=session, cwd=str(work), prompt=blocks("say x"))
        assert answer["error"]["code"] == -32002, session


async def test_a_session_needs_a_folder(agent: Driver) -> None:
    for cwd in ("relative", "/no/such/folder", "", None, 7, "/etc/passwd", "/\0"):
        answer = await agent.ask("session/new", cwd=cwd, mcpServers=[])
        assert answer["error"]["code"] == -32602, cwd


async def test_sessions_are_private_files(agent: Driver, home: Path, work: Path) -> None:
    session = await agent.open(work)
    [file] = home.rglob(f"{session}.jsonl")
    assert file.parent == home / ".local" / "share" / "a2a-demo"
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_a_home_that_cannot_keep_sessions_is_an_error_and_not_the_end(home: Path, work: Path) -> None:
    (home / ".local").write_text("not a folder", encoding="utf-8")
    async with driving([sys.executable, str(DEMO)], {"HOME": str(home)}) as driver:
        await driver.initialize()
        answer = await driver.ask("session/new", cwd=str(work))
        assert answer["error"]["code"] == -32603
        assert "cannot keep my sessions" in answer["error"]["message"]
        assert (await driver.initialize())["protocolVersion"] == 1


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b"9" * 5_000, -32700),
        (b"[1, 2]", -32600),
        (b"null", -32600),
        (b'"text"', -32600),
        (b'{"id": 1.5, "method": "initialize"}', -32600),
        (b'{"id": {}, "method": "initialize"}', -32600),
        (b'{"id": 77, "method": 5}', -32600),
        (b'{"id": 77, "method": "no/such"}', -32601),
        (b'{"id": 77, "method": "session/new", "params": [1]}', -32602),
        (b'{"id": 77, "method": "session/new", "params": "x"}', -32602),
        (b'{"id": 77, "method": "session/new"}', -32602),
    ],
)
async def test_bad_lines_are_answered_and_survived(agent: Driver, line: bytes, code: int) -> None:
    agent.forget()
    await agent.write(line + b"\n")
    answer = await agent.wait_for(lambda message: "error" in message)
    assert answer["error"]["code"] == code
    assert answer["id"] == (77 if b"77" in line else None)
    assert (await agent.initialize())["protocolVersion"] == 1


@pytest.mark.parametrize(
    "prompt", [None, "say x", [], [7], {"type": "text"}, [{"type": "text"}], [{"type": "text", "text": 7}]]
)
async def test_a_bad_prompt(agent: Driver, work: Path, prompt: Any) -> None:
    session = await agent.open(work)
    answer = await agent.ask("session/prompt", sessionId=session, prompt=prompt)
    assert answer["error"]["code"] == -32602


async def test_what_needs_no_answer_gets_none(agent: Driver) -> None:
    agent.forget()
    noise = [
        {"method": "no/such"},
        {"method": "session/new", "params": {}},
        {"method": "session/cancel", "params": {"sessionId": ["x"]}},
        {"method": "session/cancel", "params": 7},
        {"id": "demo-999", "result": {}},
        {"id": 12345, "result": {}},
        {"id": None, "error": {}},
    ]
    await agent.write(b"\n \n" + b"".join(json.dumps(each).encode() + b"\n" for each in noise))
    await agent.initialize()
    assert len(agent.received) == 1


async def test_a_line_without_end_is_dropped_and_the_next_one_read(agent: Driver) -> None:
    agent.forget()
    await agent.write(b"x" * (33 << 20) + b"\n")
    answer = await agent.wait_for(lambda message: "error" in message)
    assert answer["error"]["code"] == -32700
    assert (await agent.initialize())["protocolVersion"] == 1


# --- speed -----------------------------------------------------------------------------------------------------------


async def test_many_chunks_come_in_order_and_whole(agent: Driver, work: Path) -> None:
    session = await agent.open(work)
    await agent.prompt(session, "chunks 5000")
    texts = [
        update["content"]["text"] for update in agent.updates() if update["sessionUpdate"] == "agent_message_chunk"
    ]
    assert texts == [f"chunk {number} " for number in range(1, 5001)]


async def test_a_reader_that_stops_holds_the_chunks_up_but_not_a_cancel(start: Start, work: Path) -> None:
    """It waits for its reader instead of buffering a million chunks, and hears a cancel meanwhile."""
    async with start() as driver:
        await driver.initialize()
        session = await driver.open(work)
        assert driver.process.stdout
        transport = driver.process.stdout._transport  # type: ignore[attr-defined]
        pipe = transport.get_extra_info("pipe").fileno()
        transport.pause_reading()
        prompt = await driver.begin("session/prompt", sessionId=session, prompt=blocks("chunks 1000000"))
        await until(lambda: waiting_bytes(pipe) >= 60_000)
        await cancel(driver, session)
        transport.resume_reading()
        assert (await asyncio.wait_for(prompt, 20))["result"] == {"stopReason": "cancelled"}
        assert len(driver.received) < 100_000


def waiting_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4), sys.byteorder)
