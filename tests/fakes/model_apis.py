"""The wire forms of three model APIs: OpenAI chat completions, OpenAI responses, Anthropic messages.

Each reads a request body into `Event`s and writes a `Step` as server-sent events. Enough for the agents that the tests
run; what they never read is left out.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any, Protocol

from fakes.model_script import Call, Event, Fail, Pause, Say, Step, Think, call_id

Json = dict[str, Any]

TOKENS_IN, TOKENS_OUT = 1000, 50
MODEL = "scripted"


class Api(Protocol):
    def events(self, body: Json) -> list[Event]: ...

    def stream(self, step: Step) -> AsyncIterator[str]:
        """The answer as server-sent events."""

    def error(self, status: int) -> Json:
        """The body of an HTTP error."""


async def pieces(step: Step) -> AsyncIterator[Say | Think | Call]:
    """What the step says, paced as it says."""
    for action in step.actions:
        match action:
            case Pause(None):
                await asyncio.Event().wait()
            case Pause(float(seconds)):
                await asyncio.sleep(seconds)
            case Say() | Think() | Call():
                yield action
            case Fail():
                continue


def ids(step: Step, prefix: str) -> list[str]:
    """One id for each call of the step."""
    calls = [action for action in step.actions if isinstance(action, Call)]
    return [prefix + call_id(step.number, index, uuid.uuid4().hex[:8]) for index in range(len(calls))]


def texts(content: Any) -> str:
    """The text of a message's content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(
        block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)
    )


def sse(data: Json, event: str = "") -> str:
    return (f"event: {event}\n" if event else "") + f"data: {json.dumps(data)}\n\n"


