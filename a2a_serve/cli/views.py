"""What `send` shows of a task: text for people as it comes, or A2A's own JSON. Events are A2A's JSON too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from a2a_serve.cli.output import field, visible

Json = dict[str, Any]

UNHAPPY = ("TASK_STATE_FAILED", "TASK_STATE_REJECTED", "TASK_STATE_CANCELED")


class TextView:
    """The agent's text on stdout, bare; everything else on stderr, and only on a terminal while the task runs."""

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._shown: dict[str, str] = {}
        self._told = ""
        self._in_line = False

    def event(self, event: Json) -> None:
        match event:
            case {"message": message}:
                self._text("".join(_part_text(part) for part in message.get("parts", ())))
            case {"task": task}:
                for artifact in task.get("artifacts", ()):
                    self._artifact(artifact, append=False)
                self._status(task.get("status", {}), "")
            case {"statusUpdate": update}:
                title = field(update, "metadata", "toolCall", "title")
                self._status(update.get("status", {}), str(title or ""))
            case {"artifactUpdate": update}:
                self._artifact(update.get("artifact", {}), append=bool(update.get("append")))

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

    def _artifact(self, artifact: Json, *, append: bool) -> None:
        name = str(artifact.get("artifactId", ""))
        before = self._shown.get(name, "")
        text = "".join(_part_text(part) for part in artifact.get("parts", ()))
        whole = before + text if append else text
        self._shown[name] = whole
        new = whole.removeprefix(before)
        if new and _is_answer(name):
            self._text(new)
        elif new:
            self.aside(_aside_of(name, artifact, new))

    def _status(self, status: Json, title: str) -> None:
        state = status.get("state")
        if state in UNHAPPY:
            word = str(state).removeprefix("TASK_STATE_").capitalize()
            self.note(f"{word}: {_words(status) or 'no reason given'}")
        elif state == "TASK_STATE_WORKING":
            title = title or _words(status)
            if title and title != self._told:
                self._told = title
                self.aside(f"· {title}")


class JsonView:
    """A2A's JSON: with `stream` each event on its own line, else nothing until the end."""

    def __init__(self, stream: bool) -> None:
        self._stream = stream
        self.document: Json = {}
        """The last whole task, or the message that came instead."""

    def event(self, event: Json) -> None:
        if self._stream:
            click.echo(json.dumps(event))
        self.document = event.get("task") or event.get("message") or self.document

    def note(self, text: str) -> None:
        click.echo(visible(text), err=True)


def _is_answer(name: str) -> bool:
    return not (name in ("thinking", "plan") or name.startswith("diff:"))


def _aside_of(name: str, artifact: Json, text: str) -> str:
    if name.startswith("diff:"):
        return f"· Changed {name.removeprefix('diff:')}"
    if name == "plan":
        return "Plan:\n" + "\n".join(f"  {number}. {entry}" for number, entry in enumerate(_plan(artifact), 1))
    return text.strip()


def _plan(artifact: Json) -> Iterator[str]:
    for part in artifact.get("parts", ()):
        entries = field(part, "data", "entries")
        for each in entries if isinstance(entries, list) else ():
            mark = "x" if field(each, "status") == "completed" else " "
            yield f"[{mark}] {field(each, 'content') or ''}"


def _part_text(part: Json) -> str:
    name = part.get("filename") or "file"
    match part:
        case {"text": text}:
            return str(text)
        case {"data": data}:
            return json.dumps(data) + "\n"
        case {"raw": raw}:
            return f"[{name}: {part.get('mediaType') or 'unknown type'}, {len(raw) * 3 // 4} bytes]\n"
        case {"url": url}:
            return f"[{name}: {url}]\n"
    return ""


def _words(status: Json) -> str:
    parts = field(status, "message", "parts")
    return " ".join(str(part["text"]) for part in parts or () if part.get("text")).strip()
