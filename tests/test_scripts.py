"""The way from a fresh machine: what the scripts say where they cannot go on, and that versions are pinned."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]

USER = "id() { echo 1000; }; "
"""Stands for `id`: the scripts then see an ordinary user, whoever runs the tests."""
ON_DEBIAN = "is_debian() { return 0; }; is_root() { return 0; }; "
ELSEWHERE = "is_debian() { return 1; }; "


def run_shell(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f"set -euo pipefail; . scripts/debian.sh; {words}"]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)


def test_a_user_on_debian_gets_the_one_command() -> None:
    done = run_shell(f"{USER} is_debian() {{ return 0; }}; need 'the Docker engine' docker.io")
    assert done.returncode == 1
    assert "Missing: the Docker engine. Run this" in done.stderr
    assert "sudo apt-get update && sudo apt-get install -y docker.io\n" in done.stderr


def test_elsewhere_the_other_way_is_named() -> None:
    done = run_shell(f"{ELSEWHERE} NEED_HINT='Or: SANDBOX=local make start'; need Docker docker.io; echo went on")
    assert done.returncode == 1
    assert "package manager" in done.stderr
    assert "Or: SANDBOX=local make start" in done.stderr
    assert "went on" not in done.stdout


def test_root_on_debian_is_told_what_is_installed() -> None:
    done = run_shell(f"{ON_DEBIAN} apt-get() {{ echo noise; }}; need 'the Docker engine' docker.io tini")
    assert (done.returncode, done.stdout) == (
        0,
        "== Installing the Docker engine from Debian's packages: docker.io tini\n",
    )


def test_a_failed_install_shows_why() -> None:
    done = run_shell(f"{ON_DEBIAN} apt-get() {{ echo 'E: no space'; return 100; }}; need Docker docker.io")
    assert done.returncode == 1
    assert "E: no space" in done.stderr
    assert "could not install Docker" in done.stderr


def test_empty_next_steps_leave_no_empty_line() -> None:
    done = run_shell("stop 'It failed.' '' 'Do this.'")
    assert done.stderr == "\n!! It failed.\n   Do this.\n"


@pytest.mark.parametrize("goal", ["start", "test"])
def test_an_engine_of_the_users_own_is_never_replaced(goal: str, tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/none.sock"
    environment = {**os.environ, "DOCKER_HOST": address, "MAKE_GOAL": goal}
    done = subprocess.run([ROOT / "scripts" / "engine.sh"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"No Docker engine answers at DOCKER_HOST={address}." in done.stderr
    assert f"SANDBOX=local make {goal}" in done.stderr


def test_conformance_without_a_kit_says_how() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "KIT"}
    command = ["make", "-o", ".venv/dev", "conformance"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "usage: make conformance KIT=path" in done.stderr


@pytest.mark.docker
def test_a_missing_image_says_how_to_build_it(tmp_path: Path) -> None:
    words = [".venv/bin/python", "scripts/image_file.py", "a2a-serve/no-such-kind", "/bin/true", str(tmp_path / "x")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "There is no image of a2a-serve/no-such-kind here. Build it: make images\n"
    assert list(tmp_path.iterdir()) == []


# --- versions ------------------------------------------------------------------------------------------------------


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [re.fullmatch(r"([a-z0-9-]+)==([\w.+!-]+)", line) for line in lines if not line.startswith("#")]
    assert all(pins), "constraints.txt holds exact versions only"
    return {pin[1]: pin[2] for pin in pins if pin}


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"].get("optional-dependencies", {})
    words = [*project["project"]["dependencies"], *(each for extra in extras.values() for each in extra)]
    wanted = [Requirement(each) for each in [*words, *project["build-system"]["requires"]]]
    pins = constraints()
    assert [each.name for each in wanted if canonicalize_name(each.name) not in pins] == []
    assert [str(each) for each in wanted if pins[canonicalize_name(each.name)] not in each.specifier] == []


def test_no_lock_file_names_an_address() -> None:
    """A lock file would name the host that it was made with."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [each for each in tracked if each.endswith(("package-lock.json", "npm-shrinkwrap.json", "yarn.lock"))] == []


def test_node_packages_are_exact() -> None:
    package = json.loads((ROOT / "tests" / "acceptance" / "js" / "package.json").read_text(encoding="utf-8"))
    assert [each for each in package["dependencies"].values() if not re.fullmatch(r"\d+\.\d+\.\d+", each)] == []
