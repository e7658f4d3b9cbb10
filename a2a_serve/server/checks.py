"""What the guard asks of a request before its body: pure functions of the ASGI scope and the listener's rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from a2a_serve.listeners import Scope
from a2a_serve.server.json_hygiene import rpc_id
from a2a_serve.server.refusals import CONTENT_TYPE_NOT_SUPPORTED, VERSION_NOT_SUPPORTED, Refused

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
CARDS = frozenset({"/.well-known/agent-card.json", "/.well-known/agent.json"})
METHODS = ("GET", "HEAD", "POST", "DELETE")
VERSIONS = ("1.0", "0.3")

_FOREIGN_FETCH = (b"cross-site", b"same-site")
_SINGLE = frozenset({b"host", b"authorization", b"content-type", b"content-length", b"origin", b"a2a-version"})
_PROXY_WORDS = (b"x-forwarded-", b"tailscale-", b"x-real-ip", b"x-remote-", b"forwarded")
_CONTENT_TYPE = re.compile(rb"application/(?:a2a\+)?json *(?:; *charset=\"?utf-8\"? *)?", re.IGNORECASE)
_VERSION = re.compile(r"([0-9]{1,3}\.[0-9]{1,3})(?:\.[0-9]{1,3})?")
_QUERY_VERSION = re.compile(rb"(?:^|&)A2A-Version=([^&]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rules:
    """What one listener accepts. The Host of a request is one of `names` with the listener's own port, or one of
    `hosts` as it stands; `names` None accepts any (a unix socket). `own_pages` accepts those hosts as Origin too.
    """

    names: tuple[str, ...] | None = LOOPBACK
    hosts: tuple[str, ...] = ()
    own_pages: bool = False
    public: frozenset[str] = CARDS
    """Paths that GET and HEAD may read without a credential."""
    rpc_paths: frozenset[str] = frozenset({"/a2a/jsonrpc", "/a2a/jsonrpc/"})
    rest_prefix: str = "/a2a/rest/"


def read_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers by name; those by which proxies name a caller are taken out of the scope too.

    Raises Refused for one that must not come twice.
    """
    found: dict[bytes, bytes] = {}
    strip = False
    for name, value in scope["headers"]:
        if name.startswith(_PROXY_WORDS):
            strip = True
            continue
        if name in found and name in _SINGLE:
            raise Refused(400, "DUPLICATE_HEADER", "A header that must be there once came twice.")
        found[name] = value
    if strip:
        scope["headers"] = [each for each in scope["headers"] if not each[0].startswith(_PROXY_WORDS)]
    return found


@lru_cache(maxsize=64)
def _allowed_hosts(names: tuple[str, ...], hosts: tuple[str, ...], scheme: str, port: int | None) -> frozenset[bytes]:
    allowed = {f"{name}:{port}" for name in names} | {host.lower() for host in hosts}
    if port == {"http": 80, "https": 443}.get(scheme):
        allowed |= set(names)
    return frozenset(each.encode() for each in allowed)


def _hosts_of(scope: Scope, rules: Rules) -> frozenset[bytes]:
    server = scope.get("server") or ("", None)
    return _allowed_hosts(rules.names or (), rules.hosts, scope.get("scheme", "http"), server[1])


def check_host(headers: dict[bytes, bytes], scope: Scope, rules: Rules) -> None:
    """Against DNS rebinding: the Host is one of ours, exactly, with its port."""
    if rules.names is not None and headers.get(b"host", b"").lower() not in _hosts_of(scope, rules):
        raise Refused(421, "HOST_NOT_SERVED", "This server does not serve that host.")


def check_origin(headers: dict[bytes, bytes], scope: Scope, rules: Rules) -> None:
    """Against cross-site requests from a browser. No answer ever has a CORS header."""
    origin = headers.get(b"origin")
    if origin is not None and not (rules.own_pages and _is_own(origin, scope, rules)):
        raise Refused(403, "ORIGIN_NOT_ALLOWED", "Web pages may not call this server.")
    if headers.get(b"sec-fetch-site", b"").lower() in _FOREIGN_FETCH:
        raise Refused(403, "ORIGIN_NOT_ALLOWED", "Web pages of other sites may not call this server.")


def _is_own(origin: bytes, scope: Scope, rules: Rules) -> bool:
    scheme, _, host = origin.partition(b"://")
    return scheme == scope.get("scheme", "http").encode() and host in _hosts_of(scope, rules)


def check_framing(headers: dict[bytes, bytes], scope: Scope) -> bool:
    """Method, length and content type; tells whether there is a body. Raises Refused."""
    if scope["method"] not in METHODS:
        allow = (b"allow", ", ".join(METHODS).encode())
        raise Refused(405, "METHOD_NOT_ALLOWED", "That method is not served here.", headers=[allow])
    if b"content-length" in headers and b"transfer-encoding" in headers:
        raise Refused(400, "AMBIGUOUS_LENGTH", "Content-Length and Transfer-Encoding exclude each other.", drained=True)
    if b"content-encoding" in headers:
        raise _unsupported("Content-Encoding is not accepted.")
    has_body = b"transfer-encoding" in headers or bool(read_length(headers))
    content_type = headers.get(b"content-type")
    if content_type is None:
        if has_body:
            raise _unsupported()
    elif (has_body or scope["method"] == "POST") and not _CONTENT_TYPE.fullmatch(content_type):
        raise _unsupported()
    return has_body


def _unsupported(sentence: str = "The body must be application/json or application/a2a+json.") -> Refused:
    return Refused(415, "CONTENT_TYPE_NOT_SUPPORTED", sentence, CONTENT_TYPE_NOT_SUPPORTED)


def read_length(headers: dict[bytes, bytes]) -> int | None:
    value = headers.get(b"content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 15:
        raise Refused(400, "INVALID_REQUEST", "Content-Length is not a number.", drained=True)
    return int(value)


def check_version(headers: dict[bytes, bytes], scope: Scope, call: Any) -> None:
    """The A2A version by header or query (A2A 1.0 section 3.6): Major.Minor exactly, whatever the patch.

    The SDK compares majors and reads the header only, so what is found is put there. Absent means 0.3, to the SDK.
    """
    asked = headers.get(b"a2a-version", b"").strip()
    if asked in (b"1.0", b"0.3"):
        return
    if not asked and (query := _QUERY_VERSION.search(scope["query_string"])):
        asked = query[1]
    if not asked:
        return
    version = _VERSION.fullmatch(asked.decode("latin-1"))
    if version is None or version[1] not in VERSIONS:
        raise Refused(
            400,
            "VERSION_NOT_SUPPORTED",
            f"That A2A version is not supported; supported are {' and '.join(VERSIONS)}.",
            VERSION_NOT_SUPPORTED,
            in_rpc=True,
            rpc_id=rpc_id(call),
        )
    others = [each for each in scope["headers"] if each[0] != b"a2a-version"]
    scope["headers"] = [*others, (b"a2a-version", version[1].encode())]
