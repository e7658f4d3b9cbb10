from __future__ import annotations

import json
import re
import time
from typing import Any

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from a2a_serve.server.json_hygiene import JsonLimits, check_call, check_params, parse
from a2a_serve.server.refusals import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, Refused

LIMITS = JsonLimits()
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner)
    ),
    max_leaves=30,
)


def refusal(body: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        parse(body, LIMITS)
    return caught.value


@given(VALUES)
def test_every_clean_value_passes_unchanged(value: Any) -> None:
    assert parse(orjson.dumps(value), LIMITS) == value
    assert parse(json.dumps(value).encode(), LIMITS) == value


@given(st.binary() | st.text(alphabet='[]{},:"\\\\u0019', max_size=200).map(str.encode))
def test_any_bytes_are_parsed_as_json_or_refused(body: bytes) -> None:
    """Against the standard library's parser, which takes more: those differences have their own tests below."""
    assume(not re.search(rb"[0-9]{16}|[eNI]|\\\\u", body))
    try:
        expected = json.loads(body.decode("utf-8"))
    except ValueError:
        refusal(body)
        return
    assert parse(body, LIMITS) == expected


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", PARSE_ERROR),
        (b"{", PARSE_ERROR),
        (b"nonsense", PARSE_ERROR),
        (b'{"a":1}{"b":2}', PARSE_ERROR),
        (b'\xef\xbb\xbf{"a":1}', PARSE_ERROR),
        (b'{"a":"\xff"}', PARSE_ERROR),
        (b'{"a":"\xc0\x80"}', PARSE_ERROR),
        (b'{"a":"\xed\xa0\x80"}', PARSE_ERROR),
        (b'{"a":"\\ud800"}', PARSE_ERROR),
        (b'{"a":"\0"}', PARSE_ERROR),
        ('{"a":1}'.encode("utf-16"), PARSE_ERROR),
        (b'{"a":NaN}', PARSE_ERROR),
        (b'{"a":Infinity}', PARSE_ERROR),
        (b'{"a":-Infinity}', PARSE_ERROR),
        (b'{"a":1e999}', PARSE_ERROR),
        (b'{"a":' + b"9" * 21 + b"}", PARSE_ERROR),
        (b'{"a":-' + b"9" * 21 + b"}", PARSE_ERROR),
        (b"[" + b"9" * 5000 + b"]", PARSE_ERROR),
        (b"[" * 100_000, INVALID_REQUEST),
        (b"[" * 65 + b"]" * 65, INVALID_REQUEST),
        (b'{"a":' * 65 + b"1" + b"}" * 65, INVALID_REQUEST),
        (b'[{"a":' * 33 + b"1" + b"}]" * 33, INVALID_REQUEST),
        (b"[" + b"[]," * 200_000 + b"1]", INVALID_REQUEST),
    ],
)
def test_what_is_refused(body: bytes, code: int) -> None:
    refused = refusal(body)
    assert refused.rpc_code == code
    assert "Error" not in refused.sentence
    assert "line 1" not in refused.sentence


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 64 + b"]" * 64,
        b'[{"a":' * 32 + b"1" + b"}]" * 32,
        b"[" + b",".join([b"[]"] * 1000) + b"]",
        b'["' + b"[{" * 1000 + b'"]',
        b'["' + b'\\"[' * 1000 + b'"]',
        b'["' + b"9" * 5000 + b'"]',
        b"[" + b"9" * 20 + b"]",
        b"[-" + b"9" * 20 + b"]",
        b"[0." + b"1" * 50 + b"]",
        b"[" + b"1" * 30 + b".5]",
        b"[1." + b"1" * 30 + b"e-5]",
        b'["' + b"," * 300_000 + b'"]',
        b'["\\\\u0000"]',
        b'["u0000"]',
    ],
)
def test_what_only_looks_bad_passes(body: bytes) -> None:
    assert parse(body, LIMITS) == orjson.loads(body)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"message":{"parts":[{"text":"ok"},{"text":"a\\u0000b"}]}}', "message.parts[1].text"),
        (b'{"a\\u0000":1}', ""),
        (b'{"x":{"a\\u0000":1}}', "x"),
        (b'{"\\u001b[31m":{"y":"\\u0000"}}', "?.y"),
        (b'["\\\\\\u0000"]', "[0]"),
    ],
)
def test_nul_is_refused_and_its_place_named(body: bytes, where: str) -> None:
    refused = refusal(body)
    assert (refused.rpc_code, refused.violation) == (INVALID_PARAMS, where)
    assert "U+0000" in refused.sentence


def test_a_refused_nul_answers_its_call() -> None:
    assert refusal(b'{"id":7,"params":"\\u0000"}').rpc_id == 7


