"""A pytest plugin that runs inside a copy of the official A2A test kit, 1.0: gives its clients a token, and puts right
what in it is older than specification 1.0.1 (docs/conformance.md tells each). None of the kit's own code is changed.
"""

from __future__ import annotations

import functools
import itertools
from importlib import import_module
from typing import Any

import pytest
from conformance_sign import Signer

HTTP_CONTENT_TYPE = "test_content_type_not_supported_returns_415"


def pytest_configure(config: pytest.Config) -> None:
    Signer(config.getoption("--sut-host")).install()
    _correct_statuses()
    _correct_requirements()
    _number_messages()


def _correct_statuses() -> None:
    """Specification 1.0.1, section 5.4: six statuses have changed since the kit was written."""
    base = import_module("tck.requirements.base")
    corrections: dict[str, dict[str, Any]] = {
        "TASK_NOT_CANCELABLE_ERROR": {"http_status": 400},
        "PUSH_NOTIFICATION_NOT_SUPPORTED_ERROR": {"grpc_status": "FAILED_PRECONDITION"},
        "UNSUPPORTED_OPERATION_ERROR": {"grpc_status": "FAILED_PRECONDITION"},
        "CONTENT_TYPE_NOT_SUPPORTED_ERROR": {"http_status": 400},
        "INVALID_AGENT_RESPONSE_ERROR": {"http_status": 500},
        "VERSION_NOT_SUPPORTED_ERROR": {"grpc_status": "FAILED_PRECONDITION"},
    }
    for name, fields in corrections.items():
        for field, value in fields.items():
            setattr(getattr(base, name), field, value)


def _correct_requirements() -> None:
    """CORE-SEND-003 describes an error in words, and then expects success."""
    requirement = import_module("tck.requirements.registry").get_requirement_by_id("CORE-SEND-003")
    requirement.expected_error = import_module("tck.requirements.base").CONTENT_TYPE_NOT_SUPPORTED_ERROR


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """HTTP's own Content-Type is another matter than the type of a message's part: 415 stands (RFC 9110 15.5.16)."""
    if item.name != HTTP_CONTENT_TYPE:
        return (yield)
    statuses = import_module("tck.validators.http_json.error_validator").HTTP_JSON_ERROR_STATUS
    statuses["ContentTypeNotSupportedError"] = 415
    try:
        return (yield)
    finally:
        statuses["ContentTypeNotSupportedError"] = 400


def _number_messages() -> None:
    """A message id is sent once: the kit sends the same one from test to test, which is the same message again."""
    numbers = itertools.count(1)

    def numbered(send: Any) -> Any:
        @functools.wraps(send)
        def wrapper(self: Any, message: dict[str, Any], *rest: Any, **options: Any) -> Any:
            if message_id := message.get("messageId"):
                message = {**message, "messageId": f"{message_id}-{next(numbers)}"}
            return send(self, message, *rest, **options)

        return wrapper

    for kind in ("Grpc", "HttpJson", "JsonRpc"):
        client = getattr(import_module("tck.transport"), f"{kind}Client")
        for name in ("send_message", "send_streaming_message"):
            setattr(client, name, numbered(getattr(client, name)))
