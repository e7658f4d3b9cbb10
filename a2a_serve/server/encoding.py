"""A2A's messages as JSON: what protobuf's MessageToDict gives, in half its time.

MessageToDict asks each message's description anew what every field is called and made of; here that is asked once.
Two things differ, both on purpose. Whole numbers in free data are written as such (`1`, where the SDK has `1.0`, which
typed callers cannot read as an integer). A number that JSON does not have (NaN, Infinity) is null instead of an error
that would make its whole task unreadable.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

from a2a.types import a2a_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

Json: TypeAlias = dict[str, Any]
Event: TypeAlias = pb.Task | pb.Message | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent
Encode: TypeAlias = Callable[[Any], Any]

EXACT = 2**53
"""Up to here a double holds every integer."""


def struct(each: Struct) -> Json:
    fields = each.fields
    return {key: value(fields[key]) for key in fields}  # its items() is a fifth slower


def value(each: Value) -> Any:
    match each.WhichOneof("kind"):
        case "string_value":
            return each.string_value
        case "number_value":
            return _number(each.number_value)
        case "bool_value":
            return each.bool_value
        case "struct_value":
            return struct(each.struct_value)
        case "list_value":
            return [value(one) for one in each.list_value.values]
    return None


def _number(each: float) -> float | int | None:
    if each.is_integer() and -EXACT <= each <= EXACT:
        return int(each)
    return each if each - each == 0 else None  # neither NaN nor infinite


def timestamp(each: Timestamp) -> str:
    """RFC 3339 in UTC, with as many digits of the second as are needed: none, 3, 6 or 9."""
    nanos = each.nanos
    if not nanos:
        return f"{_second(each.seconds)}Z"
    if nanos % 1_000_000 == 0:
        return f"{_second(each.seconds)}.{nanos // 1_000_000:03}Z"
    if nanos % 1000 == 0:
        return f"{_second(each.seconds)}.{nanos // 1000:06}Z"
    return f"{_second(each.seconds)}.{nanos:09}Z"


@lru_cache(maxsize=64)  # the tasks of a page were mostly made in a few seconds: a tenth of the page's time
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


_WELL_KNOWN: dict[str, Encode] = {
    "google.protobuf.Struct": struct,
    "google.protobuf.Value": value,
    "google.protobuf.Timestamp": timestamp,
}


def _message(kind: Any) -> Encode:
    """The encoder of one kind of message, by its descriptor. None of A2A's holds its own kind."""
    fields = {field.number: (field.json_name, _field(field)) for field in kind.fields}

    def encode(each: Any) -> Json:
        made: Json = {}
        for field, content in each.ListFields():
            name, convert = fields[field.number]
            made[name] = content if convert is None else convert(content)
        return made

    return encode


def _field(field: FieldDescriptor) -> Encode | None:
    """None where the content is JSON as it is."""
    one = _one(field)
    if not field.is_repeated:
        return one
    return list if one is None else lambda contents: [one(each) for each in contents]


def _one(field: FieldDescriptor) -> Encode | None:
    if field.message_type is not None:
        return _WELL_KNOWN.get(field.message_type.full_name) or _message(field.message_type)
    if field.enum_type is not None:
        names = {each.number: each.name for each in field.enum_type.values}
        return lambda number: names.get(number, number)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda raw: b64encode(raw).decode()
    return None


_EVENTS = {
    field.message_type: (field.json_name, _message(field.message_type)) for field in pb.StreamResponse.DESCRIPTOR.fields
}
task = _EVENTS[pb.Task.DESCRIPTOR][1]


def event(each: Event) -> Json:
    """As the one field of a SendMessageResponse or StreamResponse, which tells what it is."""
    name, encode = _EVENTS[each.DESCRIPTOR]
    return {name: encode(each)}


def page(each: pb.ListTasksResponse, *, artifacts: bool) -> Json:
    """A page of tasks: its own fields are always there; a task's artifacts, empty or not, when they were asked for
    and only then (spec 3.1.4)."""
    tasks: list[Json] = [task(one) for one in each.tasks]
    for made in tasks:
        if artifacts:
            made.setdefault("artifacts", [])
        else:
            made.pop("artifacts", None)
    return {
        "tasks": tasks,
        "nextPageToken": each.next_page_token,
        "pageSize": each.page_size,
        "totalSize": each.total_size,
    }
