"""usage: python scripts/constraints.py: write constraints.txt from what is installed, our dependencies only."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

START = ("a2a-serve[dev]", "hatchling", "editables")
TARGET = Path(__file__).parents[1] / "constraints.txt"


def closure(start: tuple[str, ...]) -> dict[str, str]:
    """Name to installed version of everything that `start` needs on this machine, extras followed."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(each) for each in start]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for extra in ("", *wanted.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                found[name] = version(name)
                waiting += _needs(name, extra)
    return found


def _needs(name: str, extra: str) -> list[Requirement]:
    needed = [Requirement(each) for each in requires(name) or []]
    return [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]


def main() -> None:
    found = closure(START)
    del found["a2a-serve"]
    lines = [f"{name}=={found[name]}\n" for name in sorted(found)]
    TARGET.write_text("# Written by `make constraints`: the versions that the tests passed with.\n" + "".join(lines))


if __name__ == "__main__":
    try:
        main()
    except PackageNotFoundError as error:
        sys.exit(f"{error.name} is not installed in .venv: run make venv .venv/dev first.")
