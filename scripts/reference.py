"""usage: python scripts/reference.py: write the parts of docs/reference that are made from the code.

Such a part stands between two marker lines; tests/test_docs.py fails when it is not what the code says.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
from pydantic import BaseModel, PlainSerializer
from pydantic.fields import FieldInfo

from a2a_serve.cli import main as program
from a2a_serve.config import Settings

DOCS = Path(__file__).parents[1] / "docs" / "reference"
BEGIN = "<!-- made by `make docs`: begin -->"
END = "<!-- made by `make docs`: end -->"


# --- settings ------------------------------------------------------------------------------------------------------


def settings_text() -> str:
    """One table for each section of the settings file: key, values, default, meaning."""
    defaults = Settings().model_dump(mode="json")
    return "\n".join(_section_text(name, field, defaults[name]) for name, field in Settings.model_fields.items())


def setting_keys() -> list[str]:
    """Every dotted key that the settings file may have; `*` stands for a name of the owner's choice."""
    return [key for name, field in Settings.model_fields.items() for key, _ in _leaves(name, field)]


def _section_text(name: str, field: FieldInfo, default: Any) -> str:
    said = field.description or ""
    if get_origin(field.annotation) is dict and default:
        said += f" Known without being set: {', '.join(f'`{each}`' for each in default)}."
    rows = "".join(_row(key, leaf, _default_text(key, leaf, {name: default})) for key, leaf in _leaves(name, field))
    return f"### {name}\n\n{said}\n\n| key | values | default | meaning |\n|---|---|---|---|\n{rows}"


def _row(key: str, leaf: FieldInfo, default: str) -> str:
    is_size = any(isinstance(each, PlainSerializer) for each in leaf.metadata)
    values = "size, such as `512m`" if is_size else _type_text(leaf.annotation)
    cells = (f"`{key}`", values, default, leaf.description or "")
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |\n"


def _leaves(key: str, field: FieldInfo) -> Iterator[tuple[str, FieldInfo]]:
    model, step = _inner_model(field.annotation)
    if model is None:
        yield key, field
        return
    for name, inner in model.model_fields.items():
        yield from _leaves(f"{key}{step}.{inner.alias or name}", inner)


def _inner_model(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model inside an annotation and the step that leads to it: '' itself, `.*` in a mapping, `[]` in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    steps: dict[Any, str] = {dict: ".*", list: "[]", tuple: "[]"}
    step = steps.get(get_origin(annotation), "")
    for argument in get_args(annotation):
        model, inner = _inner_model(argument)
        if model is not None:
            return model, step + inner
    return None, ""


def _type_text(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type_text(each) for each in arguments if each is not type(None))
    if origin in (list, tuple, set, frozenset):
        return f"list of {_type_text(arguments[0])}"
    if origin is dict:
        return f"mapping of names to {_type_text(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{each.value}`" for each in annotation)
    names: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "`true`, `false`"}
    return names.get(annotation, "text")


def _default_text(key: str, leaf: FieldInfo, defaults: dict[str, Any]) -> str:
    value: Any = defaults
    for step in key.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if value is None and not leaf.is_required():
        value = leaf.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, list | tuple):
        return ", ".join(f"`{each}`" for each in value)
    if value in (None, "", {}):
        return "must be set" if leaf.is_required() else ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


# --- commands ------------------------------------------------------------------------------------------------------


def commands_text() -> str:
    """Each command with its usage, help and options, as `--help` gives them."""
    return "\n".join(_command_text(path, command) for path, command in commands())


def commands() -> list[tuple[str, click.Command]]:
    """Every command that can be called, by its words after `a2a-serve`, hidden ones left out."""
    return list(_walk("", program))


def _walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if command.hidden:
        return
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is not None:
            yield from _walk(f"{path} {name}".strip(), inner)


def _command_text(path: str, command: click.Command) -> str:
    """Usage, help and options; the exit codes, the same for many, stand on the page once."""
    top = click.Context(program, info_name="a2a-serve", terminal_width=100, **program.context_settings)
    context = click.Context(command, top, info_name=path)
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    command.format_options(context, formatter)
    return f"### {path}\n\n```text\n{formatter.getvalue().rstrip()}\n```\n"


# --- pages ---------------------------------------------------------------------------------------------------------

MADE: dict[str, Callable[[], str]] = {"settings.md": settings_text, "commands.md": commands_text}


def renew(page: str, made: str) -> str:
    """The page with what stands between its markers replaced. Raises ValueError when it has no such pair."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError("The page has no pair of markers.")
    return f"{head}{BEGIN}\n\n{made.strip()}\n\n{END}{tail}"


def main() -> None:
    for name, make in MADE.items():
        path = DOCS / name
        path.write_text(renew(path.read_text(encoding="utf-8"), make()), encoding="utf-8")


if __name__ == "__main__":
    main()
