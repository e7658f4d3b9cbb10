"""Model API calls from a sandbox: `/m/<name>/...` on the agent socket goes to one upstream, and the key is added here.

The agent has a base URL on its own loopback and a placeholder for a key, so the real one is never inside (S5).
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

log = logging.getLogger(__name__)

MAX_BODY = 64 << 20
ALLOWED = {
    "anthropic": r"v1/(messages(/count_tokens)?|models(/[\w.:-]+)?)",
    "openai": r"v1/(chat/completions|responses(/[\w.:-]+)?|embeddings|models(/[\w.:-]+)?)",
    "gemini": r"v1(beta|alpha)?/models(/[\w.:-]+)?",
}
"""What may be asked of each API: inference and the list of models; no files, no batches, no administration."""
SCHEMES = {
    "bearer": ("authorization", "Bearer {}"),
    "x-api-key": ("x-api-key", "{}"),
    "x-goog-api-key": ("x-goog-api-key", "{}"),
}
_HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length"}
_CREDENTIALS = {"authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie"}
_ROUTING = {"host", "forwarded", "via", "x-forwarded-for", "x-forwarded-host", "accept-encoding"}
_NOT_SENT = _HOP_BY_HOP | _CREDENTIALS | _ROUTING
_NOT_RELAYED = _HOP_BY_HOP | {"content-encoding", "set-cookie"}


@dataclass(frozen=True, slots=True)
class Upstream:
    """One model API: where, with which key ('' when there is none), and in which header (a name of SCHEMES)."""

    name: str
    url: str
    key: str = field(repr=False)
    scheme: str


class ModelProxy:
    """Forwards allowed paths to their upstream, streaming the answer. Redirects are not followed."""

    def __init__(self, upstreams: Mapping[str, Upstream], client: httpx.AsyncClient) -> None:
        self._upstreams, self._client = upstreams, client

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/m/{name}/{path:path}", self._forward, methods=["GET", "POST"])])

    async def _forward(self, request: Request) -> Response:
        name, path = request.path_params["name"], request.path_params["path"]
        upstream = self._upstreams.get(name)
        if upstream is None:
            return _refusal(404, f"No model API named {name!r} is configured.")
        if not re.fullmatch(ALLOWED.get(name, ALLOWED["openai"]), path):
            return _refusal(403, "This path of the model API is not open to agents.")
        if not upstream.key:
            return _refusal(401, f"The server has no key for the model API {name!r}.")
        try:
            body = await _bounded_body(request)
            answer = await self._client.send(self._ask(upstream, request, path, body), stream=True)
        except ValueError:
            return _refusal(413, f"The request is larger than {MAX_BODY >> 20} MiB.")
        except httpx.HTTPError as error:
            log.warning("model API %s: %s", name, type(error).__name__)
            return _refusal(502, f"The model API {name!r} cannot be reached.")
        headers = {key: value for key, value in answer.headers.items() if key.lower() not in _NOT_RELAYED}
        return StreamingResponse(_relay(answer), answer.status_code, headers)

    def _ask(self, upstream: Upstream, request: Request, path: str, body: bytes) -> httpx.Request:
        headers = {key: value for key, value in request.headers.items() if key not in _NOT_SENT}
        header, form = SCHEMES[upstream.scheme]
        headers[header] = form.format(upstream.key)
        query = httpx.QueryParams([each for each in request.query_params.multi_items() if each[0] != "key"])
        url = f"{upstream.url.rstrip('/')}/{path}"
        return self._client.build_request(request.method, url, params=query, headers=headers, content=body)


async def _bounded_body(request: Request) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY:
            raise ValueError("too large")
        pieces.append(piece)
    return b"".join(pieces)


async def _relay(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_bytes():
            yield piece
    finally:
        await answer.aclose()


def _refusal(status: int, sentence: str) -> JSONResponse:
    """In the shape that both OpenAI's and Anthropic's clients read an error from."""
    return JSONResponse({"type": "error", "error": {"type": "a2a_serve", "message": sentence}}, status)


def client() -> httpx.AsyncClient:
    """An HTTP client for model APIs: answers may take long, proxies of the environment and redirects are ignored."""
    timeout = httpx.Timeout(600, connect=10)
    return httpx.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=False)
