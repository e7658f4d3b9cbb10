"""Which protobuf messages a caller may send: the same rules as for JSON (`json_hygiene`), for gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from a2a_serve.server.json_hygiene import JsonLimits, check_params
from a2a_serve.server.refusals import bad_params, bad_request

_IDS = frozenset({"message_id", "task_id", "context_id", "reference_task_ids"})
_MESSAGES = frozenset({"message", "request"})
_PARTS = frozenset({"parts", "content"})
_LEAST_BYTES = 2
"""A value takes at least so many, so a smaller message cannot hold more values than allowed."""


def check_message(request: Message, raw: bytes, limits: JsonLimits) -> None:
    """A request of v1.0 or v0.3, with the bytes it came as. Raises Refused: an id, the role, too many parts or values,
    U+0000 in a text."""
    if b"\0" in raw or len(raw) > _LEAST_BYTES * limits.values:
        _check_texts(request, limits)
    check_params(_outline(request), limits)


def _check_texts(request: Message, limits: JsonLimits) -> None:
    for count, (path, text) in enumerate(_values(request), 1):
        if count > limits.values:
            raise bad_request(f"The message has more than {limits.values} values.")
        if "\0" in text:
            raise bad_params(path, f"{path} holds the character U+0000.")


def _outline(message: Message) -> dict[str, Any]:
    """What `check_params` looks at, in its own terms; nothing of the content."""
    outline: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.name in _IDS:
            outline[field.name] = list(value) if field.is_repeated else value
        elif field.name in _MESSAGES:
            outline[field.json_name] = {**_outline(value), "role": value.role}
        elif field.name in _PARTS:
            outline[field.name] = [None] * len(value)
    return outline


def _values(message: Message) -> Iterator[tuple[str, str]]:
    """Every value of the message with its path: its text, or nothing where it is no text."""
    todo: list[tuple[str, Any]] = [("", message)]
    while todo:
        path, each = todo.pop()
        if not isinstance(each, Message):
            yield path, each if isinstance(each, str) else ""
            continue
        yield path, ""
        for field, value in each.ListFields():
            todo += _children(f"{path}.{field.json_name}" if path else field.json_name, field, value)


def _children(path: str, field: FieldDescriptor, value: Any) -> list[tuple[str, Any]]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return [(path, key) for key in value] + [(path, value[key]) for key in value]
    if field.is_repeated:
        return [(f"{path}[{index}]", each) for index, each in enumerate(value)]
    return [(path, value)]
