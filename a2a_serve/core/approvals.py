"""What a question shows, which options it offers, and what an answer means (requirements Q1 to Q3)."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import unicodedata
from dataclasses import asdict
from typing import Any

from a2a_serve.core.errors import OptionUnknown
from a2a_serve.core.model import Action, Diff, Option, ToolCall

ALLOW, DENY = "allow", "deny"
_OPPOSITE = {ALLOW: "reject_once", DENY: "allow_once"}
YES = frozenset({"y", "yes", "allow", "ok", "okay", "approve", "approved"})
NO = frozenset({"n", "no", "deny", "reject", "stop"})

_LONG_RUN = re.compile(r" {17,}")
_ESCAPED = re.compile(r"\\u\{([0-9a-f]+)(?:\*(\d+))?\}")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Shown as nothing though they count as letters, marks or symbols (Unicode's Default_Ignorable_Code_Point, and a blank).
_BLANK = frozenset(
    {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, *range(0xFE00, 0xFE10), 0xFFA0}
    | set(range(0xE0000, 0xE1000))
)
_VERBS = {
    "read": "Read",
    "search": "Search",
    "edit": "Edit",
    "delete": "Delete",
    "move": "Move",
    "fetch": "Fetch",
    "switch_mode": "Switch mode",
}
TITLE_LENGTH = 120


def escape(text: str, *, keep: str = "\t") -> str:
    r"""Make every invisible or layout-changing character visible as `\u{hex}`; `unescape` gives back the exact text.

    Long runs of spaces, which push the rest of a line out of sight, become `\u{20*COUNT}`. Characters in `keep` stay.
    """
    text = text.replace("\\u{", "\\u{5c}u{")
    text = "".join(char if char in keep or not _is_hidden(char) else f"\\u{{{ord(char):x}}}" for char in text)
    return _LONG_RUN.sub(lambda run: f"\\u{{20*{len(run.group())}}}", text)


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) * int(found[2] or 1), text)


def _is_hidden(char: str) -> bool:
    if " " <= char <= "~":
        return False
    category = unicodedata.category(char)
    return category in _HIDDEN or category == "Zs" or ord(char) in _BLANK


def one_line(text: str, limit: int = TITLE_LENGTH) -> str:
    """`text` escaped on one line, cut to `limit` characters with an ellipsis."""
    line = escape(text, keep="")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def describe(call: ToolCall) -> str:
    """The server's own one-line rendering of a tool call, from its input; the agent's title only where none is."""
    if call.command is not None:
        return one_line(f"Run: {call.command}")
    if call.paths and call.kind in _VERBS:
        verb = "Create" if call.kind == "edit" and call.diffs and call.diffs[0].old is None else _VERBS[call.kind]
        return one_line(f"{verb} {', '.join(call.paths)}")
    if call.raw_input:
        return one_line(f"{call.title or call.kind or 'Tool call'}: {_compact(call.raw_input)}")
    return one_line(call.title or f"Tool call ({call.kind or 'unknown kind'})")


def unified(diff: Diff) -> str:
    """The file's change as a unified diff (`/dev/null` stands for a file that does not exist yet)."""
    before = "/dev/null" if diff.old is None else f"a/{diff.path.lstrip('/')}"
    lines = difflib.unified_diff(
        (diff.old or "").splitlines(keepends=True),
        diff.new.splitlines(keepends=True),
        before,
        f"b/{diff.path.lstrip('/')}",
    )
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def render(call: ToolCall) -> Action:
    """The whole action for people, and the digest that binds an answer to it."""
    kind = "execute" if call.command is not None else one_line(call.kind or "other")
    diff = "".join(escape(unified(diff), keep="\t\n") for diff in call.diffs)
    return Action(
        kind=kind,
        title=describe(call),
        text=_whole(call, diff),
        digest=hashlib.sha256(_canonical(call, kind)).hexdigest(),
        command=None if call.command is None else escape(call.command, keep="\t\n"),
        path=escape(call.paths[0]) if call.paths else None,
        diff=diff or None,
    )


