"""The agent card: names only what the listener really serves, with its own routable URLs (requirement A2)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import orjson
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import a2a_pb2 as pb
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from a2a_serve.config import Card
from a2a_serve.listeners import Endpoint

PATH = "/.well-known/agent-card.json"
VERSIONS = ("1.0", "0.3")
BEARER = "bearer"
GO = "Go-http-client"
"""How Go's own HTTP client calls itself, which a2a-go uses as it is."""


def build(card: Card, endpoints: Sequence[Endpoint]) -> pb.AgentCard:
    """The card of one listener. Every security requirement names a scope list that is not empty only where scopes
    exist; a bearer token has none."""
    built = pb.AgentCard(
        name=card.name,
        description=card.description,
        version=card.version,
        documentation_url=card.documentation_url,
        icon_url=card.icon_url,
        supported_interfaces=[
            pb.AgentInterface(url=each.url, protocol_binding=each.binding, protocol_version=version)
            for version in VERSIONS
            for each in endpoints
        ],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=False),
        default_input_modes=card.input_modes,
        default_output_modes=card.output_modes,
        skills=[
            pb.AgentSkill(
                id=each.id, name=each.name, description=each.description, tags=each.tags, examples=each.examples
            )
            for each in card.skills
        ],
    )
    if card.provider:
        built.provider.CopyFrom(pb.AgentProvider(organization=card.provider.organization, url=card.provider.url))
    scheme = pb.HTTPAuthSecurityScheme(scheme="Bearer", description="A token from `a2a-serve pair add`.")
    built.security_schemes[BEARER].http_auth_security_scheme.CopyFrom(scheme)
    built.security_requirements.add().schemes[BEARER].CopyFrom(pb.StringList())
    return built


def route(card: pb.AgentCard, made_at: float) -> Route:
    """Serves the card with validators (RFC 9110): the card changes only with a restart or a reload."""
    shown = agent_card_to_dict(card)
    usual, for_go = (_Served.of(each, made_at) for each in (shown, _with_plain_scopes(shown)))

    async def serve(request: Request) -> Response:
        served = for_go if request.headers.get("user-agent", "").startswith(GO) else usual
        if served.headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=served.headers)
        return Response(served.body, media_type="application/json", headers=served.headers)

    return Route(PATH, serve, methods=["GET", "HEAD"])


@dataclass(frozen=True, slots=True)
class _Served:
    body: bytes
    headers: dict[str, str]

    @classmethod
    def of(cls, shown: dict[str, Any], made_at: float) -> _Served:
        body = orjson.dumps(shown)
        headers = {
            "Cache-Control": "public, max-age=60",
            "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            "Last-Modified": formatdate(made_at, usegmt=True),
            "Vary": "User-Agent",
        }
        return cls(body, headers)


def _with_plain_scopes(shown: dict[str, Any]) -> dict[str, Any]:
    """The card for a2a-go, and so for the stock `a2a` command: it cannot read a requirement's scopes as the
    specification writes them, `{"list": [...]}`, but only as a plain list (a2aproject/a2a-go issue 430)."""
    plain = [
        {"schemes": {name: scopes.get("list", []) for name, scopes in each["schemes"].items()}}
        for each in shown.get("securityRequirements", [])
    ]
    return {**shown, "securityRequirements": plain}
