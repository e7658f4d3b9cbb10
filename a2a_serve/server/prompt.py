"""A caller's message as an agent's prompt: the host's block first, then the caller's, so that text from outside can
never start an agent's own command (research: `/` commands run only at the start of a prompt)."""

from __future__ import annotations

import base64
import re
from typing import Any

from a2a.types.a2a_pb2 import Message, Part
from google.protobuf.json_format import MessageToJson

from a2a_serve.core.approvals import one_line
from a2a_serve.core.model import Conversation, Identity, Prompt

_AT_PATH = re.compile(r"(?<!\S)@(?=[\"'~/.\w])")
WORD_JOINER = "\u2060"


class PartRefused(Exception):
    """A part of a kind that the agent cannot be given."""


def build(message: Message, task_id: str, conversation: Conversation, starter: Identity, *, lost: bool) -> Prompt:
    """The prompt of a message. `lost`: the conversation's memory is gone and the agent should know.

    Raises PartRefused naming the part.
    """
    host = _text(_host_line(conversation, starter, lost=lost))
    meta = {"taskId": task_id, "contextId": conversation.id, "messageId": message.message_id}
    return Prompt((host, *blocks(message)), meta)


def blocks(message: Message) -> tuple[dict[str, Any], ...]:
    """The message's parts as ACP content blocks. Raises PartRefused naming the part."""
    return tuple(_block(part, number) for number, part in enumerate(message.parts, 1))


def again(words: str, task_id: str, conversation: Conversation, starter: Identity) -> Prompt:
    """A further prompt of the same task: what the person said when they denied."""
    host = f"{_host_line(conversation, starter, lost=False)} They denied the last action and said:"
    return Prompt((_text(host), _text(_tame(words))), {"taskId": task_id, "contextId": conversation.id})


def _host_line(conversation: Conversation, starter: Identity, *, lost: bool) -> str:
    name = one_line(starter.name, 128)
    line = f'[a2a-serve] Conversation {conversation.handle}. A message from "{name}" ({starter.role}) follows.'
    if lost:
        line += " The earlier part of this conversation could not be restored; say so if it matters."
    return line


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tame(text: str) -> str:
    """Some agents expand `@path` at the start of a word into file content; a word joiner keeps it text."""
    return _AT_PATH.sub(f"@{WORD_JOINER}", text)


def _block(part: Part, number: int) -> dict[str, Any]:
    match part.WhichOneof("content"):
        case "text":
            return _text(_tame(part.text))
        case "data":
            return _text(MessageToJson(part.data, indent=None))
        case "raw" if part.media_type.startswith("image/"):
            data = base64.b64encode(part.raw).decode("ascii")
            return {"type": "image", "mimeType": part.media_type, "data": data}
        case "raw" if part.media_type.startswith("text/"):
            return _file(part, number)
        case "url":
            return _text(f"[{_tame(one_line(part.filename or 'a file', 80))}: {_tame(part.url)}]")
    raise PartRefused(f"Part {number} ({part.media_type or 'unknown type'}) cannot be given to the agent.")


def _file(part: Part, number: int) -> dict[str, Any]:
    """Text bytes go inline as an embedded resource whose name can never be a path of the agent's."""
    try:
        text = part.raw.decode("utf-8")
    except UnicodeDecodeError:
        raise PartRefused(f"Part {number} says it is text but is not UTF-8.") from None
    uri = f"attachment:part-{number}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": part.media_type, "text": text}}
