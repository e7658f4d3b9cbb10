"""The ASGI guard: what every request on a listener must pass before any other code of ours sees it.

Order (research/security.md 1.1): Host, Origin, method and content type, size and time of the body, who it is, the JSON
itself, the protocol version. Whatever is refused is read to its end first, within bounds, so that the caller gets to
see the answer.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from a2a_serve.auth import Evidence
from a2a_serve.auth.gate import Gate
from a2a_serve.core.errors import BadCredential, NotSignedIn, TooManySignIns
from a2a_serve.core.model import Identity
from a2a_serve.listeners import ASGIApp, Message, Peer, Scope
from a2a_serve.server import json_hygiene
from a2a_serve.server.json_hygiene import JsonLimits
from a2a_serve.server.refusals import (
    CONTENT_TYPE_NOT_SUPPORTED,
    VERSION_NOT_SUPPORTED,
    Headers,
    Refused,
    internal,
    render,
)

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
CARDS = frozenset({"/.well-known/agent-card.json", "/.well-known/agent.json"})
METHODS = ("GET", "HEAD", "POST", "DELETE")
VERSIONS = ("1.0", "0.3")

_log = logging.getLogger(__name__)
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


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    body: int = 16 << 20
    body_of_strangers: int = 64 << 10
    body_seconds: float = 30.0
    bytes_per_second: int = 256 << 10
    """A body gets one second more for each so many bytes of it."""
    drain: int = 64 << 20
    drain_seconds: float = 5.0
    json: JsonLimits = field(default_factory=JsonLimits)


class _Gone(Exception):
    """The caller went away while its body was read."""


class Guard:
    """Wraps the application behind a listener.

    The application finds in `scope["state"]`: `identity` (absent where a public path was read by nobody in
    particular), `json` (the parsed body, None without one), `request_id`, and the list `extensions`, into which it
    puts the URIs of the A2A extensions it activates before it starts its answer: they are echoed in `A2A-Extensions`.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        rules: Rules | None = None,
        limits: Limits | None = None,
        *,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._app, self._gate = app, gate
        self._rules, self._limits = rules or Rules(), limits or Limits()
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the guard serves HTTP only, not {scope['type']}")
        exchange = _Exchange(scope, receive, send, self._new_id(), self._limits)
        try:
            await self._admit(exchange)
        except Refused as refused:
            await exchange.refuse(refused, as_rpc=scope["path"] in self._rules.rpc_paths)
        except _Gone:
            return
        else:
            await self._serve(exchange)

    async def _serve(self, exchange: _Exchange) -> None:
        try:
            await self._app(exchange.scope, exchange.replay, exchange.send)
        except Exception:
            _log.exception("request %s failed", exchange.request_id)
            if not exchange.started:
                await exchange.refuse(internal(), as_rpc=exchange.scope["path"] in self._rules.rpc_paths)

    async def _admit(self, exchange: _Exchange) -> None:
        scope, rules = exchange.scope, self._rules
        headers = read_headers(scope)
        is_public = scope["path"] in rules.public and scope["method"] in ("GET", "HEAD")
        check_host(headers, scope, rules)
        if not is_public:
            check_origin(headers, scope, rules)
        has_body = check_framing(headers, scope)
        await self._identify(exchange, headers, is_public=is_public, has_body=has_body)
        body = await exchange.read(_length(headers), self._limits.body) if has_body else b""
        is_rpc = scope["path"] in rules.rpc_paths
        self._check_json(exchange.state, body, is_rpc=is_rpc and scope["method"] == "POST")
        if is_rpc or scope["path"].startswith(rules.rest_prefix):
            check_version(headers, scope, exchange.state["json"])

    async def _identify(
        self, exchange: _Exchange, headers: dict[bytes, bytes], *, is_public: bool, has_body: bool
    ) -> None:
        """Who it is, before the body is kept: a stranger's is counted and thrown away."""
        if is_public and b"authorization" not in headers:
            if has_body:
                await exchange.read(_length(headers), self._limits.body_of_strangers)
            return
        peer: Peer = exchange.state.get("peer") or Peer("")
        try:
            exchange.state["identity"] = await _sign_in(self._gate, peer, headers)
        except Refused:
            if has_body and b"expect" not in headers:
                await exchange.read(_length(headers), self._limits.body_of_strangers, within=self._limits.drain_seconds)
            raise

    def _check_json(self, state: dict[str, Any], body: bytes, *, is_rpc: bool) -> None:
        state["json"] = None
        if body or is_rpc:
            state["json"] = json_hygiene.parse(body, self._limits.json)
        if is_rpc:
            json_hygiene.check_call(state["json"], self._limits.json)
        elif body:
            json_hygiene.check_params(state["json"], self._limits.json)


