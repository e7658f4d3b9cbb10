"""`send` as people and scripts use it: a real server behind a network that can fail, a real terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commanding import Ran, Terminal, run_process
from fakes.cutting_proxy import CuttingProxy

PROMPT = "allow? [y/n/words] "


@dataclass
class Server:
    """A detached server of `root` whose card names the proxy."""

    root: Path
    proxy: CuttingProxy
    environment: dict[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}"

    def run(self, *words: object, text: str | None = None) -> Ran:
        return run_process(*words, environment=self.environment, text=text)

    def send(self, *words: object, text: str | None = None) -> Ran:
        return self.run("send", "--dir", self.root, *words, text=text)

    def terminal(self, *words: object) -> Terminal:
        return Terminal("send", "--dir", self.root, *words, environment=self.environment)

    def questions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.run("questions", self.root, "-o", "json").json
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("send")
    proxy = CuttingProxy()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("A2A_SERVE_")}
    environment = {
        **kept,
        "XDG_STATE_HOME": str(base / "state"),
        "XDG_CONFIG_HOME": str(base / "config"),
        "TERM": "xterm",
        "A2A_SERVE_LISTEN__URL": f"http://127.0.0.1:{proxy.port}",
    }
    made = Server(base / "project", proxy, environment)
    made.root.mkdir()
    options = ["--agent", "demo", "--sandbox", "local", "--port", "0", "--grpc-port", "off", "--detach", "-o", "json"]
    started = made.run("start", made.root, *options)
    assert started.code == 0, started.err
    servers = json.loads((base / "state" / "a2a-serve" / "servers.json").read_text())
    origin = next(each for each in servers if each != made.url)
    proxy.target = int(origin.rpartition(":")[2])
    token = made.run("credential", "get", origin).out.strip()
    _save_credentials(base / "config", {made.url: token})
    del environment["A2A_SERVE_LISTEN__URL"]
    yield made
    assert made.run("stop", made.root).code == 0
    proxy.close()


def _save_credentials(config: Path, tokens: dict[str, str]) -> None:
    file = config / "a2a-serve" / "credentials.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(tokens))
    file.chmod(0o600)


@pytest.fixture
def readme(server: Server) -> Path:
    file = server.root / "README.md"
    file.write_text("old title\n")
    server.proxy.open = True
    return file


def task_of(err: str) -> str:
    return next(line.removeprefix("Task: ") for line in err.splitlines() if line.startswith("Task: "))


# --- on a terminal ---------------------------------------------------------------------------------------------------


def test_a_change_is_shown_in_colour_and_allowed(server: Server, readme: Path) -> None:
    with server.terminal("write README.md new title") as terminal:
        shown = terminal.until(PROMPT)
        assert "\x1b[31m-old title\x1b[0m" in shown
        assert "\x1b[32m+new title\x1b[0m" in shown
        assert readme.read_text() == "old title\n"
        terminal.type("y\n")
        assert terminal.end() == 0
    assert readme.read_text().strip() == "new title"
    assert "State: completed" in terminal.seen


@pytest.mark.req("Q3")
def test_words_deny_and_reach_the_agent(server: Server, readme: Path) -> None:
    with server.terminal("write README.md new title") as terminal:
        terminal.until(PROMPT)
        terminal.type("\n")
        terminal.until(PROMPT)
        terminal.type("use another title\n")
        terminal.until("You said: use another title")
        assert terminal.end() == 0
    assert readme.read_text() == "old title\n"


def test_one_question_after_the_other(server: Server, readme: Path) -> None:
    with server.terminal("write README.md one\nsay between\nwrite README.md two") as terminal:
        terminal.until(PROMPT)
        terminal.type("y\n")
        assert "between" in terminal.until(PROMPT)
        terminal.type("n\n")
        assert terminal.end() == 0
    assert readme.read_text().strip() == "one"
    assert terminal.seen.count("between") == 1


@pytest.mark.req("Q4")
def test_an_answer_given_elsewhere_goes_on_here(server: Server, readme: Path) -> None:
    with server.terminal("write README.md elsewhere\nsay went on") as terminal:
        terminal.until(PROMPT)
        (question,) = server.questions()
        assert server.run("answer", question["id"], "allow", "--dir", server.root).code == 0
        terminal.until("settled")
        terminal.until("went on")
        assert terminal.end() == 0
    assert readme.read_text().strip() == "elsewhere"


@pytest.mark.req("Q4")
def test_while_it_asks_the_network_may_fail(server: Server, readme: Path) -> None:
    with server.terminal("write README.md through it all\nsay went on") as terminal:
        terminal.until(PROMPT)
        server.proxy.cut()
        (question,) = server.questions()
        assert server.run("answer", question["id"], "allow", "--dir", server.root).code == 0
        terminal.until("went on")
        assert terminal.end() == 0


def test_what_was_typed_before_the_question_does_not_answer_it(server: Server, readme: Path) -> None:
    with server.terminal("say first\nsleep 1\nwrite README.md new") as terminal:
        terminal.until("first")
        terminal.type("y\n")
        terminal.until(PROMPT)
        terminal.type("n\n")
        assert terminal.end() == 0
    assert readme.read_text() == "old title\n"


def test_the_end_of_input_leaves_the_question_open(server: Server, readme: Path) -> None:
    with server.terminal("write README.md new") as terminal:
        terminal.until(PROMPT)
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "Answer: a2a-serve answer" in terminal.seen
    assert "State: input-required" in terminal.seen
    (question,) = server.questions()
    assert server.run("answer", question["id"], "deny", "--dir", server.root).code == 0


@pytest.mark.req("H9")
def test_ctrl_c_leaves_the_task_running_and_says_how_to_come_back(server: Server, readme: Path) -> None:
    with server.terminal("say begun\nsleep 2\nsay done at last") as terminal:
        terminal.until("begun")
        terminal.interrupt()
        assert terminal.end() == 130
    assert "Traceback" not in terminal.seen
    words = terminal.seen.split("a2a-serve ", 1)[1].split()
    back = server.run(*words)
    assert back.code == 0
    assert back.out.startswith("begun")
    assert "done at last" in back.out


def test_ctrl_c_at_a_question_leaves_it_open(server: Server, readme: Path) -> None:
    with server.terminal("write README.md new") as terminal:
        terminal.until(PROMPT)
        terminal.interrupt()
        assert terminal.end() == 130
    task_id = terminal.seen.rsplit("--task-id ", 1)[1].split()[0]
    with server.terminal("--task-id", task_id) as again:
        again.until(PROMPT)
        again.type("yes\n")
        assert again.end() == 0
    assert readme.read_text().strip() == "new"


def test_the_agents_text_cannot_steer_the_terminal(server: Server, readme: Path) -> None:
    with server.terminal("say a\x1b[2Jb\u202ec\rd") as terminal:
        assert terminal.end() == 0
    assert "a\\u{1b}[2Jb\\u{202e}c" in terminal.seen
    assert "\x1b[2J" not in terminal.seen
    assert "\u202e" not in terminal.seen


def test_thoughts_plans_and_tools_are_shown_dimmed(server: Server, readme: Path) -> None:
    with server.terminal("think deeply\nplan A; B\nread README.md\nsay done") as terminal:
        assert terminal.end() == 0
    assert "\x1b[2mdeeply" in terminal.seen
    assert "1. [" in terminal.seen
    assert "\x1b[2m· Read README.md" in terminal.seen


# --- without a terminal ----------------------------------------------------------------------------------------------


def test_text_on_stdout_and_ids_on_stderr(server: Server, readme: Path) -> None:
    ran = server.send("think hm\nplan A\nsay hello\nsay again")
    assert (ran.code, ran.out.split()) == (0, ["hello", "again"])
    assert [line.split(":")[0] for line in ran.err.splitlines()] == ["Task", "Context", "State"]
    context = ran.err.split("Context: ")[1].splitlines()[0]
    more = server.send("--context-id", context, "recall")
    assert "hello" in more.out


def test_a_whole_answer_without_streaming(server: Server, readme: Path) -> None:
    assert server.send("--no-stream", "chunks 50").out.split() == server.send("chunks 50").out.split()


def test_it_never_asks_and_says_how_to_answer(server: Server, readme: Path) -> None:
    for options in ([], ["--no-stream"]):
        ran = server.send(*options, "write README.md new", text="y\n")
        assert ran.code == 0
        assert "-old title\n+new" in ran.out
        assert PROMPT not in ran.out + ran.err
        command = ran.out.split("Answer: a2a-serve ")[1].split()
        told = server.run(*[word.replace("allow|deny", "deny") for word in command])
        assert told.out.startswith("Answered: ")
    assert readme.read_text() == "old title\n"
    assert server.questions() == []


def test_stdin_is_the_text(server: Server, readme: Path) -> None:
    assert server.send("-", text="say one\nsay two\n").out.split() == ["one", "two"]


def test_words_with_a_task_answer_its_question(server: Server, readme: Path) -> None:
    task_id = task_of(server.send("write README.md by words").err)
    ran = server.send("--task-id", task_id, "yes")
    assert ran.code == 0
    assert "State: completed" in ran.err
    assert readme.read_text().strip() == "by words"


@pytest.mark.req("H8")
def test_json_is_one_document_or_lines(server: Server, readme: Path) -> None:
    task = server.send("-o", "json", "say hello").json
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["artifactId"] == "response"
    lines = [json.loads(line) for line in server.send("-o", "json", "--stream", "say hello").out.splitlines()]
    assert "task" in lines[0]
    assert lines[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    waiting = server.send("-o", "json", "write README.md new").json
    assert waiting["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    server.send("--task-id", waiting["id"], "no")


def test_async_returns_at_once(server: Server, readme: Path) -> None:
    ran = server.send("--async", "sleep 1\nsay later")
    assert ran.code == 0
    assert ran.out == ""
    back = server.send("--task-id", task_of(ran.err))
    assert "later" in back.out
    assert "State: completed" in back.err
    assert server.send("--async", "-o", "json", "say x").json["id"]


@pytest.mark.req("H9")
def test_a_timeout_leaves_the_task_running(server: Server, readme: Path) -> None:
    ran = server.send("--timeout", "0.8", "sleep 3\nsay after all")
    assert ran.code == 5
    assert "did not end within 0.8 seconds" in ran.err
    task_id = ran.err.split("--task-id ")[1].split()[0]
    assert "after all" in server.send("--task-id", task_id).out


def test_a_failed_task_is_conducted(server: Server, readme: Path) -> None:
    ran = server.send("fail on purpose")
    assert ran.code == 0
    assert "Failed: " in ran.err
    assert "State: failed" in ran.err


@pytest.mark.req("A10")
def test_a_cut_stream_is_resumed_and_nothing_is_shown_twice(server: Server, readme: Path) -> None:
    with server.terminal("say begun\nsleep 1\nchunks 20\nsay ended") as terminal:
        terminal.until("begun")
        server.proxy.cut()
        terminal.until("ended")
        assert terminal.end() == 0
    assert terminal.seen.count("chunk 7 ") == 1
    assert terminal.seen.count("begun") == 1


@pytest.mark.req("H9")
def test_a_network_that_stays_away_is_told(server: Server, readme: Path) -> None:
    with server.terminal("say begun\nsleep 20") as terminal:
        terminal.until("begun")
        server.proxy.open = False
        server.proxy.cut()
        assert terminal.end() == 3
    server.proxy.open = True
    assert "The connection to the agent was lost." in terminal.seen
    assert "To come back: a2a-serve send" in terminal.seen


@pytest.mark.req("H9")
def test_refusals_have_their_exit_codes(server: Server, readme: Path) -> None:
    nowhere = str(server.root / "nothing")
    environment = {**server.environment, "XDG_CONFIG_HOME": nowhere, "XDG_STATE_HOME": nowhere}
    unsigned = run_process("send", "--url", server.url, "say hello", environment=environment)
    assert (unsigned.code, unsigned.out) == (4, "")
    assert "token" in unsigned.err
    unknown = server.send("--task-id", "no-such-task")
    assert (unknown.code, unknown.out) == (1, "")
    server.proxy.open = False
    gone = server.run("send", "--url", "http://127.0.0.1:1", "say hello")
    assert gone.code == 3
    assert "Nothing answers at http://127.0.0.1:1" in gone.err