def is_blank(call: ToolCall) -> bool:
    """Nothing is known of what would happen: such a call can only be denied."""
    return not (call.raw_input or call.diffs or call.paths or call.title.strip())


def same_action(before: ToolCall, after: ToolCall) -> bool:
    """Whether an update left what a person was shown as it was: same files, same command or diff or input."""
    return _shown(before) == _shown(after) and (not before.paths or before.paths == after.paths)


def _shown(call: ToolCall) -> Any:
    return call.command or call.diffs or call.raw_input or None


def _canonical(call: ToolCall, kind: str) -> bytes:
    whole = {
        "kind": kind,
        "title": call.title,
        "rawInput": call.raw_input,
        "paths": call.paths,
        "diffs": [asdict(diff) for diff in call.diffs],
    }
    return json.dumps(whole, sort_keys=True, separators=(",", ":"), default=str).encode("utf-8", "surrogatepass")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _numbered(text: str) -> str:
    """One line as it is; several with numbers, so that no line can pass for the server's own words."""
    lines = text.split("\n")
    if len(lines) == 1:
        return f"  {escape(text)}"
    return "\n".join(f"  {number}| {escape(line)}" for number, line in enumerate(lines, 1))


def _whole(call: ToolCall, diff: str) -> str:
    if call.command is not None:
        return f"Run this command:\n{_numbered(call.command)}"
    if diff:
        return f"{describe(call)}\n{diff}"
    if call.raw_input:
        value = (
            call.raw_input
            if isinstance(call.raw_input, str)
            else json.dumps(call.raw_input, indent=1, ensure_ascii=False)
        )
        return f"{describe(call)}\n{_numbered(value)}"
    if call.paths:
        return describe(call)
    return f"The agent gave no details. It calls this: {describe(call)}"


def offer(call: ToolCall, options: tuple[Option, ...]) -> tuple[Option, ...]:
    """The options shown: the agent's once-only ones. `Always` is the server's to keep, and never offered from here.

    A blank call cannot be allowed; a way to deny is always there. An id that could be taken for another choice (the
    agent gave it to two kinds, or calls a rejection `allow`) is not offered.
    """
    clear = [option for option in options if reply_id(option, options) and _OPPOSITE.get(option.id) != option.kind]
    allowed = [] if is_blank(call) else [option for option in clear if option.kind == "allow_once"]
    denied = [option for option in clear if option.kind == "reject_once"]
    shown = (*allowed, *(denied or (Option(DENY, "reject_once", "Deny"),)))
    return tuple(Option(option.id, option.kind, one_line(option.name, 80)) for option in shown)


def reply_id(choice: Option, options: tuple[Option, ...]) -> str | None:
    """The id that tells the agent this choice and no other; None where it has none (it then hears `cancelled`)."""
    kinds = {option.kind for option in options if option.id == choice.id}
    return choice.id if kinds == {choice.kind} else None


def choose(option_id: str, options: tuple[Option, ...]) -> Option:
    """The option that an answer names. `allow` and `deny` mean the first of their kind, whatever ids the agent chose.

    Raises OptionUnknown naming what can be chosen.
    """
    kind = {ALLOW: "allow_once", DENY: "reject_once"}.get(option_id)
    for option in options:
        if (option.kind == kind) if kind else (option.id == option_id):
            return option
    known = ", ".join(dict.fromkeys([*(option.id for option in options), ALLOW, DENY]))
    raise OptionUnknown("The question has no such option.", f"Choose one of: {known}.")


def read_words(text: str) -> tuple[str, str]:
    """What plain words answer: (`allow` or `deny`, reason). Anything but yes or no denies with those words."""
    word = text.strip().strip(".!").casefold()
    if word in YES:
        return ALLOW, ""
    return DENY, "" if word in NO else text.strip()
