"""The same JSON as protobuf's own, for whatever a message can hold."""

from __future__ import annotations

import json
import math

import orjson
import pytest
from a2a.server.routes.common import serialize_list_tasks_response
from a2a.types import a2a_pb2 as pb
from fakes.protobufs import messages
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_serve.server import encoding

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
