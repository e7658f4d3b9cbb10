"""Runs the official A2A test kit against this server, over all three bindings.

    scripts/conformance.py PATH [PYTEST ARGUMENT ...]

PATH is a checkout of a2aproject/a2a-tck, branch 1.0-dev or 0.3.x; it is copied and left alone. The kit gets an
environment of its own below .tools. Exit 0 when nothing fails but what docs/conformance.md explains.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
AGENT = ROOT / "tests" / "acceptance" / "tck_agent.py"
PROGRAM = Path(sys.executable).with_name("a2a-serve")
BINDINGS = ("grpc", "jsonrpc", "http_json")


@dataclass(frozen=True, slots=True)
class Kit:
    """One version of the kit. `runs`: pytest's arguments, one run each, by the binding that the whole run is about ('':
    each test names its own). `expected`: tests that fail, on how many bindings, and why (docs/conformance.md)."""

    marker: str
    """A path that only this version has."""
    plugin: str
    runs: dict[str, list[str]]
    expected: dict[str, tuple[int, str]]
    agent: list[str] = field(default_factory=list)

    def is_at(self, path: Path) -> bool:
        return (path / self.marker).exists()


KIT_10 = Kit(
    marker="tck/requirements",
    plugin="conformance_kit",
    runs={"": ["tests/compatibility", "--sut-host={base}"]},
    expected={
        "TestMessageResponse::test_returns_message_with_text_part": (3, "by design: a message is answered by a task"),
        "TestAgentCardStructure::test_agent_card_validates_against_schema": (1, "the card has the fields of 0.3 too"),
        "TestRestFormat::test_response_content_type": (1, "the media type of specification 1.0.1"),
    },
)
_RUN_03 = ["tests/mandatory", "tests/optional", "--sut-url={rpc}", "--test-scope=all"]
KIT_03 = Kit(
    marker="tests/mandatory",
    plugin="conformance_kit_03",
    runs={
        binding: [*_RUN_03, f"--transports={name}", f"--transport-strategy=prefer_{name}"]
        for binding, name in (("grpc", "grpc"), ("jsonrpc", "jsonrpc"), ("http_json", "rest"))
    },
    expected={
        "test_agent_card_access_equivalence": (3, "by design: there is no extended card"),
        "test_public_agent_card_access_control": (3, "looks for the card at the JSON-RPC endpoint"),
        "test_sensitive_information_protection": (3, "takes 127.0.0.1 and the words token and test for secrets"),
        "test_agent_interfaces_structure": (3, "wants a web URL for gRPC, where clients take host:port"),
        "test_invalid_method_error_validation": (3, "sends a whole call where a method's name belongs"),
        "test_rapid_sequential_requests": (3, "sends one message id with ten different texts"),
        "test_task_state_transitions": (3, "wants the answer before the task has settled"),
        "test_unsupported_part_kind": (1, "a part with text and no kind is taken as text"),
        "test_push_notification_not_supported_error_32003": (2, "calls a method that only its JSON-RPC client has"),
        "test_push_notification_not_supported_error_32003_enhanced": (
            2,
            "its other clients know errors by status only",
        ),
        "TestTasksList::test_tasks_list_with_existing_tasks": (2, "sends a text where its own helper takes a message"),
        "test_task_history_length": (1, "over REST, asks with a name that is not historyLength"),
        "test_boundary_values": (1, "over REST, asks with a name that is not historyLength"),
        "test_message_send_continue_with_contextid": (1, "over REST, reads context_id, finds none and makes one up"),
    },
    agent=["--kit-0.3"],
)

Outcome = tuple[str, str, str]
"""Test, binding ('' for none), and passed, failed or skipped."""


def main(arguments: list[str]) -> int:
    path = Path(arguments[0]).resolve() if arguments else Path()
    kit = next((each for each in (KIT_10, KIT_03) if arguments and each.is_at(path)), None)
    if kit is None:
        print("usage: scripts/conformance.py PATH-OF-A-CHECKOUT-OF-a2a-tck (branch 1.0-dev or 0.3.x)", file=sys.stderr)
        return 2
    python = _prepare(path)
    with tempfile.TemporaryDirectory(prefix="a2a-kit-") as scratch:
        copy = shutil.copytree(path, Path(scratch, "kit"), ignore=shutil.ignore_patterns(".git", ".venv"))
        environment = {**os.environ, "XDG_STATE_HOME": str(Path(scratch, "state"))}
        with _serving(Path(scratch, "agent"), kit.agent, environment) as status:
            print(f"kit {path} against {status['card_url']}", flush=True)
            results = _run(kit, python, copy, status, environment, arguments[1:])
        return report(kit, results)


def _prepare(path: Path) -> Path:
    """The Python of an environment with what the kit needs; made once for each set of requirements."""
    needs = [*tomllib.loads((path / "pyproject.toml").read_text())["project"]["dependencies"], "pytest-timeout"]
    folder = ROOT / ".tools" / f"kit-{hashlib.sha256(json.dumps(needs).encode()).hexdigest()[:12]}"
    python, done = folder / "bin" / "python", folder / "done"
    if not done.exists():
        print("installing what the kit needs", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *needs], check=True)
        done.touch()
    return python


@contextmanager
def _serving(directory: Path, agent: Sequence[str], environment: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The server over a folder of its own, with the agent that the kit asks for; gives its status."""
    config = directory / ".a2a" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(f"agent:\n  command: {json.dumps([sys.executable, str(AGENT), *agent])}\n")
    options = ["--sandbox", "local", "--port", "0", "--grpc-port", "0", "--detach", "--output", "json"]
    started = subprocess.run(
        [PROGRAM, "start", directory, *options], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield json.loads(started.stdout)
    finally:
        subprocess.run([PROGRAM, "stop", directory], check=True, stdout=subprocess.DEVNULL, env=environment)


def _run(
    kit: Kit, python: Path, copy: Path, status: dict[str, Any], environment: dict[str, str], more: list[str]
) -> list[Outcome]:
    environment = {**environment, "PYTHONPATH": str(ROOT / "scripts"), "A2A_SERVE_PROGRAM": str(PROGRAM)}
    environment["TCK_STREAMING_TIMEOUT"] = "2.0"
    base = status["card_url"].partition("/.well-known/")[0]
    rpc = next(each["url"] for each in status["endpoints"] if each["binding"] == "JSONRPC")
    outcomes = []
    for binding, arguments in kit.runs.items():
        results = copy / f"results-{binding}.xml"
        asked = [argument.format(base=base, rpc=rpc) for argument in arguments]
        common = ["--timeout=60", "--tb=short", "--show-capture=no", "-q", f"--junitxml={results}", *more]
        command: list[str | Path] = [python, "-m", "pytest", "-p", kit.plugin, *asked, *common]
        subprocess.run(command, cwd=copy, env=environment, check=False)
        outcomes += [_outcome(case, binding) for case in ElementTree.parse(results).iter("testcase")]
    return outcomes


def _outcome(case: ElementTree.Element, binding: str) -> Outcome:
    name, where = case.get("name", ""), case.get("classname", "")
    binding = binding or next((each for each in BINDINGS if each in name or f".{each}." in where), "")
    group = where.rpartition(".")[2]
    test = f"{group}::" if group.startswith("Test") else ""
    test += name.partition("[")[0]
    if case.find("failure") is not None or case.find("error") is not None:
        return test, binding, "failed"
    return test, binding, "passed" if case.find("skipped") is None else "skipped"


def report(kit: Kit, results: list[Outcome]) -> int:
    """Prints the totals. What failed without being expected is named, and makes the exit 1."""
    for binding in (*BINDINGS, ""):
        counts = Counter(result for _, each, result in results if each == binding)
        if counts:
            told = ", ".join(f"{counts[result]} {result}" for result in ("passed", "failed", "skipped"))
            print(f"{binding or 'card and others':16} {told}")
    failed = Counter(test for test, _, result in results if result == "failed")
    for test, (_, why) in kit.expected.items():
        print(f"expected to fail: {test} ({failed[test]}): {why}")
    surprises = sorted(test for test in failed if failed[test] > kit.expected.get(test, (0, ""))[0])
    for test in surprises:
        print(f"NOT EXPECTED to fail, or not so often: {test} ({failed[test]})")
    if not any(result == "passed" for *_, result in results):
        print("nothing has passed: the kit did not run")
        return 1
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
