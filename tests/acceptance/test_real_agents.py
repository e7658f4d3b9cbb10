"""Story: real opencode and real Claude Code in their containers, without a network. The test scripts their model, whose
key stays with the server.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from acceptance.project import MakeProject, Project, engine
from fakes.model_server import ModelServer
from fakes.model_server import serving as serving_model
from serving import Json, is_waiting, questions_of, state_of, text_of

KEY = "sk-canary-7d41e0"
WORDS = "rather look into the folder docs"
BANNER = "-" * 8

pytestmark = pytest.mark.docker


@dataclass(frozen=True)
class Agent:
    """A real agent: the environment variable of its model key, its model API, its shell tool, its tool that edits.

    `edit` changes README.md by that tool with those arguments; `{root}` stands for the folder.
    """

    name: str
    key: str
    api: str
    shell: str
    edit: tuple[str, Json]

    def runs(self, command: str) -> str:
        return f"CALL {self.shell} {json.dumps({'command': command, 'description': 'x'})}"

    def edits(self, root: Path) -> str:
        tool, arguments = self.edit
        return f"CALL {tool} {json.dumps(arguments).replace('{root}', str(root))}"


PATCH = "*** Begin Patch\n*** Update File: {root}/README.md\n@@\n-old title\n+new title\n*** End Patch"
EDIT = {"file_path": "{root}/README.md", "old_string": "old title", "new_string": "new title"}
READ = 'CALL Read {"file_path": "{root}/README.md"}'
AGENTS = [
    Agent("opencode", "OPENAI_API_KEY", "OPENAI", "bash", ("apply_patch", {"patchText": PATCH})),
    Agent("claude", "ANTHROPIC_API_KEY", "ANTHROPIC", "Bash", ("Edit", EDIT)),
]


@asynccontextmanager
async def working(folders: MakeProject, agent: Agent) -> AsyncIterator[tuple[Project, ModelServer]]:
    """A folder served by the agent; the model API takes nothing but the key."""
    project = await folders("project", "docker")
    (project.root / "README.md").write_text("old title\n", encoding="utf-8")
    model = ModelServer(key=KEY)
    async with serving_model(model) as upstream:
        project.environment |= {f"A2A_SERVE_MODELS__{agent.api}__UPSTREAM": upstream, agent.key: KEY}
        status = await project.start("--agent", agent.name)
        assert status["agent"] == agent.name
        yield project, model


@pytest.mark.req("S1", "Q1", "Q2", "T3")
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_a_file_edit_is_shown_approved_and_made(folders: MakeProject, agent: Agent) -> None:
    async with working(folders, agent) as (project, _):
        readme = project.root / "README.md"
        looks = READ.replace("{root}", str(project.root)) + " THEN " if agent.name == "claude" else ""
        script = f"SCRIPT: {looks}SAY I will change it AND {agent.edits(project.root)} THEN SAY it is changed;;"
        async with project.terminal("send", "--context-id", "c1", script) as person:
            asked = await person.until("allow? [y/n/words] ")
            for words in ("I will change it", "README.md", "-old title", "+new title"):
                assert words in asked
            assert readme.read_text(encoding="utf-8") == "old title\n"
            person.type("y\n")
            assert "it is changed" in await person.until("State: completed")
        assert readme.read_text(encoding="utf-8") == "new title\n"
        assert readme.stat().st_uid == project.root.stat().st_uid
        owner = await project.caller()
        again = await owner.send("SCRIPT: SAY second answer;;", contextId="c1")
        assert text_of(again).strip() == "second answer"


@pytest.mark.req("Q3", "Q8")
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_a_command_is_denied_and_the_words_reach_the_model(folders: MakeProject, agent: Agent) -> None:
    async with working(folders, agent) as (project, model):
        owner = await project.caller()
        task = await owner.send(f"SCRIPT: {agent.runs('touch never.txt')} THEN SAY I heard you;;")
        (question,) = questions_of(task)
        assert question["action"]["command"] == "touch never.txt"
        done = await owner.send(WORDS, taskId=task["id"])
        assert state_of(done) == "completed", done["status"]
        assert any(WORDS in json.dumps(request.body) for request in model.inferences())
        assert not (project.root / "never.txt").exists()


@pytest.mark.req("T1", "R1")
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_the_conversation_goes_on_after_a_crash(folders: MakeProject, agent: Agent) -> None:
    async with working(folders, agent) as (project, model):
        owner = await project.caller()
        await owner.send("SCRIPT: SAY the word is plum;;", contextId="c1")
        open_one = await owner.send(f"SCRIPT: {agent.runs('touch never.txt')} THEN SAY done;;", contextId="c1")
        assert is_waiting(open_one)
        await project.kill()
        await project.start("--agent", agent.name)
        owner = await project.caller()
        assert state_of(await owner.get(open_one["id"])) == "failed"
        model.requests.clear()
        again = await owner.send("SCRIPT: SAY second answer;;", contextId="c1")
        assert text_of(again).strip() == "second answer"
        assert "the word is plum" in json.dumps(model.inferences()[-1].body)
        assert not (project.root / "never.txt").exists()


@pytest.mark.req("S4", "S5")
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_the_key_is_never_inside_and_there_is_no_network(folders: MakeProject, agent: Agent) -> None:
    async with working(folders, agent) as (project, model):
        owner = await project.caller()
        task = await owner.send(f"SCRIPT: {agent.runs('true')} THEN SAY done;;")
        assert is_waiting(task)
        assert {request.key for request in model.inferences()} == {KEY}
        (container,) = project.containers()
        seen = look_into(container["Id"])
        assert seen.inspected["HostConfig"]["NetworkMode"] == "none"
        assert seen.interfaces == ["lo"]
        for name, text in seen.places.items():
            assert BANNER in text, f"nothing was read of {name}"
            assert KEY not in text, name
        assert KEY not in json.dumps(seen.inspected)
        assert state_of(await owner.answer(task, "allow")) == "completed"
        for path in project.root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                assert KEY.encode() not in path.read_bytes(), path


@dataclass(frozen=True)
class Seen:
    """What stands in a container: in the environment and arguments of its processes, in its files (names of those that
    hold the key), in what the engine tells of it."""

    inspected: Json
    interfaces: list[str]
    places: dict[str, str]


def look_into(container: str) -> Seen:
    looks = {
        "environment": "cat /proc/[0-9]*/environ",
        "arguments": "cat /proc/[0-9]*/cmdline",
        "files": f"grep -rlF {KEY} / --exclude-dir=proc --exclude-dir=sys && echo found {KEY}",
    }
    with engine() as api:

        def run(command: str) -> str:
            made = api.exec_create(container, ["sh", "-c", f"echo {BANNER}; {command}"])
            return str(api.exec_start(made["Id"]).decode("utf-8", "replace"))

        places = {name: run(f"{command} 2>/dev/null") for name, command in looks.items()}
        devices = run("tail -n +3 /proc/net/dev").splitlines()[1:]
        return Seen(api.inspect_container(container), [line.split(":")[0].strip() for line in devices], places)
