"""What `send` shows of a task: text for people as it comes, or A2A's own JSON."""

from __future__ import annotations

import json
from typing import Any

import click
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict

from a2a_serve.cli.output import visible

STATES = {number: name.removeprefix("TASK_STATE_").lower().replace("_", "-") for name, number in pb.TaskState.items()}
_UNHAPPY = frozenset(
    {pb.TaskState.TASK_STATE_FAILED, pb.TaskState.TASK_STATE_REJECTED, pb.TaskState.TASK_STATE_CANCELED}
)


class TextView:
    """The agent's text on stdout, bare; everything else on stderr, and only on a terminal while the task runs."""

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._shown: dict[str, str] = {}
        self._told = ""
        self._in_line = False

    def event(self, event: pb.StreamResponse) -> None:
        match event.WhichOneof("payload"):
            case "message":
                self._text("".join(part.text for part in event.message.parts))
            case "task":
                for artifact in event.task.artifacts:
                    self._artifact(artifact, append=False)
                self._status(event.task.status, pb.Task())
            case "status_update":
                self._status(event.status_update.status, event.status_update)
            case "artifact_update":
                self._artifact(event.artifact_update.artifact, append=event.artifact_update.append)

    def note(self, text: str) -> None:
        self.end_line()
        click.echo(visible(text), err=True)

    def aside(self, text: str) -> None:
        """Something that is only of interest while one looks on."""
        if self._terminal and text:
            self.end_line()
            click.echo(click.style(visible(text), dim=True), err=True)

    def end_line(self) -> None:
        if self._in_line:
            click.echo()
            self._in_line = False

    def _text(self, text: str) -> None:
        if text:
            click.echo(visible(text), nl=False)
            self._in_line = not text.endswith("\n")

    def _artifact(self, artifact: pb.Artifact, *, append: bool) -> None:
        before = self._shown.get(artifact.artifact_id, "")
        text = "".join(_part_text(part) for part in artifact.parts)
        whole = before + text if append else text
        self._shown[artifact.artifact_id] = whole
        new = whole.removeprefix(before)
        if new and _is_answer(artifact):
            self._text(new)
        elif new:
            self.aside(_aside_of(artifact, new))

    def _status(self, status: pb.TaskStatus, update: Any) -> None:
        if status.state in _UNHAPPY:
            words = _words(status) or "no reason given"
            self.note(f"{STATES[status.state].capitalize()}: {words}")
        elif status.state == pb.TaskState.TASK_STATE_WORKING:
            title = _tool_title(update) or _words(status)
            if title and title != self._told:
                self.aside(f"· {title}")
            self._told = title


class JsonView:
    """A2A's JSON: with `stream` each event on its own line, else nothing until the end."""

    def __init__(self, stream: bool) -> None:
        self._stream = stream
        self.task = pb.Task()
        self.reply: pb.Message | None = None

    def event(self, event: pb.StreamResponse) -> None:
        if self._stream:
            click.echo(json.dumps(MessageToDict(event)))
        elif event.HasField("task"):
            self.task = event.task
        elif event.HasField("message"):
            self.reply = event.message

    def note(self, text: str) -> None:
        click.echo(visible(text), err=True)


def _is_answer(artifact: pb.Artifact) -> bool:
    name = artifact.artifact_id
    return not (name in ("thinking", "plan") or name.startswith("diff:"))


def _aside_of(artifact: pb.Artifact, text: str) -> str:
    if artifact.artifact_id.startswith("diff:"):
        return f"· Changed {artifact.artifact_id.removeprefix('diff:')}"
    if artifact.artifact_id == "plan":
        entries = _plan(artifact)
        return "Plan:\n" + "\n".join(f"  {number}. {entry}" for number, entry in enumerate(entries, 1))
    return text.strip()


def _plan(artifact: pb.Artifact) -> list[str]:
    made = []
    for part in artifact.parts:
        data = MessageToDict(part.data) if part.HasField("data") else {}
        entries = data.get("entries") if isinstance(data, dict) else None
        for each in entries if isinstance(entries, list) else []:
            if isinstance(each, dict):
                mark = "x" if each.get("status") == "completed" else " "
                made.append(f"[{mark}] {each.get('content', '')}")
    return made


def _part_text(part: pb.Part) -> str:
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "data":
            return json.dumps(MessageToDict(part.data)) + "\n"
        case "raw":
            return f"[{part.filename or 'file'}: {part.media_type or 'unknown type'}, {len(part.raw)} bytes]\n"
        case "url":
            return f"[{part.filename or 'file'}: {part.url}]\n"
    return ""


def _words(status: pb.TaskStatus) -> str:
    return " ".join(part.text for part in status.message.parts if part.text).strip()


def _tool_title(update: Any) -> str:
    data = MessageToDict(update.metadata)
    call = data.get("toolCall")
    return str(call.get("title", "")) if isinstance(call, dict) else ""
