"""What the scripted model does is written in the prompt itself:

    SCRIPT: CALL bash {"command": "touch a"} AND SAY wait THEN SAY done;;

A step is one answer of the model; a tool's result leads to the next step. Steps are joined by THEN, the actions of a
step by AND; `;;` or the text's end closes the script.

    CALL TOOL {json}    call a tool            SLEEP SECONDS         pause the stream
    SAY TEXT            answer text            STREAM COUNT [SECS]   COUNT small pieces of text, SECS apart
    THINK TEXT          reasoning              BIG BYTES             one piece of text of that size
    HANG                never go on            ERROR STATUS [TIMES]  an HTTP error (the first TIMES requests only)
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


class ScriptError(ValueError):
    """The prompt's script does not follow the grammar."""


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Think:
    text: str


@dataclass(frozen=True, slots=True)
class Pause:
    """`seconds` None: for ever."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Fail:
    status: int
    times: int | None


Action = Call | Say | Think | Pause | Fail


@dataclass(frozen=True, slots=True)
class Event:
    """One piece of the conversation as any API tells it: `who` is `user` (text) or `call` (the id of a tool call)."""

    who: str
    value: str


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    actions: tuple[Action, ...]
    script: str = ""


VERBS = ("CALL", "SAY", "THINK", "SLEEP", "STREAM", "BIG", "HANG", "ERROR")
_VERB = re.compile(rf"({'|'.join(VERBS)})\b\s*")
_JOINT = re.compile(rf"\s*\b(THEN|AND)\s+(?=(?:{'|'.join(VERBS)})\b)")
_END = re.compile(r"\s*(;;|\Z)")
_STEP_OF_CALL = re.compile(r"_s(\d+)_")


def decide(events: list[Event], *, has_tools: bool) -> Step:
    """The step that the conversation has reached. A request without tools (a title, a summary) is not the script's."""
    if not has_tools:
        return Step(0, (Say("Scripted title"),))
    start = max((index for index, event in enumerate(events) if _holds_script(event)), default=None)
    if start is None:
        return Step(0, (Say("The prompt holds no script."),))
    source = events[start].value.partition("SCRIPT:")[2]
    try:
        steps = parse(source)
    except ScriptError as error:
        return Step(0, (Say(f"Bad script: {error}"),))
    done = (_STEP_OF_CALL.search(event.value) for event in events[start:] if event.who == "call")
    number = max((int(found[1]) + 1 for found in done if found), default=0)
    actions = steps[number] if number < len(steps) else (Say("The script is over."),)
    return Step(number, actions, source)


def call_id(step: int, index: int, unique: str) -> str:
    """An id for a tool call that `decide` reads the step from when the result comes back."""
    return f"s{step}_{index}_{unique}"


def _holds_script(event: Event) -> bool:
    return event.who == "user" and "SCRIPT:" in event.value


def parse(source: str) -> list[tuple[Action, ...]]:
    """The steps of a script without its `SCRIPT:`. Raises ScriptError."""
    steps: list[list[Action]] = [[]]
    position = len(source) - len(source.lstrip())
    while True:
        verb = _VERB.match(source, position)
        if not verb:
            raise ScriptError(f"a verb was expected at {source[position : position + 30]!r}")
        actions, position = _action(verb[1], source, verb.end())
        steps[-1] += actions
        if _END.match(source, position):
            return [tuple(step) for step in steps]
        joint = _JOINT.match(source, position)
        if not joint:
            raise ScriptError(f"THEN, AND or ;; was expected at {source[position : position + 30]!r}")
        if joint[1] == "THEN":
            steps.append([])
        position = joint.end()


def _action(verb: str, source: str, start: int) -> tuple[list[Action], int]:
    """(the actions of one verb, the position behind them)."""
    if verb == "CALL":
        return _call(source, start)
    ends = [found.start() for each in (_JOINT, _END) if (found := each.search(source, start))]
    end = min(ends)
    text = source[start:end]
    try:
        return _plain(verb, text), end
    except ValueError:
        raise ScriptError(f"{verb} cannot take {text!r}") from None


def _call(source: str, start: int) -> tuple[list[Action], int]:
    tool, _, rest = source[start:].partition(" ")
    brace = len(source) - len(rest.lstrip())
    try:
        arguments, end = json.JSONDecoder().raw_decode(source, brace)
    except ValueError as error:
        raise ScriptError(f"CALL {tool} needs a JSON object: {error}") from None
    if not isinstance(arguments, dict):
        raise ScriptError(f"CALL {tool} needs a JSON object")
    return [Call(tool, arguments)], end


def _plain(verb: str, text: str) -> list[Action]:
    match verb:
        case "SAY":
            return [Say(text)]
        case "THINK":
            return [Think(text)]
        case "SLEEP":
            return [Pause(float(text))]
        case "HANG":
            return [Pause(None)]
        case "BIG":
            return [Say("x" * int(text))]
        case "STREAM":
            count, _, seconds = text.partition(" ")
            pieces: list[Action] = []
            for number in range(int(count)):
                pieces += [Say(f"w{number} "), Pause(float(seconds or 0))]
            return pieces
    status, _, times = text.partition(" ")
    return [Fail(int(status), int(times) if times else None)]
