"""The first `config.yaml`: every setting with its description and default, made from the settings themselves."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from a2a_serve.config.directory import AgentDir
from a2a_serve.config.settings import Settings
from a2a_serve.core.errors import DirectoryNotWritable

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _./-]*")
_NOT_PLAIN = re.compile(r"(?i)null|true|false|~|[\d.]+")
_HEADER = """\
# Settings of a2a-serve for this folder. Nothing secret belongs here: the file is safe to commit.
# A line such as `#port: 41241` shows a default; take the # away to change it. ${VARIABLE} reads the environment.
# Stronger than this file: variables such as A2A_SERVE_LISTEN__PORT=8000, then flags. `a2a-serve config show` tells.
"""


def write_first_config(directory: AgentDir, chosen: Mapping[str, Any]) -> bool:
    """Write the file unless there is one; tells whether it did. `chosen` (by dotted name) is set, all else is shown.

    Raises DirectoryNotWritable.
    """
    text = render(chosen, {"card.name": directory.root.name})
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(directory.config, flags, 0o644)
    except FileExistsError:
        return False
    except OSError as error:
        hint = "Check who owns the folder."
        raise DirectoryNotWritable(f"Cannot write {directory.config}: {error.strerror}.", hint) from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        owner = directory.own.stat()
        if os.geteuid() == 0 and owner.st_uid != 0:
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
    return True


def render(chosen: Mapping[str, Any], shown: Mapping[str, Any] | None = None) -> str:
    """The file's text. `chosen` is set; `shown` replaces a default in what is only shown."""
    defaults = Settings().model_dump(mode="json")
    blocks = [_HEADER]
    for name, field in Settings.model_fields.items():
        blocks.append(f"\n# {field.description}\n{name}:\n" + _section(name, defaults[name], chosen, shown or {}))
    return "".join(blocks)


def _section(section: str, values: Mapping[str, Any], chosen: Mapping[str, Any], shown: Mapping[str, Any]) -> str:
    model = Settings.model_fields[section].annotation
    fields = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}
    lines = []
    for key, default in values.items():
        dotted = f"{section}.{key}"
        if key in fields:
            lines.append(f"  # {fields[key].description}\n")
        mark, value = ("", chosen[dotted]) if dotted in chosen else ("#", shown.get(dotted, default))
        lines.append(f"  {mark}{key}: {_written(value)}\n")
    return "".join(lines)


def _written(value: Any) -> str:
    """On one line: JSON, which is YAML, with text unquoted where that is safe."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and not _NOT_PLAIN.fullmatch(value) and not value.endswith(" ")
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_written(each)}" for key, each in value.items() if each is not None) + "}"
    if isinstance(value, list):
        return (
            "["
            + ", ".join(
                json.dumps(each, ensure_ascii=False) if isinstance(each, str) else _written(each) for each in value
            )
            + "]"
        )
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)
