"""The fields that A2A marks REQUIRED in a request (`google.api.field_behavior` in a2a.proto)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from a2a.types import a2a_pb2 as pb
from a2a.utils.proto_utils import validate_proto_required_fields


def require_fields(params: Any) -> None:
    """Raises InvalidParamsError that names each one that is missing, in the SDK's words.

    The SDK finds them by reflection, 60 us a message; so it is asked only where something may be missing.
    """
    is_complete = _COMPLETE.get(type(params))
    if is_complete is None or not is_complete(params):
        validate_proto_required_fields(params)


def _has_message(params: pb.SendMessageRequest) -> bool:
    message = params.message
    has_fields = message.message_id and message.role and message.parts
    return bool(has_fields) and not params.configuration.HasField("task_push_notification_config")


def _has_id(params: Any) -> bool:
    return bool(params.id)


_COMPLETE: dict[type[Any], Callable[[Any], bool]] = {
    pb.SendMessageRequest: _has_message,
    pb.GetTaskRequest: _has_id,
    pb.CancelTaskRequest: _has_id,
    pb.SubscribeToTaskRequest: _has_id,
    pb.ListTasksRequest: lambda params: True,
}
