"""What a refused caller gets: a code, one fixed sentence and the request id, in the shape of the binding it spoke."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

DOMAIN = "a2a-protocol.org"
INVALID_REQUEST, INVALID_PARAMS, PARSE_ERROR = -32600, -32602, -32700
CONTENT_TYPE_NOT_SUPPORTED, VERSION_NOT_SUPPORTED, INTERNAL = -32005, -32009, -32603

_GRPC_STATUS = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    408: "DEADLINE_EXCEEDED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
}
RpcId = str | int | None
Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Refused(Exception):
    """A request that does not reach the application.

    `rpc_code` is its JSON-RPC error code. `in_rpc` says that the call itself is at fault, not the HTTP around it: on
    the JSON-RPC path that is HTTP 200, as for every JSON-RPC error (A2A 1.0 section 9). `rpc_id` is the call's, where
    it is known.
    """

    status: int
    reason: str
    sentence: str
    rpc_code: int = INVALID_REQUEST
    in_rpc: bool = False
    rpc_id: RpcId = None
    headers: Headers = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    violation: str = ""
    """The field at fault, as a path."""
    drained: bool = False
    """Nothing more of the body is worth waiting for: answer now, and close."""


def bad_params(violation: str, sentence: str) -> Refused:
    return Refused(400, "INVALID_PARAMS", sentence, INVALID_PARAMS, in_rpc=True, violation=violation)


def bad_request(sentence: str) -> Refused:
    return Refused(400, "INVALID_REQUEST", sentence, INVALID_REQUEST, in_rpc=True)


def not_json(sentence: str = "The body is not valid JSON.") -> Refused:
    return Refused(400, "PARSE_ERROR", sentence, PARSE_ERROR, in_rpc=True)


def internal() -> Refused:
    return Refused(500, "INTERNAL_ERROR", "The server failed; its log has the cause.", INTERNAL)


def render(refused: Refused, request_id: str, *, as_rpc: bool) -> tuple[int, bytes]:
    """HTTP status and body: a JSON-RPC error (`as_rpc`), else google.rpc.Status in JSON (A2A 1.0 section 11.6)."""
    details = _details(refused, request_id)
    error: dict[str, Any]
    if as_rpc:
        error = {"code": refused.rpc_code, "message": refused.sentence, "data": details}
        status = 200 if refused.in_rpc else refused.status
        return status, orjson.dumps({"jsonrpc": "2.0", "id": refused.rpc_id, "error": error})
    grpc_status = _GRPC_STATUS.get(refused.status, "INVALID_ARGUMENT")
    if refused.rpc_code == VERSION_NOT_SUPPORTED:
        grpc_status = "FAILED_PRECONDITION"
    error = {"code": refused.status, "status": grpc_status, "message": refused.sentence, "details": details}
    return refused.status, orjson.dumps({"error": error})


def _details(refused: Refused, request_id: str) -> list[dict[str, Any]]:
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": refused.reason,
        "domain": DOMAIN,
        "metadata": {**refused.metadata, "requestId": request_id},
    }
    if not refused.violation:
        return [info]
    violation = {"field": refused.violation, "description": refused.sentence}
    return [info, {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}]
