"""The model proxy: the key is added here, the agent's own words about keys and hosts are dropped (S5)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fakes.model_server import ModelServer
from fakes.model_server import serving as serving_model
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from a2a_serve.listeners.local import TcpListener
from a2a_serve.outbound import models
from a2a_serve.outbound.models import ModelProxy, Upstream

KEY = "sk-canary-of-the-model"


@asynccontextmanager
async def agent_side(*upstreams: Upstream) -> AsyncIterator[httpx.AsyncClient]:
    """A client as the agent is one, of a proxy with these upstreams."""
    listener = TcpListener("door")
    async with models.client() as client:
        await listener.start(ModelProxy({each.name: each for each in upstreams}, client).app())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}", trust_env=False) as agent:
            yield agent
        await listener.stop(0)


@asynccontextmanager
async def echo() -> AsyncIterator[str]:
    """An upstream that answers with what it got; `/v1/models` redirects."""

    async def tell(request: Request) -> Response:
        if request.url.path == "/base/v1/models":
            return RedirectResponse("http://127.0.0.1:1/elsewhere")
        seen = {"headers": dict(request.headers), "query": str(request.query_params), "path": request.url.path}
        return JSONResponse(seen, headers={"set-cookie": "a=b", "x-request-id": "up-1"})

    listener = TcpListener("upstream")
    await listener.start(Starlette(routes=[Route("/{path:path}", tell, methods=["GET", "POST"])]))
    yield f"http://127.0.0.1:{listener.port}/base"
    await listener.stop(0)


@pytest.mark.req("S5")
@pytest.mark.parametrize(
    ("scheme", "header", "value"),
    [
        ("bearer", "authorization", f"Bearer {KEY}"),
        ("x-api-key", "x-api-key", KEY),
        ("x-goog-api-key", "x-goog-api-key", KEY),
    ],
)
async def test_the_key_is_ours_and_nothing_of_the_agents_passes_for_one(scheme: str, header: str, value: str) -> None:
    forged = {
        "Authorization": "Bearer mine",
        "x-api-key": "mine",
        "x-goog-api-key": "mine",
        "Cookie": "mine=1",
        "Host": "evil.example",
        "X-Forwarded-Host": "evil.example",
        "anthropic-version": "2023-06-01",
    }
    async with echo() as url, agent_side(Upstream("anthropic", url, KEY, scheme)) as agent:
        answer = await agent.post("/m/anthropic/v1/messages?key=mine&beta=true", json={}, headers=forged)
    seen = answer.json()
    assert seen["headers"][header] == value
    assert "mine" not in str(seen)
    assert "evil" not in str(seen)
    assert seen["headers"]["anthropic-version"] == "2023-06-01"
    assert (seen["path"], seen["query"]) == ("/base/v1/messages", "beta=true")
    assert "set-cookie" not in answer.headers
    assert answer.headers["x-request-id"] == "up-1"


@pytest.mark.req("S5")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/m/anthropic/v1/messages/count_tokens", 200),
        ("/m/anthropic/v1/files", 403),
        ("/m/anthropic/v1/messages/batches", 403),
        ("/m/anthropic/v1/messages/../organizations", 403),
        ("/m/anthropic/v1/%2e%2e/admin", 403),
        ("/m/anthropic/http://evil.example/v1/messages", 403),
        ("/m/anthropic//evil.example/v1/messages", 403),
        ("/m/unknown/v1/messages", 404),
        ("/m/keyless/v1/models", 401),
        ("/other", 404),
    ],
)
async def test_only_inference_and_only_the_upstream(path: str, status: int) -> None:
    async with (
        echo() as url,
        agent_side(Upstream("anthropic", url, KEY, "x-api-key"), Upstream("keyless", url, "", "bearer")) as agent,
    ):
        answer = await agent.get(path)
    assert answer.status_code == status


async def test_redirects_are_not_followed_with_the_key() -> None:
    async with echo() as url, agent_side(Upstream("openai", url, KEY, "bearer")) as agent:
        answer = await agent.get("/m/openai/v1/models")
    assert answer.status_code == 307


async def test_answers_stream_through() -> None:
    server = ModelServer(key=KEY)
    async with serving_model(server) as url, agent_side(Upstream("openai", url, KEY, "bearer")) as agent:
        message = {"role": "user", "content": "SCRIPT: STREAM 5;;"}
        tools = [{"type": "function", "function": {"name": "t"}}]
        body = {"model": "m", "stream": True, "messages": [message], "tools": tools}
        async with agent.stream("POST", "/m/openai/v1/chat/completions", json=body) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            pieces = [piece async for piece in answer.aiter_lines() if piece.startswith("data: ")]
    assert len(pieces) >= 5
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"


async def test_an_upstream_that_is_gone_is_said_without_its_address_or_key() -> None:
    async with agent_side(Upstream("openai", "http://127.0.0.1:1", KEY, "bearer")) as agent:
        answer = await agent.get("/m/openai/v1/models")
    assert answer.status_code == 502
    assert "127.0.0.1:1" not in answer.text
    assert KEY not in answer.text


async def test_a_body_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MAX_BODY", 1000)
    async with echo() as url, agent_side(Upstream("openai", url, KEY, "bearer")) as agent:
        answer = await agent.post("/m/openai/v1/responses", content=b"x" * 1001)
    assert answer.status_code == 413


def test_a_key_is_in_no_text_of_its_upstream() -> None:
    assert KEY not in repr(Upstream("openai", "http://x", KEY, "bearer"))