def big(piece: bytes) -> bytes:
    return piece * (4 * 2**20 // len(piece))


@pytest.mark.parametrize(
    "body",
    [
        b'"' + big(b'\\"'),
        b'["' + big(b'\\"') + b'"]' + b"[" * 100,
        b"[" * 100 + b'"' + big(b"\\"),
        b"[" * 100 + big(b'"'),
        big(b"[]"),
        b"[" + big(b"{},") + b"{}]",
        big(b"[") + big(b"]"),
        b"[" + big(b"9") + b"]",
        b"[" + big(b"99999999999999999999 "),
        big(b"\\\\u0000"),
        b'["' + big(b"\\\\u0000") + b'"]',
        b'["' + big(b"\\\\") + b'"]',
    ],
)
def test_no_input_takes_more_than_linear_time(body: bytes) -> None:
    started = time.process_time()
    with pytest.raises(Refused):
        parse(body + b"x", LIMITS)
    assert time.process_time() - started < 1.0


def call(params: Any, call_id: Any = 1) -> Any:
    return {"jsonrpc": "2.0", "id": call_id, "method": "SendMessage", "params": params}


def message(**changes: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}], **changes}}


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (message(messageId="a\x1b[31m"), "message.messageId"),
        (message(message_id="../x"), "message.messageId"),
        (message(messageId="m" * 129), "message.messageId"),
        (message(messageId="ä"), "message.messageId"),
        (message(messageId="m\n"), "message.messageId"),
        (message(messageId=7), "message.messageId"),
        (message(messageId=["m"]), "message.messageId"),
        (message(contextId="../../x"), "message.contextId"),
        (message(context_id="a b"), "message.contextId"),
        (message(taskId="a/b"), "message.taskId"),
        (message(task_id="\u202e"), "message.taskId"),
        (message(referenceTaskIds=["ok", "not ok"]), "message.referenceTaskIds[1]"),
        (message(reference_task_ids=["not ok"]), "message.referenceTaskIds[0]"),
        (message(role="ROLE_AGENT"), "message.role"),
        (message(role="agent"), "message.role"),
        (message(role="role_agent"), "message.role"),
        (message(role=2), "message.role"),
        (message(role=2.0), "message.role"),
        (message(role="2"), "message.role"),
        (message(role=True), "message.role"),
        (message(role=["ROLE_USER"]), "message.role"),
        (message(role={}), "message.role"),
        (message(parts=[{"text": "x"}] * 1001), "message.parts"),
        ({"request": {"messageId": "m", "content": [{}] * 1001}}, "request.content"),
        ({"request": {"messageId": "m m"}}, "request.messageId"),
        ({"contextId": "a b"}, "contextId"),
        ({"taskId": "\n"}, "taskId"),
    ],
)
def test_bad_params_name_their_field(params: Any, field: str) -> None:
    for check, value in ((check_call, call(params, "c1")), (check_params, params)):
        with pytest.raises(Refused) as caught:
            check(value, LIMITS)
        assert (caught.value.rpc_code, caught.value.violation) == (INVALID_PARAMS, field)
        assert field in caught.value.sentence
    with pytest.raises(Refused) as caught:
        check_call(call(params, "c1"), LIMITS)
    assert caught.value.rpc_id == "c1"


@pytest.mark.parametrize(
    "params",
    [
        None,
        [],
        "text",
        {},
        {"message": None},
        {"message": "text"},
        {"message": {"parts": "text"}},
        message(),
        message(role="user"),
        message(role=None),
        message(taskId="", contextId=None),
        message(parts=[{"text": "x"}] * 1000),
        message(messageId="A.z_0:-" + "m" * 121),
        {"id": "not there at all: left to the handler"},
    ],
)
def test_what_is_clean_or_left_to_the_handler_passes(params: Any) -> None:
    check_call(call(params), LIMITS)
    check_params(params, LIMITS)


@pytest.mark.parametrize("body", [[], [call(message())], "text", 1, None, True])
def test_a_call_is_one_object(body: Any) -> None:
    with pytest.raises(Refused) as caught:
        check_call(body, LIMITS)
    assert (caught.value.rpc_code, caught.value.rpc_id) == (INVALID_REQUEST, None)


@pytest.mark.parametrize(
    ("call_id", "answered"), [(1, 1), ("x", "x"), (None, None), (True, None), (1.5, None), ([1], None)]
)
def test_the_answer_has_the_calls_id_where_that_is_one(call_id: Any, answered: Any) -> None:
    with pytest.raises(Refused) as caught:
        check_call(call(message(role="agent"), call_id), LIMITS)
    assert caught.value.rpc_id == answered
