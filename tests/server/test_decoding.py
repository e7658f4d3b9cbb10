"""The same message, or the same refusal, as ParseDict gives, for requests that are right, odd and wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from fakes.protobufs import JSON_VALUES, messages
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_serve.server import decoding

REQUESTS: list[type[Any]] = [
    pb.SendMessageRequest,
    pb.SubscribeToTaskRequest,
    pb.GetTaskRequest,
    pb.ListTasksRequest,
    pb.CancelTaskRequest,
]


def theirs(body: Any, kind: type[Any]) -> Any:
    return ParseDict(body, kind(), ignore_unknown_fields=True)


def outcome(parse: Callable[[Any, type[Any]], Any], body: Any, kind: type[Any]) -> object:
    """Bytes too: they tell an empty message that is there from one that is not."""
    try:
        made = parse(body, kind)
    except Exception as error:
        return type(error)
    return made.SerializeToString(deterministic=True), MessageToDict(made)


def places(body: Any) -> list[tuple[Any, Any]]:
    """Every container in the body with each of its keys."""
    keys = body if isinstance(body, dict) else range(len(body)) if isinstance(body, list) else ()
    return [place for key in keys for place in ((body, key), *places(body[key]))]


@pytest.mark.parametrize("kind", REQUESTS)
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_right_request(kind: type[Any], data: st.DataObject) -> None:
    by_name = data.draw(st.booleans())
    body = MessageToDict(data.draw(messages(kind)), preserving_proto_field_name=by_name)

    assert outcome(decoding.parse, body, kind) == outcome(theirs, body, kind)


@pytest.mark.parametrize("kind", REQUESTS)
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_request_with_something_else_in_some_place(kind: type[Any], data: st.DataObject) -> None:
    body = MessageToDict(data.draw(messages(kind)))
    something = JSON_VALUES | st.integers() | st.sampled_from(["ROLE_USER", "ROLE_AGENT", "1", "true", "AAE=", "-"])
    container, key = data.draw(st.sampled_from([(body, "new"), *places(body)]))
    container[key] = data.draw(something)

    assert outcome(decoding.parse, body, kind) == outcome(theirs, body, kind)


MESSAGE = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


@pytest.mark.parametrize(
    "body",
    [
        {"message": MESSAGE, "configuration": {}},
        {"message": {**MESSAGE, "parts": [{"text": ""}, {}]}},
        {"message": {**MESSAGE, "parts": [{"text": "a", "url": "b"}]}},
        {"message": {**MESSAGE, "message_id": "m2"}},
        {"message": {**MESSAGE, "role": 1}},
        {"message": {**MESSAGE, "contextId": None}},
        {"message": MESSAGE, "configuration": {"historyLength": 2**31}},
        {"message": MESSAGE, "configuration": {"historyLength": True}},
        {"message": MESSAGE, "configuration": {"historyLength": 1.0}},
        {"message": MESSAGE, "configuration": {"returnImmediately": "true"}},
        {"message": [MESSAGE]},
    ],
)
def test_what_is_nearly_plain(body: Any) -> None:
    assert outcome(decoding.parse, body, pb.SendMessageRequest) == outcome(theirs, body, pb.SendMessageRequest)


def test_a_plain_request_needs_no_help(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **options: Any) -> Any:
        raise AssertionError("asked ParseDict")

    monkeypatch.setattr(decoding, "ParseDict", refuse)
    made = decoding.parse({"message": MESSAGE, "configuration": {"historyLength": 3}}, pb.SendMessageRequest)

    assert (made.message.parts[0].text, made.message.role, made.configuration.history_length) == ("hello", 1, 3)
