"""The floor: a bare starlette echo with the wire format of A2A and nothing behind it. `python -m bench.floor PORT`"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

CARD = {"name": "floor", "version": "0", "supportedInterfaces": []}


def _task(state: str, message: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "t",
        "contextId": "c",
        "status": {"state": state},
        "history": [message],
        "artifacts": [{"artifactId": "response", "parts": message["parts"]}],
    }


def _answer(number: Any, result: dict[str, Any]) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "result": result})


async def _events(number: Any, message: dict[str, Any]) -> AsyncIterator[bytes]:
    """The task, one event a word, the end: as a server would stream it."""
    words = message["parts"][0]["text"].split()
    events: list[dict[str, Any]] = [{"task": {**_task("TASK_STATE_WORKING", message), "artifacts": []}}]
    for at, word in enumerate(words):
        artifact = {"artifactId": "response", "parts": [{"text": word + " "}]}
        events.append({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "append": at > 0}})
    events.append({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}})
    for event in events:
        yield b"data: " + _answer(number, event) + b"\n\n"


async def _rpc(request: Request) -> Response:
    call = orjson.loads(await request.body())
    message = call["params"].get("message", {"parts": []})
    if call["method"] == "SendStreamingMessage":
        return StreamingResponse(_events(call["id"], message), media_type="text/event-stream")
    task = _task("TASK_STATE_COMPLETED", message)
    found = {"task": task} if call["method"] == "SendMessage" else task
    return Response(_answer(call["id"], found), media_type="application/json")


async def _card(request: Request) -> Response:
    return JSONResponse(CARD)


def main(port: int) -> None:
    routes = [Route("/", _rpc, methods=["POST"]), Route("/.well-known/agent-card.json", _card)]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]))