class Chat:
    """POST /v1/chat/completions."""

    def events(self, body: Json) -> list[Event]:
        found: list[Event] = []
        for message in body["messages"]:
            if message["role"] == "user":
                found.append(Event("user", texts(message.get("content"))))
            found += [Event("call", call["id"]) for call in message.get("tool_calls") or []]
        return found

    async def stream(self, step: Step) -> AsyncIterator[str]:
        name = f"chatcmpl-{uuid.uuid4().hex}"
        call_ids = iter(ids(step, "call_"))
        index = 0
        yield self._chunk(name, {"role": "assistant", "content": ""})
        async for piece in pieces(step):
            match piece:
                case Say(text):
                    yield self._chunk(name, {"content": text})
                case Think(text):
                    yield self._chunk(name, {"reasoning_content": text})
                case Call(tool, arguments):
                    function = {"name": tool, "arguments": json.dumps(arguments)}
                    call = {"index": index, "id": next(call_ids), "type": "function", "function": function}
                    yield self._chunk(name, {"tool_calls": [call]})
                    index += 1
        yield self._chunk(name, {}, finish_reason="tool_calls" if index else "stop", usage=CHAT_USAGE)
        yield "data: [DONE]\n\n"

    def _chunk(self, name: str, delta: Json, finish_reason: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return sse(
            {"id": name, "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": [choice], **more}
        )

    def error(self, status: int) -> Json:
        return {"error": {"message": f"scripted {status}", "type": OPENAI_ERRORS.get(status, "server_error")}}


CHAT_USAGE = {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT}
OPENAI_ERRORS = {401: "invalid_request_error", 429: "rate_limit_error"}


class Responses:
    """POST /v1/responses."""

    def events(self, body: Json) -> list[Event]:
        given = body["input"]
        items = given if isinstance(given, list) else [{"role": "user", "content": given}]
        found: list[Event] = []
        for item in items:
            if item.get("role") == "user":
                found.append(Event("user", texts(item.get("content"))))
            elif item.get("type") in {"function_call", "custom_tool_call"}:
                found.append(Event("call", item["call_id"]))
        return found

    async def stream(self, step: Step) -> AsyncIterator[str]:
        call_ids = iter(ids(step, "call_"))
        output: list[Json] = []
        response = {"id": f"resp_{uuid.uuid4().hex}", "object": "response", "created_at": 0, "model": MODEL}
        yield self._event("response.created", response={**response, "status": "in_progress", "output": []})
        async for piece in pieces(step):
            match piece:
                case Say(text):
                    item, events = self._message(text, len(output))
                case Think(text):
                    item, events = self._reasoning(text, len(output))
                case Call(tool, arguments):
                    item, events = self._call(next(call_ids), tool, arguments, len(output))
            for event in events:
                yield event
            output.append(item)
        done = {**response, "status": "completed", "output": output, "usage": RESPONSES_USAGE}
        yield self._event("response.completed", response=done)

    def _message(self, text: str, index: int) -> tuple[Json, list[str]]:
        name = f"msg_{uuid.uuid4().hex}"
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": name, "status": "completed", "role": "assistant", "content": [part]}
        place: Json = {"item_id": name, "output_index": index, "content_index": 0}
        return item, [
            self._event("response.output_item.added", output_index=index, item={**item, "content": []}),
            self._event("response.content_part.added", **place, part={**part, "text": ""}),
            self._event("response.output_text.delta", **place, delta=text),
            self._event("response.output_text.done", **place, text=text),
            self._event("response.content_part.done", **place, part=part),
            self._event("response.output_item.done", output_index=index, item=item),
        ]

    def _reasoning(self, text: str, index: int) -> tuple[Json, list[str]]:
        name = f"rs_{uuid.uuid4().hex}"
        item: Json = {"type": "reasoning", "id": name, "summary": [{"type": "summary_text", "text": text}]}
        place: Json = {"item_id": name, "output_index": index, "summary_index": 0}
        empty = {"type": "summary_text", "text": ""}
        return item, [
            self._event("response.output_item.added", output_index=index, item={**item, "summary": []}),
            self._event("response.reasoning_summary_part.added", **place, part=empty),
            self._event("response.reasoning_summary_text.delta", **place, delta=text),
            self._event("response.reasoning_summary_text.done", **place, text=text),
            self._event("response.output_item.done", output_index=index, item=item),
        ]

    def _call(self, name: str, tool: str, arguments: Json, index: int) -> tuple[Json, list[str]]:
        written = json.dumps(arguments)
        item = {"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", "call_id": name, "name": tool}
        item |= {"arguments": written, "status": "completed"}
        place: Json = {"item_id": item["id"], "output_index": index}
        return item, [
            self._event("response.output_item.added", output_index=index, item={**item, "arguments": ""}),
            self._event("response.function_call_arguments.delta", **place, delta=written),
            self._event("response.function_call_arguments.done", **place, arguments=written),
            self._event("response.output_item.done", output_index=index, item=item),
        ]

    def _event(self, name: str, **fields: Any) -> str:
        return sse({"type": name, "sequence_number": 0, **fields}, name)

    def error(self, status: int) -> Json:
        return Chat().error(status)


RESPONSES_USAGE = {
    "input_tokens": TOKENS_IN,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": TOKENS_OUT,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": TOKENS_IN + TOKENS_OUT,
}


class Messages:
    """POST /v1/messages."""

    def events(self, body: Json) -> list[Event]:
        found: list[Event] = []
        for message in body["messages"]:
            content = message["content"]
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
            for block in blocks:
                if message["role"] == "user" and block["type"] == "text":
                    found.append(Event("user", block["text"]))
                elif block["type"] == "tool_use":
                    found.append(Event("call", block["id"]))
        return found

    async def stream(self, step: Step) -> AsyncIterator[str]:
        call_ids = iter(ids(step, "toolu_"))
        yield self._event("message_start", message=self.message([], None))
        index, reason = 0, "end_turn"
        async for piece in pieces(step):
            for event in self._block(index, piece, call_ids):
                yield event
            index += 1
            reason = "tool_use" if isinstance(piece, Call) else reason
        delta = {"stop_reason": reason, "stop_sequence": None}
        yield self._event("message_delta", delta=delta, usage=MESSAGES_USAGE)
        yield self._event("message_stop")

    def message(self, content: list[Json], stop_reason: str | None) -> Json:
        head = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": MODEL}
        end = {"stop_reason": stop_reason, "stop_sequence": None, "usage": MESSAGES_USAGE}
        return {**head, "content": content, **end}

    def _block(self, index: int, piece: Say | Think | Call, call_ids: Any) -> list[str]:
        match piece:
            case Say(text):
                block: Json = {"type": "text", "text": ""}
                deltas: list[Json] = [{"type": "text_delta", "text": text}]
            case Think(text):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": text}, {"type": "signature_delta", "signature": "s"}]
            case Call(tool, arguments):
                block = {"type": "tool_use", "id": next(call_ids), "name": tool, "input": {}}
                deltas = [{"type": "input_json_delta", "partial_json": json.dumps(arguments)}]
        return [
            self._event("content_block_start", index=index, content_block=block),
            *(self._event("content_block_delta", index=index, delta=delta) for delta in deltas),
            self._event("content_block_stop", index=index),
        ]

    def _event(self, name: str, **fields: Any) -> str:
        return sse({"type": name, **fields}, name)

    def error(self, status: int) -> Json:
        kind = ANTHROPIC_ERRORS.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": f"scripted {status}"}}


MESSAGES_USAGE = {
    "input_tokens": TOKENS_IN,
    "output_tokens": TOKENS_OUT,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
ANTHROPIC_ERRORS = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
