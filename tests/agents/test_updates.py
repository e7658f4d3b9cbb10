"""From ACP's JSON to events: what is known is read, what is unknown or broken harms nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_serve.agents.updates import to_event, to_permission, to_usage
from a2a_serve.core import events as e
from a2a_serve.core.model import Diff, File, Option, PlanEntry, Usage

TEXT = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(
    ("update", "event"),
    [
        ({"sessionUpdate": "agent_message_chunk", "content": TEXT}, e.Text("hi")),
        ({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "x"}}, None),
        ({"sessionUpdate": "agent_thought_chunk", "content": TEXT}, e.Thought("hi")),
        (
            {
                "sessionUpdate": "agent_message_chunk",
                "content": {
                    "type": "resource",
                    "resource": {"uri": "file:///w/docs/a%20b.csv?x#y", "mimeType": "text/csv", "text": "1,2"},
                },
            },
            e.Attachment(File("a b.csv", "text/csv", b"1,2")),
        ),
        (
            {
                "sessionUpdate": "agent_message_chunk",
                "content": {"type": "resource", "resource": {"uri": "a/..", "mimeType": "odd\n", "blob": "AAE="}},
            },
            e.Attachment(File("file", "application/octet-stream", b"\0\1")),
        ),
        (
            {
                "sessionUpdate": "agent_message_chunk",
                "content": {"type": "image", "mimeType": "image/png", "data": "iVBO"},
            },
            e.Attachment(File("image.png", "image/png", b"\x89PN")),
        ),
        (
            {
                "sessionUpdate": "agent_message_chunk",
                "content": {"type": "resource_link", "name": "report\x1b[2J.pdf", "uri": "https://a.example/r"},
            },
            e.Attachment(File("report__2J.pdf", "application/octet-stream", url="https://a.example/r")),
        ),
        (
            {
                "sessionUpdate": "agent_message_chunk",
                "content": {"type": "resource_link", "name": "notes", "uri": "file:///w/notes.md"},
            },
            e.Text("[notes](file:///w/notes.md)"),
        ),
        (
            {"sessionUpdate": "plan", "entries": [{"content": "A", "status": "completed"}, "junk"]},
            e.Plan((PlanEntry("A", "medium", "completed"),)),
        ),
        (
            {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T", "kind": "edit", "status": "pending"},
            e.ToolUpdate("t", {"title": "T", "kind": "edit", "status": "pending"}),
        ),
        (
            {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"},
            e.ToolUpdate("t", {"status": "completed"}),
        ),
        (
            {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T", "kind": "newfangled", "status": "odd"},
            e.ToolUpdate("t", {"title": "T", "kind": "other"}),
        ),
        (
            {
                "sessionUpdate": "tool_call_update",
                "toolCallId": "t",
                "rawInput": {"command": "ls"},
                "locations": [{"path": "/w/a"}],
                "content": [
                    {"type": "diff", "path": "/w/a", "oldText": None, "newText": "x"},
                    {"type": "content", "content": {"type": "text", "text": "out"}},
                ],
            },
            e.ToolUpdate(
                "t",
                {
                    "raw_input": {"command": "ls"},
                    "diffs": (Diff("/w/a", None, "x"),),
                    "paths": ("/w/a",),
                    "output": "out",
                },
            ),
        ),
        (
            {"sessionUpdate": "usage_update", "used": 5, "size": 10, "cost": {"amount": 0.5, "currency": "USD"}},
            e.UsageUpdate(Usage(context_used=5, context_size=10, cost=0.5, currency="USD")),
        ),
        ({"sessionUpdate": "available_commands_update", "availableCommands": []}, None),
        ({"sessionUpdate": "tool_call", "title": "no id"}, None),
        ({"sessionUpdate": 7}, None),
        ({}, None),
    ],
)
def test_updates(update: dict[str, Any], event: e.AgentEvent | None) -> None:
    assert to_event(update) == event


def test_permission_carries_the_call_and_every_option() -> None:
    params = {
        "toolCall": {"toolCallId": "t", "rawInput": {"command": "ls"}},
        "options": [{"optionId": "o", "kind": "allow_always", "name": "Always"}, {"name": "no id"}, 3],
    }
    wanted = e.PermissionRequest("r1", "t", {"raw_input": {"command": "ls"}}, (Option("o", "allow_always", "Always"),))
    assert to_permission("r1", params) == wanted


@pytest.mark.parametrize(
    ("path", "shown"),
    [("/w/a/b", "a/b"), ("/w", "/w"), ("/w/../etc/passwd", "/w/../etc/passwd"), ("/wide/a", "/wide/a"), ("a", "a")],
)
def test_paths_in_the_workspace_are_shown_from_there(path: str, shown: str) -> None:
    update = {"sessionUpdate": "tool_call", "toolCallId": "t", "locations": [{"path": path}]}
    assert to_event(update, "/w") == e.ToolUpdate("t", {"paths": (shown,)})


def test_usage_invents_nothing() -> None:
    assert to_usage(None) == Usage()
    assert to_usage({"inputTokens": 3, "outputTokens": True, "totalTokens": "9"}) == Usage(input_tokens=3)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KINDS = ["agent_message_chunk", "plan", "tool_call", "tool_call_update", "usage_update", "notice"]
FIELDS = ["content", "entries", "toolCallId", "kind", "status", "rawInput", "locations", "title", "used", "cost"]


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_no_json_breaks_it(kind: str, rest: dict[str, Any]) -> None:
    to_event({"sessionUpdate": kind, **rest})
    to_permission("r", {"toolCall": rest, "options": rest.get("content")})
