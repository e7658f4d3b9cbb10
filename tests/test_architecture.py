"""The import law of docs/architecture.md: who may import whom, where each third party lives, how big things may grow.

`breaches` is the law as a function of a module's name and source, so the law itself is tested on sources that break it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "a2a_serve"

RANKS = (
    ("core", "log"),
    ("config", "store", "safe_http"),
    ("auth", "sandbox", "listeners"),
    ("agents",),
    ("server",),
    ("messengers", "outbound", "schedules", "backups"),
    ("app",),
    ("cli",),
)
RANK = {package: rank for rank, packages in enumerate(RANKS) for package in packages}

HOMES = {
    "a2a": ("server", "outbound", "store.tasks"),
    "click": ("cli",),
    "docker": ("sandbox.docker", "sandbox.images"),
    "grpc": ("server.grpc", "listeners.grpc", "outbound"),
    "httptools": ("listeners",),
    "rich": ("cli",),
    "sqlite3": ("store",),
    "uvicorn": ("listeners",),
}
"""Third parties (and SQLite), and the modules or packages that may import them."""

IMPORTERS = {"app": ("cli.start",)}
"""Of our own packages: those that only these modules may import."""

IMPURE = frozenset({"asyncio", "os", "pathlib", "random", "secrets", "socket", "subprocess", "threading", "time"})
"""What `core` may not import: it has no sockets, files or clock; those are parameters."""

FAMILIES = ("auth", "listeners", "messengers", "sandbox")
"""Plug-in families: the modules that their KINDS name may not import each other."""

STANDALONE = {"agents.demo": 850}
"""Scripts that run by their path inside an image: the standard library only, and one file, so each has its own cap."""

FILE_LINES = 400
FUNCTION_LINES = 50


def module_name(path: Path) -> str:
    """`a2a_serve/store/db.py` is `store.db`; a package's `__init__.py` is the package, the root's is ''."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


