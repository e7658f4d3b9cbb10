"""The card as every client reads it (requirement A2)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from a2a.client.card_resolver import parse_agent_card
from starlette.applications import Starlette

from a2a_serve.config import Card
from a2a_serve.listeners import Endpoint
from a2a_serve.server import card

ENDPOINTS = [
    Endpoint("JSONRPC", "http://127.0.0.1:1/a2a/jsonrpc"),
    Endpoint("HTTP+JSON", "http://127.0.0.1:1/a2a/rest"),
    Endpoint("GRPC", "127.0.0.1:2"),
]
GO = {"user-agent": "Go-http-client/1.1"}
PYTHON = {"user-agent": "python-httpx/0.28.1"}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    made = card.build(Card(name="shop"), ENDPOINTS)
    app = Starlette(routes=[card.route(made, 1_700_000_000.0)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client


async def get(client: httpx.AsyncClient, headers: dict[str, str]) -> dict[str, Any]:
    answer = await client.get(card.PATH, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()
    return found


async def test_it_names_what_is_served_in_both_versions(client: httpx.AsyncClient) -> None:
    shown = await get(client, PYTHON)

    named = [(each["protocolBinding"], each["protocolVersion"], each["url"]) for each in shown["supportedInterfaces"]]
    assert named == [(each.binding, version, each.url) for version in ("1.0", "0.3") for each in ENDPOINTS]
    assert shown["url"] == ENDPOINTS[0].url
    assert shown["preferredTransport"] == "JSONRPC"
    assert shown["protocolVersion"].startswith("0.3")
    assert [each["transport"] for each in shown["additionalInterfaces"]] == ["HTTP+JSON", "GRPC"]


async def test_it_asks_for_a_bearer_token(client: httpx.AsyncClient) -> None:
    shown = await get(client, PYTHON)

    assert shown["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "Bearer"
    assert shown["securityRequirements"] == [{"schemes": {"bearer": {}}}]
    assert parse_agent_card(shown).security_requirements[0].schemes["bearer"].list == []


async def test_go_gets_scopes_as_it_can_read_them(client: httpx.AsyncClient) -> None:
    usual, for_go = await get(client, PYTHON), await get(client, GO)

    assert for_go.pop("securityRequirements") == [{"schemes": {"bearer": []}}]
    usual.pop("securityRequirements")
    assert usual == for_go
    answer = await client.get(card.PATH, headers=GO)
    assert answer.headers["vary"] == "User-Agent"


async def test_nothing_empty_is_on_it(client: httpx.AsyncClient) -> None:
    shown = await get(client, PYTHON)

    assert "documentationUrl" not in shown
    assert "iconUrl" not in shown
    assert '""' not in json.dumps(shown)


@pytest.mark.parametrize("headers", [GO, PYTHON])
async def test_it_has_validators(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    first = await client.get(card.PATH, headers=headers)
    etag = first.headers["etag"]
    again = await client.get(card.PATH, headers={**headers, "if-none-match": etag})
    changed = await client.get(card.PATH, headers={**headers, "if-none-match": '"other"'})

    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert changed.status_code == 200
    assert first.headers["last-modified"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert "max-age" in first.headers["cache-control"]
