"""The reference is complete and true: every setting, command, error and reason that exists is documented, no other."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import reference

import a2a_serve
from a2a_serve.cli.commands import CLIENT_EXITS
from a2a_serve.core.errors import ServeError

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"])


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """First cell (without backquotes) to the other cells, of the tables under `## heading`."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first.strip("`"): rest for first, *rest in cells}


def load_everything() -> None:
    for module in pkgutil.walk_packages(a2a_serve.__path__, "a2a_serve."):
        if not module.name.endswith(("__main__", "agents.demo")):
            importlib.import_module(module.name)


def error_statuses(base: type[ServeError] = ServeError) -> dict[str, str]:
    """Code to exit status of every error that has a code of its own, wherever it is defined."""
    found: dict[str, str] = {}
    for each in base.__subclasses__():
        if "code" in vars(each) and each.__module__.startswith("a2a_serve."):
            found[each.code] = str(each.exit_status)
        found |= error_statuses(each)
    return found


# --- what is made from the code ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", reference.MADE)
def test_made_part_is_what_the_code_says(name: str) -> None:
    page = (reference.DOCS / name).read_text(encoding="utf-8")
    assert page == reference.renew(page, reference.MADE[name]()), "run `make docs`"


def test_every_setting_says_what_it_means() -> None:
    table = [line for line in reference.settings_text().splitlines() if line.startswith("| `")]
    assert len(table) == len(reference.setting_keys())
    assert [line for line in table if line.endswith("|  |")] == []


def test_every_command_says_what_it_does() -> None:
    assert [path for path, command in reference.commands() if not command.help] == []


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="markers"):
        reference.renew("# Settings\n", "x")


def test_renewing_keeps_what_stands_around() -> None:
    page = f"before\n{reference.BEGIN}\nold\n{reference.END}\nafter\n"
    assert reference.renew(page, "new") == f"before\n{reference.BEGIN}\n\nnew\n\n{reference.END}\nafter\n"


# --- errors --------------------------------------------------------------------------------------------------------


def test_every_error_is_documented_with_its_exit_status() -> None:
    documented = rows((DOCS / "reference" / "errors.md").read_text(encoding="utf-8"), "Error codes")
    load_everything()
    exist = {code: [status, str(CLIENT_EXITS.get(code, 1))] for code, status in error_statuses().items()}
    assert {code: cells[:2] for code, cells in documented.items()} == exist


REASONS = {"_finish": 1, "_Ending": 1, "AgentLost": 0, "PromptFailed": 0, "StopProcess": 0}
"""Calls that give a turn's end its reason, and which argument that is."""


def reasons(source: str) -> set[str]:
    """The reason codes that a module gives as literals."""
    found: set[object] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            arguments = node.args[REASONS[name] :] if name in REASONS else []
            found |= {each.value for each in arguments[:1] if isinstance(each, ast.Constant)}
        elif isinstance(node, ast.Dict):
            pairs = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key is not None]
            texts = [(ast.unparse(key), value) for key, value in pairs if isinstance(value, ast.Constant)]
            found |= {value.value for key, value in texts if key == "'reason'"}
    return {each for each in found if isinstance(each, str) and each}


def test_reasons_are_found_in_code() -> None:
    calls = 'x = e.AgentLost("lost", "s")\ny = self._finish("failed", "why", "s")\nw = f("no")\n'
    assert reasons(calls + 'z = {"reason": "again", **w}') == {"lost", "why", "again"}


def test_every_reason_of_a_task_is_documented() -> None:
    documented = set(rows((DOCS / "reference" / "errors.md").read_text(encoding="utf-8"), "Why a task ended"))
    exist: set[str] = set()
    for package in ("core", "agents", "server"):
        for path in (ROOT / "a2a_serve" / package).rglob("*.py"):
            exist |= reasons(path.read_text(encoding="utf-8"))
    load_everything()
    computed = {"agent_exited", "out_of_memory"}
    assert exist - documented - set(error_statuses()) == set()
    assert documented - exist - set(error_statuses()) - computed == set()


# --- links ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    files = [link for link in links if "://" not in link]
    assert [link for link in files if not (page.parent / link).exists()] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            links = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8"))
            waiting += [page.parent / link for link in links if "://" not in link]
    assert {page.resolve() for page in DOCS.rglob("*.md")} <= reached