SOURCES = {module_name(path): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


def imports(tree: ast.AST) -> Iterator[str]:
    """Every imported dotted name, wherever the import stands; a relative one starts with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            yield from (f"{start}.{alias.name}" for alias in node.names)


def is_within(module: str, homes: tuple[str, ...]) -> bool:
    return any(module == home or module.startswith(f"{home}.") for home in homes)


def plugins(family: str, source: str) -> set[str]:
    """The modules (`sandbox.docker`) that the family's KINDS name, read without importing anything."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "KINDS":
                places: dict[str, str] = ast.literal_eval(node.value)
                return {place.partition(":")[0].removeprefix("a2a_serve.") for place in places.values()}
    raise AssertionError(f"{family}/__init__.py has no KINDS")


SIBLINGS = {family: plugins(family, SOURCES[family]) for family in FAMILIES if family in SOURCES}


def own_import_breaches(module: str, target: str) -> Iterator[str]:
    """`target` is one of our own modules, without the leading `a2a_serve.`."""
    package, other = module.partition(".")[0], target.partition(".")[0]
    if other not in RANK:
        return  # `__version__` and the like, of the root
    if package != other and RANK[other] >= RANK[package]:
        yield f"{module} imports {target}: arrows point down the ranks"
    if other != package and not is_within(module, IMPORTERS.get(other, (module,))):
        yield f"{module} imports {target}: only {', '.join(IMPORTERS[other])} may"
    siblings = SIBLINGS.get(package, set())
    if module in siblings and any(target != module and is_within(target, (each,)) for each in siblings - {module}):
        yield f"{module} imports its sibling {target}"


def import_breaches(module: str, target: str) -> Iterator[str]:
    top, _, rest = target.partition(".")
    if not top:
        yield f"{module} imports {target}: no relative imports"
    elif top == "a2a_serve":
        yield from own_import_breaches(module, rest)
    elif top in HOMES and not is_within(module, HOMES[top]):
        yield f"{module} imports {top}, which lives in {', '.join(HOMES[top])}"
    if module in STANDALONE and top not in sys.stdlib_module_names:
        yield f"{module} imports {top}: it runs by its path, with the standard library only"
    if module.partition(".")[0] == "core" and (top in IMPURE or top not in {"a2a_serve", *sys.stdlib_module_names}):
        yield f"{module} imports {top}: core knows no third party, no sockets, no files, no clock"


def size_breaches(module: str, source: str, tree: ast.AST) -> Iterator[str]:
    lines, most = len(source.splitlines()), STANDALONE.get(module, FILE_LINES)
    if lines > most:
        yield f"{module} has {lines} lines, more than {most}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines >= FUNCTION_LINES:
                yield f"{module}.{node.name} has {lines} lines, not less than {FUNCTION_LINES}"


def breaches(module: str, source: str) -> list[str]:
    """Every way in which this module breaks the law."""
    tree = ast.parse(source)
    found = [] if module.partition(".")[0] in {"", "__main__", *RANK} else [f"{module} has no rank"]
    if not found and module not in {"", "__main__"}:
        found = [each for target in imports(tree) for each in import_breaches(module, target)]
    return [*found, *size_breaches(module, source, tree)]


def dependencies(module: str, source: str, modules: set[str]) -> set[str]:
    """The modules of ours that this one imports: `from a2a_serve.store import db` is `store.db`, not `store`."""
    found = set()
    for target in imports(ast.parse(source)):
        name = target.removeprefix("a2a_serve.")
        while name and name not in modules:
            name = name.rpartition(".")[0]
        if target.startswith("a2a_serve.") and name and name != module:
            found.add(name)
    return found


def cycle(sources: dict[str, str]) -> list[str]:
    """Modules that import each other in a ring, lazy imports and those for types only included; [] for none."""
    graph = {module: dependencies(module, source, set(sources)) for module, source in sources.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring: list[str] = error.args[1]
        return ring
    return []


@pytest.mark.parametrize("module", SOURCES)
def test_each_module_keeps_the_law(module: str) -> None:
    assert breaches(module, SOURCES[module]) == []


def test_no_ring_of_imports() -> None:
    assert cycle(SOURCES) == []


def test_the_law_names_no_ghosts() -> None:
    """A plug-in that KINDS names exists, so renaming a file cannot switch the sibling rule off."""
    assert {each for siblings in SIBLINGS.values() for each in siblings} <= set(SOURCES)


@pytest.mark.parametrize(
    ("module", "source", "words"),
    [
        ("store.db", "from a2a_serve.server import a2a", "arrows point down"),
        ("store.db", "def later() -> None:\n    import a2a_serve.config", "arrows point down"),
        ("sandbox.docker", "from a2a_serve.auth import Evidence", "arrows point down"),
        ("core.turn", "from a2a_serve import log", "arrows point down"),
        ("cli.send", "from a2a_serve import app", "only cli.start may"),
        ("sandbox.docker", "from a2a_serve.sandbox import local", "sibling"),
        ("sandbox.docker", "from a2a_serve.sandbox.local import LocalSandbox", "sibling"),
        ("server.a2a", "from . import card", "no relative imports"),
        ("server.a2a", "import docker", "lives in sandbox.docker"),
        ("store.db", "from a2a.types import Task", "lives in"),
        ("agents.pool", "import uvicorn", "lives in listeners"),
        ("core.model", "import pydantic", "core knows no third party"),
        ("core.turn", "import time", "no clock"),
        ("agents.demo", "from a2a_serve.core import model", "standard library only"),
        ("agents.demo", "import httpx", "standard library only"),
        ("helpers.text", "", "has no rank"),
        ("store.db", "x = 1\n" * 401, "has 401 lines"),
        ("store.db", "def long() -> None:\n" + "    x = 1\n" * 49, "has 50 lines"),
    ],
)
def test_a_breach_is_caught(module: str, source: str, words: str) -> None:
    found = breaches(module, source)
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cli.start", "from a2a_serve import app\nimport click"),
        ("server.a2a", "from a2a_serve.server import card\nfrom a2a.types import Task"),
        ("sandbox.docker", "from a2a_serve.sandbox import SandboxSpec\nimport docker"),
        ("core.turn", "from a2a_serve.core import events\nfrom dataclasses import dataclass"),
        ("", "import docker"),
    ],
)
def test_what_is_allowed_is_no_breach(module: str, source: str) -> None:
    assert breaches(module, source) == []


def test_a_ring_is_caught() -> None:
    ring = {
        "store": "",
        "store.a": "from a2a_serve.store import b",
        "store.b": "def later() -> None:\n    from a2a_serve.store.c import thing",
        "store.c": "import a2a_serve.store.a",
    }
    assert set(cycle(ring)) == {"store.a", "store.b", "store.c"}
    assert cycle({**ring, "store.c": "import a2a_serve.store"}) == []
