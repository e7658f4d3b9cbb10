"""Runs the official A2A test kit against this server, over all three bindings.

    scripts/conformance.py PATH [PYTEST ARGUMENT ...]

PATH is a checkout of a2aproject/a2a-tck, branch 1.0-dev; it is copied and left alone. The kit gets an environment of
its own below .tools. Exit 0 when nothing fails but what docs/conformance.md explains.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
AGENT = ROOT / "tests" / "acceptance" / "tck_agent.py"
PROGRAM = Path(sys.executable).with_name("a2a-serve")
BINDINGS = ("grpc", "jsonrpc", "http_json")
EXPECTED = {
    "TestMessageResponse::test_returns_message_with_text_part": "by design: the answer to a message is always a task",
    "TestAgentCardStructure::test_agent_card_validates_against_schema": "the card has the fields of 0.3 callers too",
    "TestRestFormat::test_response_content_type": "the media type of specification 1.0.1",
}
"""Tests that fail, and why; the long form is in docs/conformance.md."""

Outcome = tuple[str, str, str]
"""Test, binding ('' for none), and passed, failed or skipped."""


def main(arguments: list[str]) -> int:
    if not arguments or not (Path(arguments[0]) / "tck" / "requirements").is_dir():
        print("usage: scripts/conformance.py PATH-OF-A-CHECKOUT-OF-a2a-tck (branch 1.0-dev)", file=sys.stderr)
        return 2
    kit = Path(arguments[0]).resolve()
    python = _prepare(kit)
    with tempfile.TemporaryDirectory(prefix="a2a-kit-") as scratch:
        copy = shutil.copytree(kit, Path(scratch, "kit"), ignore=shutil.ignore_patterns(".git", ".venv"))
        environment = {**os.environ, "XDG_STATE_HOME": str(Path(scratch, "state"))}
        with _serving(Path(scratch, "agent"), environment) as status:
            print(f"kit {kit} against {status['card_url']}", flush=True)
            results = _run(python, copy, status, environment, arguments[1:])
        return _report(results)


def _prepare(kit: Path) -> Path:
    """The Python of an environment with what the kit needs; made once for each set of requirements."""
    needs = [*tomllib.loads((kit / "pyproject.toml").read_text())["project"]["dependencies"], "pytest-timeout"]
    folder = ROOT / ".tools" / f"kit-{hashlib.sha256(json.dumps(needs).encode()).hexdigest()[:12]}"
    python, done = folder / "bin" / "python", folder / "done"
    if not done.exists():
        print("installing what the kit needs", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *needs], check=True)
        done.touch()
    return python


@contextmanager
def _serving(directory: Path, environment: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The server over a folder of its own, with the agent that the kit asks for; gives its status."""
    config = directory / ".a2a" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(f"agent:\n  command: [{json.dumps(sys.executable)}, {json.dumps(str(AGENT))}]\n")
    options = ["--sandbox", "local", "--port", "0", "--grpc-port", "0", "--detach", "--output", "json"]
    started = subprocess.run(
        [PROGRAM, "start", directory, *options], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield json.loads(started.stdout)
    finally:
        subprocess.run([PROGRAM, "stop", directory], check=True, stdout=subprocess.DEVNULL, env=environment)


def _run(
    python: Path, kit: Path, status: dict[str, Any], environment: dict[str, str], more: list[str]
) -> list[Outcome]:
    results = kit / "results.xml"
    environment = {**environment, "PYTHONPATH": str(ROOT / "scripts"), "A2A_SERVE_PROGRAM": str(PROGRAM)}
    host = status["card_url"].partition("/.well-known/")[0]
    command: list[str | Path] = [
        python,
        "-m",
        "pytest",
        "-p",
        "conformance_kit",
        "tests/compatibility",
        f"--sut-host={host}",
    ]
    command += ["--timeout=60", "--tb=short", "-q", "-rs", f"--junitxml={results}", *more]
    subprocess.run(command, cwd=kit, env=environment, check=False)
    return [_outcome(case) for case in ElementTree.parse(results).iter("testcase")]


def _outcome(case: ElementTree.Element) -> Outcome:
    name, where = case.get("name", ""), case.get("classname", "")
    binding = next((each for each in BINDINGS if each in name or f".{each}." in where), "")
    test = f"{where.rpartition('.')[2]}::{name.partition('[')[0]}"
    if case.find("failure") is not None or case.find("error") is not None:
        return test, binding, "failed"
    return test, binding, "passed" if case.find("skipped") is None else "skipped"


def _report(results: list[Outcome]) -> int:
    """Prints the totals. What failed without being expected, and what passed against it, is named."""
    for binding in (*BINDINGS, ""):
        counts = Counter(result for _, each, result in results if each == binding)
        told = ", ".join(f"{counts[result]} {result}" for result in ("passed", "failed", "skipped"))
        print(f"{binding or 'card and others':16} {told}")
    failed = Counter(test for test, _, result in results if result == "failed")
    for test, why in EXPECTED.items():
        print(f"expected to fail: {test} ({failed[test]}): {why}")
    surprises = sorted(test for test in failed if test not in EXPECTED)
    for test in surprises:
        print(f"NOT EXPECTED to fail: {test} ({failed[test]})")
    if not any(result == "passed" for *_, result in results):
        print("nothing has passed: the kit did not run")
        return 1
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
