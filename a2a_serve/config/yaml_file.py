"""Reads `config.yaml` into plain values, remembering the line of every key, and fills in `${VAR}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from a2a_serve.core.errors import ConfigError

KeyPath = tuple[str, ...]
"""Where a value is: its keys from the top; places in a list are numbers as text."""

_VARIABLE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class YamlFile:
    """What a file says. `raw` holds the text of values that named a variable, as it stands in the file."""

    path: Path
    tree: dict[str, Any] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    raw: dict[KeyPath, str] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """The line of the key, or of the nearest one above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read(path: Path, environment: Mapping[str, str]) -> YamlFile:
    """The file's values; empty when there is no file. Raises ConfigError naming file, line and key."""
    file = YamlFile(path)
    text = _text(path)
    try:
        root = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = " ".join((error.problem or "it cannot be read").split()).split(" To suppress")[0]
        raise ConfigError(f"{path}:{line}: this is not YAML: {problem}.", "Correct the line.") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: this is not YAML.", "Correct the file.") from error
    if root is None:
        return file
    if not isinstance(root, CommentedMap):
        raise ConfigError(
            f"{path}:1: settings are written as `section:` and below it `  key: value`.", "See the guide."
        )
    file.tree = _Reader(file, environment).mapping(root, ())
    return file


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: this is not UTF-8 text.", "Save the file as UTF-8.") from error
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.", "Check who owns the file.") from error


@dataclass(slots=True)
class _Reader:
    file: YamlFile
    environment: Mapping[str, str]

    def mapping(self, node: CommentedMap, at: KeyPath) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, value in node.items():
            place = node.lc.data.get(key) if node.lc.data else None
            line = place[0] + 1 if place else self.file.line(at)
            if not isinstance(key, str):
                self._refuse(line, at, f"the key {key!r} is not text")
            here = (*at, str(key))
            self.file.lines[here] = line
            plain[str(key)] = self.value(value, here)
        return plain

    def value(self, node: Any, at: KeyPath) -> Any:
        if isinstance(node, TaggedScalar):
            self._refuse(self.file.line(at), at, "tags (`!name`) are not understood here")
        if isinstance(node, CommentedMap):
            return self.mapping(node, at)
        if isinstance(node, CommentedSeq):
            return [self.value(item, self._item(node, number, at)) for number, item in enumerate(node)]
        if isinstance(node, str):
            return self._filled(str(node), at)
        if isinstance(node, bool) or node is None:
            return node
        for plain in (int, float):
            if isinstance(node, plain):
                return plain(node)
        return node

    def _item(self, node: CommentedSeq, number: int, at: KeyPath) -> KeyPath:
        here = (*at, str(number))
        place = node.lc.data.get(number) if node.lc.data else None
        self.file.lines[here] = place[0] + 1 if place else self.file.line(at)
        return here

    def _filled(self, text: str, at: KeyPath) -> str:
        if not _VARIABLE.search(text):
            return text

        def fill(found: re.Match[str]) -> str:
            name = found[2]
            if found[1]:
                return "${"
            if not _NAME.fullmatch(name):
                self._refuse(
                    self.file.line(at), at, f"${{{name}}} does not name a variable (write $${{ for a plain ${{)"
                )
            if name not in self.environment:
                self._refuse(self.file.line(at), at, f"the environment variable {name} is not set")
            return self.environment[name]

        filled = _VARIABLE.sub(fill, text)
        self.file.raw[at] = text
        return filled

    def _refuse(self, line: int, at: KeyPath, problem: str) -> None:
        where = f"{'.'.join(at)}: " if at else ""
        raise ConfigError(f"{self.file.path}:{line}: {where}{problem}.", "Correct the line.")
