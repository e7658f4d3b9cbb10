"""The agent that the official A2A test kit is run against: it behaves as the first words of a message's id ask.

It speaks ACP as JSON lines on stdin and stdout; standard library only, run by its path. The kit (a2aproject/a2a-tck,
scenarios/*.feature) names each behaviour by a prefix of the message id, which the server hands on as
`_meta.a2a.messageId`. An ACP agent cannot express one of them: `tck-message-response`, a Message without a task; there
it answers as any other message.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Json = dict[str, Any]
LONG = 5.0
"""Seconds: more than twice the kit's streaming timeout, for its test of a second subscriber."""
SHORT = 1.0
"""Seconds that a task works before it asks, in the kit of A2A 0.3: there every message asks that names nothing else."""
OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


class Agent:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._sessions = self._asked = 0
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._answers: dict[str, asyncio.Future[Json]] = {}

    async def serve(self) -> None:
        while line := await self._reader.readline():
            message = json.loads(line)
            if "method" in message:
                self._take(message)
            elif answer := self._answers.pop(message["id"], None):
                answer.set_result(message.get("result", {}))

    def _take(self, message: Json) -> None:
        params = message.get("params", {})
        match message["method"]:
            case "initialize":
                self._answer(message, {"protocolVersion": 1, "agentCapabilities": {"loadSession": False}})
            case "session/new":
                self._sessions += 1
                self._answer(message, {"sessionId": f"s{self._sessions}"})
            case "session/prompt":
                session = params["sessionId"]
                self._turns[session] = asyncio.create_task(self._turn(message, session, params))
            case "session/cancel":
                if turn := self._turns.get(params["sessionId"]):
                    turn.cancel()
            case _ if "id" in message:
                self._write({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})

    def _write(self, message: Json) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def _answer(self, message: Json, result: Json) -> None:
        self._write({"id": message["id"], "result": result})

    def say(self, session: str, content: Json) -> None:
        """One chunk of the answer: any ACP content block."""
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        self._write({"method": "session/update", "params": {"sessionId": session, "update": update}})

    async def ask(self, session: str) -> None:
        """Ask before a change, and wait for the answer."""
        self._asked += 1
        call: Json = {
            "toolCallId": f"call-{self._asked}",
            "title": "Change the greeting",
            "kind": "edit",
            "status": "pending",
        }
        call["rawInput"] = {"path": "greeting.txt", "content": "hello"}
        update = {"sessionUpdate": "tool_call", **call}
        self._write({"method": "session/update", "params": {"sessionId": session, "update": update}})
        request_id = f"ask-{self._asked}"
        self._answers[request_id] = asyncio.get_running_loop().create_future()
        params = {"sessionId": session, "toolCall": call, "options": OPTIONS}
        self._write({"id": request_id, "method": "session/request_permission", "params": params})
        result = await self._answers[request_id]
        allowed = result.get("outcome", {}).get("optionId") == "yes"
        done = {"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"]}
        done["status"] = "completed" if allowed else "failed"
        self._write({"method": "session/update", "params": {"sessionId": session, "update": done}})

    async def _turn(self, message: Json, session: str, params: Json) -> None:
        message_id = params.get("_meta", {}).get("a2a", {}).get("messageId", "")
        try:
            reason = await _behaviour(message_id or _said(params))(self, session)
        except asyncio.CancelledError:
            reason = "cancelled"
        self._answer(message, {"stopReason": reason})


# --- behaviours ------------------------------------------------------------------------------------------------------

Behaviour = Callable[[Agent, str], Awaitable[str]]


def text(*chunks: str) -> Behaviour:
    return content(*({"type": "text", "text": each} for each in chunks))


def content(*blocks: Json) -> Behaviour:
    async def say(agent: Agent, session: str) -> str:
        for block in blocks:
            agent.say(session, block)
        return "end_turn"

    return say


def resource(uri: str, media_type: str, text_: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "text": text_}}


async def ask(agent: Agent, session: str) -> str:
    await agent.ask(session)
    return "end_turn"


async def refuse(agent: Agent, session: str) -> str:
    return "refusal"


async def take_long(agent: Agent, session: str) -> str:
    agent.say(session, {"type": "text", "text": "This takes a while."})
    await asyncio.sleep(LONG)
    return "end_turn"


FILE = content(resource("file:///output.txt", "text/plain", "Generated file content"))
LINK = {
    "type": "resource_link",
    "name": "output.txt",
    "uri": "https://example.com/output.txt",
    "mimeType": "text/plain",
}

BEHAVIOURS: list[tuple[str, Behaviour]] = [
    ("tck-artifact-text", text("Generated text content")),
    ("tck-artifact-file-url", content(LINK)),
    ("tck-artifact-file", FILE),
    ("tck-artifact-data", content(resource("data.json", "application/json", '{"key": "value", "count": 42}'))),
    ("tck-input-required", ask),
    ("tck-reject-task", refuse),
    ("tck-stream-001", text("Stream hello from TCK")),
    ("tck-stream-003", text("Stream task lifecycle")),
    ("tck-stream-ordering-001", text("Ordered output")),
    ("tck-stream-artifact-text", text("Streamed text content")),
    ("tck-stream-artifact-file", FILE),
    ("tck-stream-artifact-chunked", text("chunk-1 ", "chunk-2")),
    ("test-resubscribe-message-id", take_long),
]


async def work_and_ask(agent: Agent, session: str) -> str:
    agent.say(session, {"type": "text", "text": "Hello from TCK"})
    await asyncio.sleep(SHORT)
    return await ask(agent, session)


def _behaviour(message_id: str) -> Behaviour:
    for prefix, behaviour in BEHAVIOURS:
        if message_id.startswith(prefix):
            return behaviour
    return work_and_ask if "--kit-0.3" in sys.argv else text("Hello from TCK")


def _said(params: Json) -> str:
    """A further prompt of the same task has no message id; in the kit's tests of history it asks once more."""
    words = params["prompt"][-1].get("text", "")
    return "tck-input-required" if words.startswith("TCK history message") else ""


async def main() -> None:
    reader = asyncio.StreamReader(limit=32 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await Agent(reader).serve()


if __name__ == "__main__":
    asyncio.run(main())
