"""Which JSON a caller may send. Everything is looked at on the bytes first, so that a clean body costs microseconds.

orjson refuses bad UTF-8, lone surrogates, NaN, Infinity and what overflows a double; the rest is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from a2a_serve.server.refusals import Refused, RpcId, bad_params, bad_request, not_json


@dataclass(frozen=True, slots=True)
class JsonLimits:
    depth: int = 64
    parts: int = 1000
    digits: int = 20
    """Of an integer."""
    values: int = 200_000
    """In all: a 16 MiB body of empty lists would take a third of a gigabyte."""


_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_ID_FIELDS = {  # protobuf's JSON takes both spellings
    "messageId": "messageId",
    "message_id": "messageId",
    "taskId": "taskId",
    "task_id": "taskId",
    "contextId": "contextId",
    "context_id": "contextId",
}
_USER = ("ROLE_USER", "user", 1)
_NAMED_BELOW = 1 << 20
"""Bytes: in a larger body the field that holds a NUL is not searched for."""


def parse(body: bytes, limits: JsonLimits) -> Any:
    """The body's value. Raises Refused: not JSON, too deep, too many values, an integer too long, NUL in a string."""
    _check_shape(body, limits)
    try:
        value = orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError):
        raise not_json() from None
    if b"\\u0000" in body and b"\\u0000" in body.replace(b"\\\\", b"__"):
        where = _find_nul(value) if len(body) <= _NAMED_BELOW else ""
        refused = bad_params(where, f"{where or 'A string'} holds the character U+0000.")
        refused.rpc_id = rpc_id(value)
        raise refused
    return value


def _check_shape(body: bytes, limits: JsonLimits) -> None:
    """Cheap bounds first; only a body over one of them has its strings taken out to be counted exactly."""
    opened = body.count(b"[") + body.count(b"{")
    many = opened + body.count(b",") >= limits.values
    long_run = b"0" * (limits.digits + 1)
    digits = len(body) > limits.digits and long_run in body.translate(_DIGITS)
    if not (many or digits or opened > limits.depth):
        return
    bare = _without_strings(body, limits)
    if sum(map(bare.count, (b",", b"[", b"{"))) >= limits.values:
        raise _too_many(limits)
    if _is_deeper(bare, limits.depth):
        raise bad_request(f"The body's JSON is nested deeper than {limits.depth}.")
    if digits and re.search(rb"(?<![0-9.eE+])(?<![eE]-)[0-9]{%d,}(?![0-9.eE])" % (limits.digits + 1), bare):
        raise not_json(f"The body has an integer of more than {limits.digits} digits.")


def _without_strings(body: bytes, limits: JsonLimits) -> bytes:
    """What stands between the strings, each of which leaves `""`. Raises Refused where there are too many."""
    plain = body.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    if plain.count(b'"') > 4 * limits.values:  # a key and a value, two quotes each
        raise _too_many(limits)
    return b'""'.join(plain.split(b'"')[::2])


def _too_many(limits: JsonLimits) -> Refused:
    return bad_request(f"The body has more than {limits.values} values.")


def _is_deeper(bare: bytes, depth: int) -> bool:
    """Take the innermost pairs away, one level each time: at the speed of C. Unbalanced brackets count as deep."""
    brackets = bare.translate(_ONE_KIND, _NOT_BRACKETS)
    for _ in range(depth):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _find_nul(value: Any) -> str:
    """Path of the first string, or key, that holds U+0000."""
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        path, each = todo.pop()
        if isinstance(each, str):
            if "\0" in each:
                return path
        elif isinstance(each, dict):
            todo += [(_join(path, key), child) for key, child in each.items()]
            if any("\0" in key for key in each):
                return path
        elif isinstance(each, list):
            todo += [(f"{path}[{index}]", child) for index, child in enumerate(each)]
    return ""


def _join(path: str, key: str) -> str:
    name = key if _PLAIN_KEY.fullmatch(key) else "?"
    return f"{path}.{name}" if path else name


def rpc_id(call: Any) -> RpcId:
    """The id to answer a JSON-RPC call with: null where it has none or one of a wrong type."""
    found = call.get("id") if isinstance(call, dict) else None
    return found if isinstance(found, str) or type(found) is int else None


def check_call(call: Any, limits: JsonLimits) -> None:
    """A JSON-RPC call: one object, clean `params`. Raises Refused with the call's id."""
    if not isinstance(call, dict):
        raise bad_request("The body is not one JSON-RPC request.")
    try:
        check_params(call.get("params"), limits)
    except Refused as refused:
        refused.rpc_id = rpc_id(call)
        raise


def check_params(params: Any, limits: JsonLimits) -> None:
    """What both JSON bindings send: ids, and the message (`request` in v0.3 over REST). Raises Refused."""
    if not isinstance(params, dict):
        return
    _check_ids(params, "")
    for name in ("message", "request"):
        if isinstance(message := params.get(name), dict):
            _check_message(message, f"{name}.", limits)


def _check_message(message: dict[str, Any], path: str, limits: JsonLimits) -> None:
    _check_ids(message, path)
    for index, found in enumerate(_references(message)):
        _check_id(found, f"{path}referenceTaskIds[{index}]")
    for name in ("parts", "content"):
        if isinstance(parts := message.get(name), list) and len(parts) > limits.parts:
            raise bad_params(f"{path}{name}", f"{path}{name} has more than {limits.parts} entries.")
    # protobuf's JSON takes an enum by name or number, also as a string; only a user's message is ours to accept
    role = message.get("role")
    if role is not None and (isinstance(role, bool) or role not in _USER):
        raise bad_params(f"{path}role", f"{path}role must be ROLE_USER.")


def _references(message: dict[str, Any]) -> Iterator[Any]:
    for spelling in ("referenceTaskIds", "reference_task_ids"):
        if isinstance(found := message.get(spelling), list):
            yield from found


def _check_ids(holder: dict[str, Any], path: str) -> None:
    for key, found in holder.items():
        if key in _ID_FIELDS and found:
            _check_id(found, path + _ID_FIELDS[key])


def _check_id(found: Any, field: str) -> None:
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise bad_params(field, f"{field} must be 1 to 128 characters of A-Z a-z 0-9 . _ : -")
