"""Required fields: the same verdict and words as the SDK's validator, for any request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from a2a.utils.proto_utils import validate_proto_required_fields
from fakes.protobufs import messages
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_serve.server.required import require_fields

REQUESTS = [
    pb.SendMessageRequest,
    pb.GetTaskRequest,
    pb.CancelTaskRequest,
    pb.SubscribeToTaskRequest,
    pb.ListTasksRequest,
    pb.TaskPushNotificationConfig,
]


def verdict(check: Callable[[Any], None], request: Any) -> object:
    try:
        check(request)
    except InvalidParamsError as error:
        return str(error), error.data
    return None


@pytest.mark.parametrize("kind", REQUESTS)
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_the_sdks_verdict(kind: type[Any], data: st.DataObject) -> None:
    request = data.draw(messages(kind))

    assert verdict(require_fields, request) == verdict(validate_proto_required_fields, request)


@pytest.mark.parametrize("missing", ["message_id", "role", "parts"])
def test_each_missing_field_is_named(missing: str) -> None:
    request = pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="a")]))
    require_fields(request)
    request.message.ClearField(missing)

    with pytest.raises(InvalidParamsError) as refused:
        require_fields(request)
    assert refused.value.data is not None
    assert [each["field"] for each in refused.value.data["errors"]] == [f"message.{missing}"]
