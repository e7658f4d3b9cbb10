"""A model API on loopback whose answers are scripted by the prompt (see model_script). `python model_server.py PORT`.

Speaks OpenAI chat completions and responses, and Anthropic messages; keeps every request for assertions.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

if __name__ == "__main__":  # run by its path, the folder of `fakes` is not on the path
    sys.path.insert(0, str(__import__("pathlib").Path(__file__).parents[1]))

from fakes.model_apis import MODEL, TOKENS_IN, Api, Chat, Json, Messages, Responses
from fakes.model_script import Call, Fail, Say, Step, decide

APIS: dict[str, Api] = {"/v1/chat/completions": Chat(), "/v1/responses": Responses(), "/v1/messages": Messages()}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it came. `step` is what it was answered with; None for those that are no inference."""

    path: str
    headers: dict[str, str]
    body: Json
    step: Step | None = None

    @property
    def key(self) -> str:
        """The credential, in whichever header it came."""
        return self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def tools(self) -> list[str]:
        found = [tool.get("function", tool).get("name") for tool in self.body.get("tools") or []]
        return [name for name in found if isinstance(name, str)]


class ModelServer:
    """`key`: what a request must bring ('' for anything). `requests`: all of them, in order."""

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.requests: list[Recorded] = []
        self._failures: Counter[tuple[str, int]] = Counter()
        self.app = Starlette(
            routes=[
                *(Route(path, self._infer, methods=["POST"]) for path in APIS),
                Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/requests", self._recorded),
                Route("/{path:path}", self._other, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
            ]
        )

    def inferences(self) -> list[Recorded]:
        """The requests that the script answered: those with tools."""
        return [request for request in self.requests if request.step and request.tools]

    async def _infer(self, request: Request) -> Response:
        api = APIS[request.url.path]
        body = await request.json()
        step = decide(api.events(body), has_tools=bool(body.get("tools")))
        recorded = self._record(request, body, step)
        if self.key and recorded.key != self.key:
            return JSONResponse(api.error(401), 401)
        if status := self._failure(step):
            return JSONResponse(api.error(status), status, {"retry-after": "1"})
        if body.get("stream"):
            return StreamingResponse(api.stream(step), media_type="text/event-stream")
        return JSONResponse(whole(api, step))

    def _failure(self, step: Step) -> int | None:
        """The HTTP error that the step demands, as often as it demands it."""
        for action in step.actions:
            if isinstance(action, Fail):
                self._failures[step.script, step.number] += 1
                if action.times is None or self._failures[step.script, step.number] <= action.times:
                    return action.status
        return None

    def _record(self, request: Request, body: Json, step: Step | None = None) -> Recorded:
        recorded = Recorded(request.url.path, dict(request.headers), body, step)
        self.requests.append(recorded)
        return recorded

    async def _count(self, request: Request) -> Response:
        self._record(request, await request.json())
        return JSONResponse({"input_tokens": TOKENS_IN})

    async def _models(self, request: Request) -> Response:
        self._record(request, {})
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}], "has_more": False})

    async def _other(self, request: Request) -> Response:
        """What no agent should ask; kept, so that a test can see it."""
        self._record(request, {})
        return JSONResponse({"error": {"message": "not found", "type": "not_found"}}, 404)

    async def _recorded(self, request: Request) -> Response:
        """The requests so far, for a test in another process."""
        return JSONResponse([{"path": each.path, "headers": each.headers, "body": each.body} for each in self.requests])


def whole(api: Api, step: Step) -> Json:
    """The answer to a request that does not stream; agents ask so only for titles and the like, which are text."""
    text = "".join(action.text for action in step.actions if isinstance(action, Say))
    assert not any(isinstance(action, Call) for action in step.actions), "calls are streamed only"
    if isinstance(api, Messages):
        return api.message([{"type": "text", "text": text}], "end_turn")
    if isinstance(api, Responses):
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        return {"id": "resp_1", "object": "response", "model": MODEL, "status": "completed", "output": [item]}
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": MODEL, "choices": [choice]}


@asynccontextmanager
async def serving(server: ModelServer, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """The server on a free port of `host`, in this loop; yields its base URL without a path."""
    with socket.create_server((host, 0)) as listening:
        running = _uvicorn(server.app)
        task = asyncio.create_task(running.serve(sockets=[listening]))
        try:
            yield f"http://{host}:{listening.getsockname()[1]}"
        finally:
            running.should_exit = running.force_exit = True
            await task


def _uvicorn(app: Starlette, **more: Any) -> uvicorn.Server:
    config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=1, **more)
    return uvicorn.Server(config)


if __name__ == "__main__":
    _uvicorn(ModelServer().app, host="127.0.0.1", port=int(sys.argv[1])).run()
