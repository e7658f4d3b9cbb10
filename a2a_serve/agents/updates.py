"""From ACP's JSON to events: pure, forgiving of what is unknown, strict about what decides (ACP schema v1)."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from a2a_serve.core import events as e
from a2a_serve.core.model import Diff, File, Option, PlanEntry, Usage

OUTPUT_LIMIT = 64 << 10
UNKNOWN_TYPE = "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[a-z0-9]+/[A-Za-z0-9.+_-]{1,100}")
_ODD = re.compile(r"[^\w .()+=@~-]")
KINDS = frozenset({"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"})
STATUSES = frozenset({"pending", "in_progress", "completed", "failed"})
Json = dict[str, Any]


def to_event(update: Json, workspace: str = "") -> e.AgentEvent | None:
    """The event of one `session/update`, or None for those that no caller sees (commands, modes, titles).

    Paths below `workspace` are named relative to it.
    """
    kind = _string(update.get("sessionUpdate"))
    if kind in ("tool_call", "tool_call_update"):
        call_id = _string(update.get("toolCallId"))
        return e.ToolUpdate(call_id, _changes(update, workspace)) if call_id else None
    reader = _READERS.get(kind)
    return reader(update) if reader else None


def to_permission(request_id: str, params: Json, workspace: str = "") -> e.PermissionRequest:
    """The event of a `session/request_permission`."""
    call = _object(params.get("toolCall"))
    options = tuple(
        Option(_string(option.get("optionId")), _string(option.get("kind")), _string(option.get("name")))
        for option in _objects(params.get("options"))
        if isinstance(option.get("optionId"), str)
    )
    return e.PermissionRequest(request_id, _string(call.get("toolCallId")), _changes(call, workspace), options)


def to_usage(value: Any) -> Usage:
    """Token counts of a prompt response's `usage`."""
    counts = _object(value)
    return Usage(
        input_tokens=_integer(counts.get("inputTokens")),
        output_tokens=_integer(counts.get("outputTokens")),
        total_tokens=_integer(counts.get("totalTokens")),
    )


def _answer(update: Json) -> e.AgentEvent | None:
    """A chunk of the answer: text, or a file beside it."""
    block = _object(update.get("content"))
    reader = _READ_FILE.get(_string(block.get("type")))
    if reader and (file := reader(block)):
        return e.Attachment(file)
    return e.Text(text) if (text := _content_text(block)) else None


def _resource(block: Json) -> File | None:
    resource = _object(block.get("resource"))
    name = _file_name(_string(resource.get("uri")))
    if isinstance(text := resource.get("text"), str):
        return File(name, _media_type(resource, "text/plain"), text.encode("utf-8", "replace"))
    data = _bytes(resource.get("blob"))
    return None if data is None else File(name, _media_type(resource, UNKNOWN_TYPE), data)


def _link(block: Json) -> File | None:
    """Only what a caller can fetch too; a link to the agent's own files stays a word in the text."""
    uri = _string(block.get("uri"))
    if not uri.startswith(("https://", "http://")):
        return None
    return File(_file_name(_string(block.get("name")) or uri), _media_type(block, UNKNOWN_TYPE), url=uri)


def _picture(block: Json) -> File | None:
    data, media_type = _bytes(block.get("data")), _media_type(block, UNKNOWN_TYPE)
    name = _file_name(_string(block.get("uri"))) if block.get("uri") else media_type.replace("/", ".")
    return None if data is None else File(name, media_type, data)


_READ_FILE: dict[str, Callable[[Json], File | None]] = {
    "resource": _resource,
    "resource_link": _link,
    "image": _picture,
    "audio": _picture,
}


def _file_name(uri: str) -> str:
    """The last segment of a path or URI, without characters that no file name should have."""
    last = unquote(uri.partition("?")[0].partition("#")[0]).rstrip("/").rpartition("/")[2]
    return _ODD.sub("_", last)[-128:].lstrip(".") or "file"


def _media_type(block: Json, default: str) -> str:
    found = _string(block.get("mimeType"))
    return found if _MEDIA_TYPE.fullmatch(found) else default


def _bytes(value: Any) -> bytes | None:
    try:
        return b64decode(_string(value), validate=True) or None
    except ValueError:
        return None


def _thought(update: Json) -> e.AgentEvent | None:
    return e.Thought(text) if (text := _content_text(update.get("content"))) else None


def _plan(update: Json) -> e.AgentEvent:
    return e.Plan(
        tuple(
            PlanEntry(
                _string(entry.get("content")),
                _string(entry.get("priority")) or "medium",
                _string(entry.get("status")) or "pending",
            )
            for entry in _objects(update.get("entries"))
        )
    )


def _usage(update: Json) -> e.AgentEvent:
    cost = _object(update.get("cost"))
    amount = cost.get("amount")
    return e.UsageUpdate(
        Usage(
            context_used=_integer(update.get("used")),
            context_size=_integer(update.get("size")),
            cost=float(amount) if isinstance(amount, int | float) and not isinstance(amount, bool) else None,
            currency=_string(cost.get("currency")),
        )
    )


_READERS: dict[str, Callable[[Json], e.AgentEvent | None]] = {
    "agent_message_chunk": _answer,
    "agent_thought_chunk": _thought,
    "plan": _plan,
    "usage_update": _usage,
}


def _changes(call: Json, workspace: str) -> Json:
    """Only the ToolCall fields that this message carries, each in our own type."""
    changes: Json = {}
    if isinstance(title := call.get("title"), str):
        changes["title"] = title
    if (kind := call.get("kind")) is not None:
        changes["kind"] = kind if _string(kind) in KINDS else "other"
    if (status := _string(call.get("status"))) in STATUSES:
        changes["status"] = status
    if call.get("rawInput") is not None:
        changes["raw_input"] = call["rawInput"]
    content = _objects(call.get("content"))
    diffs = tuple(_diff(item, workspace) for item in content if item.get("type") == "diff")
    if diffs:
        changes["diffs"] = diffs
    if paths := _paths(call, diffs, workspace):
        changes["paths"] = paths
    if output := _output(content):
        changes["output"] = output
    return changes


def _diff(item: Json, workspace: str) -> Diff:
    old = item.get("oldText")
    path = _relative(_string(item.get("path")), workspace)
    return Diff(path, old if isinstance(old, str) else None, _string(item.get("newText")))


def _paths(call: Json, diffs: tuple[Diff, ...], workspace: str) -> tuple[str, ...]:
    named = [_relative(_string(place.get("path")), workspace) for place in _objects(call.get("locations"))]
    return tuple(dict.fromkeys(path for path in [*named, *(diff.path for diff in diffs)] if path))


def _relative(path: str, workspace: str) -> str:
    """A path that leaves the workspace again, or only seems to lie in it, stays as it is."""
    inside = path.removeprefix(f"{workspace}/")
    return path if not workspace or inside == path or ".." in inside.split("/") else inside


def _output(content: list[Json]) -> str:
    texts = (_content_text(item.get("content")) for item in content if item.get("type") == "content")
    return "".join(texts)[-OUTPUT_LIMIT:]


def _content_text(content: Any) -> str:
    """The text of a content block; an embedded text resource and a link count as text, bytes do not."""
    block = _object(content)
    match block.get("type"):
        case "text":
            return _string(block.get("text"))
        case "resource":
            return _string(_object(block.get("resource")).get("text"))
        case "resource_link":
            return f"[{_string(block.get('name'))}]({_string(block.get('uri'))})"
    return ""


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
