"""The ASGI guard: what every request on a listener must pass before any other code of ours sees it.

Order (research/security.md 1.1): Host, Origin, method and content type, size and time of the body, who it is, the JSON
itself, the protocol version. Whatever is refused is read to its end first, within bounds, so that the caller gets to
see the answer.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Any

from a2a_serve import log
from a2a_serve.auth import Evidence
from a2a_serve.auth.gate import Gate
from a2a_serve.core.errors import BadCredential, NotSignedIn, TooManySignIns
from a2a_serve.core.model import Identity
from a2a_serve.listeners import ASGIApp, Peer, Scope
from a2a_serve.server import json_hygiene
from a2a_serve.server.checks import (
    CARDS,
    LOOPBACK,
    Rules,
    check_framing,
    check_host,
    check_origin,
    check_version,
    read_headers,
    read_length,
)
from a2a_serve.server.exchange import Exchange, Gone, Limits, Receive, Send
from a2a_serve.server.refusals import Refused, internal

__all__ = ["CARDS", "LOOPBACK", "Guard", "Limits", "Rules"]

_log = logging.getLogger(__name__)


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
        exchange = Exchange(scope, receive, send, self._new_id(), self._limits)
        log.request_id.set(exchange.request_id)
        try:
            await self._admit(exchange)
        except Refused as refused:
            await exchange.refuse(refused, as_rpc=scope["path"] in self._rules.rpc_paths)
        except Gone:
            return
        else:
            await self._serve(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        try:
            await self._app(exchange.scope, exchange.replay, exchange.send)
        except Exception:
            _log.exception("request %s failed", exchange.request_id)
            if not exchange.started:
                await exchange.refuse(internal(), as_rpc=exchange.scope["path"] in self._rules.rpc_paths)

    async def _admit(self, exchange: Exchange) -> None:
        scope, rules = exchange.scope, self._rules
        headers = read_headers(scope)
        is_public = scope["path"] in rules.public and scope["method"] in ("GET", "HEAD")
        check_host(headers, scope, rules)
        if not is_public:
            check_origin(headers, scope, rules)
        has_body = check_framing(headers, scope)
        await self._identify(exchange, headers, is_public=is_public, has_body=has_body)
        keeps_body = has_body and "identity" in exchange.state
        body = await exchange.read(read_length(headers), self._limits.body) if keeps_body else b""
        is_rpc = scope["path"] in rules.rpc_paths
        self._check_json(exchange.state, body, is_rpc=is_rpc and scope["method"] == "POST")
        if is_rpc or scope["path"].startswith(rules.rest_prefix):
            check_version(headers, scope, exchange.state["json"])

    async def _identify(
        self, exchange: Exchange, headers: dict[bytes, bytes], *, is_public: bool, has_body: bool
    ) -> None:
        """Who it is, before the body is kept: a stranger's is counted and thrown away."""
        length, most = read_length(headers), self._limits.body_of_strangers
        if is_public and b"authorization" not in headers:
            if has_body:
                await exchange.skim(length, most)
            return
        peer: Peer = exchange.state.get("peer") or Peer("")
        try:
            exchange.state["identity"] = await _sign_in(self._gate, peer, headers)
        except Refused:
            if has_body and b"expect" not in headers:
                await exchange.skim(length, most)
            raise

    def _check_json(self, state: dict[str, Any], body: bytes, *, is_rpc: bool) -> None:
        state["json"] = None
        if body or is_rpc:
            state["json"] = json_hygiene.parse(body, self._limits.json)
        if is_rpc:
            json_hygiene.check_call(state["json"], self._limits.json)
        elif body:
            json_hygiene.check_params(state["json"], self._limits.json)


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
