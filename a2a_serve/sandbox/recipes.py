"""What each sandbox image is made from: its folder in `images/`, the images that it builds upon, and their digest."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import a2a_serve

BASE = "base"
PACKAGE = Path(a2a_serve.__file__).parent
DEMO = PACKAGE / "agents" / "demo.py"


@dataclass(frozen=True, slots=True)
class Recipe:
    """`parents` are the images its Dockerfile takes as build arguments; `extra` files join its build context."""

    name: str
    parents: dict[str, str]
    extra: dict[str, Path] = field(default_factory=dict)
    is_agent: bool = True


_RUNTIME, _AGENT = {"BASE": BASE}, {"NODE": "node", "RUNTIME": "runtime"}
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("runtime", _RUNTIME, is_agent=False),
        Recipe("node", _RUNTIME, is_agent=False),
        Recipe("demo", {"RUNTIME": "runtime"}, {"demo.py": DEMO}),
        Recipe("opencode", _AGENT),
        Recipe("claude", _AGENT),
        Recipe("codex", _AGENT),
        Recipe("gemini", _AGENT),
    )
}


def folder() -> Path:
    """`images/`: inside an installed package, else at the root of the checkout."""
    inside = PACKAGE / "images"
    return inside if inside.is_dir() else PACKAGE.parent / "images"


def in_order(name: str) -> list[Recipe]:
    """The recipe with all that it builds upon, each after its parents."""
    recipe = RECIPES[name]
    ordered: list[Recipe] = []
    for parent in recipe.parents.values():
        if parent != BASE:
            ordered += [each for each in in_order(parent) if each not in ordered]
    return [*ordered, recipe]


def files(recipe: Recipe) -> Iterator[tuple[str, bytes, int]]:
    """Name, content and mode of each file of the build context, in a fixed order."""
    root = folder() / recipe.name
    found = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    for name, path in sorted({**found, **recipe.extra}.items()):
        if "__pycache__" not in name:
            yield name, path.read_bytes(), 0o755 if name.endswith(".sh") else 0o644


def context(recipe: Recipe) -> bytes:
    """The build context as a tar archive, the same bytes for the same files."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content, mode in files(recipe):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def digest(name: str) -> str:
    """Of everything this package says about the image, its parents' included; not of the base."""
    total = hashlib.sha256()
    for recipe in in_order(name):
        for file, content, mode in files(recipe):
            total.update(f"{recipe.name}/{file} {mode:o} {len(content)}\n".encode())
            total.update(content)
    return total.hexdigest()


def cli_version() -> str:
    """The version of the official `a2a` CLI that the images carry."""
    text = (folder() / "runtime" / "a2a-cli" / "go.mod").read_text(encoding="utf-8")
    found = re.search(r"a2a-go/v2 (v\S+)", text)
    assert found, "images/runtime/a2a-cli/go.mod requires the CLI"
    return found[1]
