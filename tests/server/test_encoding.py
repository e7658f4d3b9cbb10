"""The same JSON as protobuf's own, for whatever a message can hold."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pytest
from a2a.server.routes.common import serialize_list_tasks_response
from a2a.types import a2a_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_serve.server import encoding


def parse(value: Any, into: Message) -> Message:
    return ParseDict(value, into)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60).map(float)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
SECONDS = st.integers(-62_135_596_800, 253_402_300_799)
NANOS = st.integers(0, 999_999_999) | st.sampled_from([0, 1_000, 999_000, 1_000_000, 120_000_000])
WELL_KNOWN: dict[str, st.SearchStrategy[Any]] = {
    "google.protobuf.Struct": st.dictionaries(TEXT, JSON_VALUES, max_size=3).map(lambda each: parse(each, Struct())),
    "google.protobuf.Value": JSON_VALUES.map(lambda each: parse(each, Value())) | st.just(Value()),
    "google.protobuf.Timestamp": st.builds(lambda s, n: Timestamp(seconds=s, nanos=n), SECONDS, NANOS),
}
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: TEXT,
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=8),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT32: st.integers(-5, 2**31 - 1),
    FieldDescriptor.TYPE_ENUM: st.integers(0, 12),  # some of them have no name
}


def one_field(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is None:
        return SCALARS[field.type]
    known = WELL_KNOWN.get(field.message_type.full_name)
    return known if known is not None else messages(GetMessageClass(field.message_type), depth - 1)


@st.composite
def messages(draw: st.DrawFn, kind: type[Any], depth: int = 4) -> Any:
    """A message of `kind` with any of its fields set, to whatever they can hold."""
    made = kind()
    for field in kind.DESCRIPTOR.fields:
        if depth == 0 or draw(st.booleans()):
            continue
        content = one_field(field, depth)
        if field.is_repeated:
            getattr(made, field.name).extend(draw(st.lists(content, max_size=2)))
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(draw(content))
        else:
            setattr(made, field.name, draw(content))
    return made


EVENTS: list[type[Message]] = [pb.Task, pb.Message, pb.TaskStatusUpdateEvent, pb.TaskArtifactUpdateEvent]


@pytest.mark.parametrize("kind", EVENTS)
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_an_event_is_protobufs_own_json(kind: type[Message], data: st.DataObject) -> None:
    each = data.draw(messages(kind))
    whole = pb.StreamResponse()
    field = next(field for field in pb.StreamResponse.DESCRIPTOR.fields if field.message_type is kind.DESCRIPTOR)
    getattr(whole, field.name).CopyFrom(each)

    assert encoding.event(each) == MessageToDict(whole)
    assert orjson.loads(orjson.dumps(encoding.event(each))) == json.loads(json.dumps(MessageToDict(whole)))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_task_is_protobufs_own_json(data: st.DataObject) -> None:
    each = data.draw(messages(pb.Task))

    assert encoding.task(each) == MessageToDict(each)


@given(st.data(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_page_means_what_the_sdk_says(data: st.DataObject, artifacts: bool) -> None:
    page = data.draw(messages(pb.ListTasksResponse, 3))
    sdk = serialize_list_tasks_response(page, artifacts)

    made = encoding.page(page, artifacts=artifacts)
    assert ParseDict(made, pb.ListTasksResponse()) == ParseDict(sdk, pb.ListTasksResponse())
    assert set(made) == {"tasks", "nextPageToken", "pageSize", "totalSize"}
    assert all(("artifacts" in task) is artifacts for task in made["tasks"])


def number(each: float) -> str:
    return orjson.dumps(encoding.value(Value(number_value=each))).decode()


@pytest.mark.parametrize(
    ("given", "written"),
    [(1.0, "1"), (-3.0, "-3"), (0.5, "0.5"), (2.0**53, "9007199254740992"), (1e300, "1e+300")],
)
def test_whole_numbers_are_whole(given: float, written: str) -> None:
    assert number(given) == written


@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_in_json_is_null(given: float) -> None:
    assert number(given) == "null"