class _Exchange:
    """One request and its answer: reads the body within bounds, replays it, marks the answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: str, limits: Limits) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.request_id = request_id
        self._limits = limits
        self.state: dict[str, Any] = scope.setdefault("state", {})
        self.state["request_id"] = request_id
        self.state["extensions"] = []
        self.started = False
        self._more = True
        self._body: bytes | None = None

    async def read(self, length: int | None, limit: int, *, within: float = 0.0) -> bytes:
        """The whole body. `length` is what the caller said, `within` replaces the usual deadline. Raises Refused."""
        if length is not None and length > limit:
            raise _too_large(limit)
        chunks, size = [], 0
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            async with asyncio.timeout_at(start + (within or self._limits.body_seconds)) as deadline:
                while self._more:
                    chunk = await self._next()
                    size += len(chunk)
                    if size > limit:
                        raise _too_large(limit)
                    chunks.append(chunk)
                    if self._more and not within:
                        allowed = self._limits.body_seconds + size / self._limits.bytes_per_second
                        deadline.reschedule(start + allowed)
        except TimeoutError:
            raise Refused(408, "BODY_TIMEOUT", "The request's body took too long.", drained=True) from None
        self._body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return self._body

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        self._more = message.get("more_body", False)
        body: bytes = message.get("body", b"")
        return body

    async def drain(self) -> None:
        """Throw the rest of the body away, so that closing does not cut off the answer (RFC 9112 9.6)."""
        left = self._limits.drain
        try:
            async with asyncio.timeout(self._limits.drain_seconds):
                while self._more and left > 0:
                    left -= len(await self._next())
        except TimeoutError:
            return

    async def replay(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers: Headers = [*message.get("headers", ()), (b"x-request-id", self.request_id.encode())]
            if extensions := self.state["extensions"]:
                headers.append((b"a2a-extensions", ", ".join(extensions).encode()))
            message = {**message, "headers": headers}
        await self._send(message)

    async def refuse(self, refused: Refused, *, as_rpc: bool) -> None:
        waits = any(name == b"expect" for name, _ in self.scope["headers"])
        try:
            if not (waits or refused.drained):
                await self.drain()
        except _Gone:
            return
        self.state["extensions"] = []
        status, body = render(refused, self.request_id, as_rpc=as_rpc)
        headers: Headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            *refused.headers,
        ]
        if self._more:
            headers.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


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
    has_body = b"transfer-encoding" in headers or bool(_length(headers))
    content_type = headers.get(b"content-type")
    if content_type is None:
        if has_body:
            raise _unsupported()
    elif (has_body or scope["method"] == "POST") and not _CONTENT_TYPE.fullmatch(content_type):
        raise _unsupported()
    return has_body


def _unsupported(sentence: str = "The body must be application/json or application/a2a+json.") -> Refused:
    return Refused(415, "CONTENT_TYPE_NOT_SUPPORTED", sentence, CONTENT_TYPE_NOT_SUPPORTED)


def _too_large(limit: int) -> Refused:
    return Refused(413, "BODY_TOO_LARGE", "The request's body is too large.", metadata={"limit": str(limit)})


def _length(headers: dict[bytes, bytes]) -> int | None:
    value = headers.get(b"content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 15:
        raise Refused(400, "INVALID_REQUEST", "Content-Length is not a number.", drained=True)
    return int(value)


async def _sign_in(gate: Gate, peer: Peer, headers: dict[bytes, bytes]) -> Identity:
    named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
    try:
        return await gate.admit(Evidence(peer.listener, peer.address, peer.uid, peer.pid, named))
    except TooManySignIns as error:
        wait = (b"retry-after", str(error.retry_after).encode())
        raise Refused(429, "TOO_MANY_SIGN_INS", "Too many failed sign-ins.", headers=[wait]) from None
    except NotSignedIn:
        challenges = [(b"www-authenticate", each.encode()) for each in gate.challenges]
        raise Refused(401, "NOT_SIGNED_IN", "A credential is needed here.", headers=challenges) from None
    except BadCredential:
        challenges = [(b"www-authenticate", f'{each}, error="invalid_token"'.encode()) for each in gate.challenges]
        raise Refused(401, "BAD_CREDENTIAL", "The credential is not valid.", headers=challenges) from None


def check_version(headers: dict[bytes, bytes], scope: Scope, call: Any) -> None:
    """The A2A version by header or query (A2A 1.0 section 3.6): Major.Minor exactly, whatever the patch.

    The SDK compares majors and reads the header only, so what is found is put there. Absent means 0.3, to the SDK.
    """
    asked = headers.get(b"a2a-version", b"").strip()
    if not asked and b"ersion=" in scope["query_string"]:
        query = _QUERY_VERSION.search(scope["query_string"])
        asked = query[1] if query else b""
    if not asked or asked in (b"1.0", b"0.3") and b"a2a-version" in headers:
        return
    version = _VERSION.fullmatch(asked.decode("latin-1"))
    if version is None or version[1] not in VERSIONS:
        raise Refused(
            400,
            "VERSION_NOT_SUPPORTED",
            f"That A2A version is not supported; supported are {' and '.join(VERSIONS)}.",
            VERSION_NOT_SUPPORTED,
            in_rpc=True,
            rpc_id=json_hygiene.rpc_id(call),
        )
    others = [each for each in scope["headers"] if each[0] != b"a2a-version"]
    scope["headers"] = [*others, (b"a2a-version", version[1].encode())]
