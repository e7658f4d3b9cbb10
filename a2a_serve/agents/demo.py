"""The demo agent: a scripted colleague that needs no model, no key and no network.

It speaks the Agent Client Protocol (version 1) as JSON lines on stdin and stdout, and does what the lines of a prompt
say (see COMMANDS). It asks before it writes a file or runs a command. Run by its path; standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]

COMMANDS = (
    "say TEXT",
    "think TEXT",
    "plan A; B; C",
    "read PATH",
    "write PATH TEXT",
    "run COMMAND",
    "sleep SECONDS",
    "chunks N",
    "ask QUESTION? A | B",
    "recall",
    "fail TEXT",
    "call CONTACT TEXT",
)
HELP = "I can do these, one a line: " + " · ".join(COMMANDS)
OUTPUT_LIMIT = 64 << 10
FILE_LIMIT = 1 << 20
LINE_LIMIT = 32 << 20
MEMORY_LIMIT = 256 << 10
"""How many characters of what it was told `recall` says back; in tokens (a quarter) the context size it reports."""
CHUNKS_A_WRITE = 256
CHUNKS_A_TURN = 1_000_000
PERMISSION_OPTIONS = [
    {"optionId": "yes", "name": "Yes, this time", "kind": "allow_once"},
    {"optionId": "always", "name": "Yes, and do not ask again for this kind", "kind": "allow_always"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
NOT_FOUND = -32002


class RpcError(Exception):
    """An answer that is a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Problem(Exception):
    """Why a line cannot be done; said to the caller, and the turn goes on."""


# --- the wire --------------------------------------------------------------------------------------------------------


class Wire:
    """JSON-RPC lines, one object each. Everything leaves by `send`, so nothing overtakes anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Json]] = {}

    async def lines(self) -> AsyncIterator[bytes | None]:
        """Each line of stdin without its end; one longer than LINE_LIMIT comes as None."""
        buffer, too_long = bytearray(), False
        while data := await self._reader.read(256 << 10):
            *whole, rest = data.split(b"\n")
            for line in whole:
                buffer += line
                yield None if too_long or len(buffer) > LINE_LIMIT else bytes(buffer)
                buffer, too_long = bytearray(), False
            buffer += rest
            if len(buffer) > LINE_LIMIT:
                buffer, too_long = bytearray(), True

    async def send(self, *messages: Json) -> None:
        await self.send_raw(b"".join(encode(message) for message in messages))

    async def send_raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def request(self, method: str, params: Json) -> Json:
        """Ask the client; its whole response, an error too."""
        request_id = f"demo-{next(self._ids)}"
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            await self.send({"id": request_id, "method": method, "params": params})
            return await answer
        finally:
            del self._waiting[request_id]

    def settle(self, response: Json) -> None:
        """A response of the client; one that nobody waits for is dropped."""
        request_id = response["id"]
        answer = self._waiting.get(request_id) if isinstance(request_id, str) else None
        if answer and not answer.done():
            answer.set_result(response)


def encode(message: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode("ascii") + b"\n"


def update_message(session_id: str, update: Json) -> Json:
    return {"method": "session/update", "params": {"sessionId": session_id, "update": update}}


def text_update(kind: str, text: str) -> Json:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def get(value: Any, *keys: str) -> Any:
    """The value at a path of object keys, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


# --- memory ----------------------------------------------------------------------------------------------------------


class History:
    """One session's file: a JSON object a line, only ever appended to, each by one write.

    `{"cwd"}` first, then `{"told": [lines]}` for each prompt and `{"update": {...}}` for what was answered. A line
    that a crash cut short is skipped when the file is read.
    """

    def __init__(self, session_id: str) -> None:
        self._path = Path.home() / ".local" / "share" / "a2a-demo" / f"{session_id}.jsonl"

    def exists(self) -> bool:
        return self._path.exists()

    def append(self, record: Json) -> None:
        with self._open() as file:
            file.write(b"\n" + json.dumps(record, separators=(",", ":")).encode("ascii"))

    def _open(self) -> Any:
        try:
            return self._path.open("ab")
        except FileNotFoundError:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._path.open("ab")

    def records(self) -> list[Json]:
        found: list[Json] = []
        for line in self._path.read_bytes().split(b"\n"):
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    found.append(record)
        return found


class Session:
    """A conversation: where it works, what it was told, which kinds of action it need not ask for."""

    def __init__(self, session_id: str, cwd: str, told: list[str] | None = None) -> None:
        self.id, self.cwd = session_id, cwd
        self.history = History(session_id)
        self.told = told or []
        self.always: set[str] = set()
        self.turn: asyncio.Task[None] | None = None

    @classmethod
    def restore(cls, session_id: Any, cwd: str) -> Session:
        """A session from its file. The id comes from outside: nothing but our own form reaches the file system."""
        if not isinstance(session_id, str) or not re.fullmatch(r"[0-9a-f]{32}", session_id):
            raise RpcError(NOT_FOUND, "There is no such session.")
        session = cls(session_id, cwd)
        if not session.history.exists():
            raise RpcError(NOT_FOUND, "There is no such session.")
        for record in session.history.records():
            session.told += [line for line in record.get("told", []) if isinstance(line, str)]
        return session

    def remember(self, lines: list[str]) -> None:
        self.told += lines
        self.history.append({"told": lines})

    def remembered(self, before: int) -> list[str]:
        """The newest of the first `before` lines that fit in MEMORY_LIMIT."""
        kept: list[str] = []
        size = 0
        for line in reversed(self.told[:before]):
            size += len(line)
            if size > MEMORY_LIMIT:
                break
            kept.append(line)
        return kept[::-1]

    def replay(self) -> list[Json]:
        """What `session/load` shows again, in order."""
        updates: list[Json] = []
        for record in self.history.records():
            if lines := record.get("told"):
                updates.append(text_update("user_message_chunk", "\n".join(lines)))
            elif isinstance(record.get("update"), dict):
                updates.append(record["update"])
        return updates


# --- a turn ----------------------------------------------------------------------------------------------------------


class Turn:
    """Does the lines of one prompt in order. Cancelling its task ends it wherever it is."""

    def __init__(self, wire: Wire, session: Session, host_line: str, *, elicits: bool) -> None:
        self._wire, self._session, self._host_line, self._elicits = wire, session, host_line, elicits
        self._first = len(session.told)
        self._number = 0
        self._spoken: list[str] = []
        self._said = self._helped = False
        self._characters = 0

    async def run(self, lines: list[str]) -> None:
        self._session.remember(lines)
        try:
            for self._number, line in enumerate(lines):
                await self._do(line)
            if not self._said:
                await self._say("Done." if lines else HELP)
        finally:
            self._flush()

    def usage(self, lines: list[str]) -> tuple[Json, Json]:
        """(`usage_update`, the response's `usage`). Estimates: a token is counted for every four characters."""
        read, written = sum(map(len, lines)) // 4, self._characters // 4
        used = min(sum(map(len, self._session.told)), MEMORY_LIMIT) // 4
        window = {"sessionUpdate": "usage_update", "used": used, "size": MEMORY_LIMIT // 4}
        return window, {"inputTokens": read, "outputTokens": written, "totalTokens": read + written}

    async def _do(self, line: str) -> None:
        word, _, rest = line.strip().partition(" ")
        action = _ACTIONS.get(word.lower())
        if action is None:
            return await self._unknown(line)
        try:
            await action(self, rest.strip())
        except Problem as problem:
            await self._say(str(problem))
        return None

    async def _unknown(self, line: str) -> None:
        help_once = "" if self._helped else f" {HELP}"
        self._helped = True
        await self._say(f"I do not know what to do with {shorten(line)!r}.{help_once}")

    # What it says

    async def _update(self, update: Json, *, keep: bool = True) -> None:
        if keep:
            self._flush()
            self._session.history.append({"update": update})
        await self._wire.send(update_message(self._session.id, update))

    async def _say(self, text: str) -> None:
        """A paragraph of the answer."""
        text = f"\n{text}" if self._said else text
        self._speak(text)
        await self._update(text_update("agent_message_chunk", text), keep=False)

    def _speak(self, text: str) -> None:
        self._said = True
        self._spoken.append(text)
        self._characters += len(text)

    def _flush(self) -> None:
        """What was said since the last record, as one record: a turn of 8,000 chunks must not write 8,000 times."""
        if self._spoken:
            self._session.history.append({"update": text_update("agent_message_chunk", "".join(self._spoken))})
            self._spoken = []

    async def _say_line(self, text: str) -> None:
        await self._say(wanted(text, "say TEXT"))

    async def _think(self, text: str) -> None:
        await self._update(text_update("agent_thought_chunk", wanted(text, "think TEXT")))

    async def _plan(self, text: str) -> None:
        steps = [step.strip() for step in wanted(text, "plan A; B; C").split(";") if step.strip()]
        entries = [{"content": step, "priority": "medium", "status": "pending"} for step in steps]
        await self._update({"sessionUpdate": "plan", "entries": entries})

    async def _chunks(self, text: str) -> None:
        count = int(number(text, "chunks N", CHUNKS_A_TURN))
        head, tail = encode(update_message(self._session.id, text_update("agent_message_chunk", "\0"))).split(
            b"\\u0000"
        )
        for start in range(1, count + 1, CHUNKS_A_WRITE):
            texts = [f"chunk {each} " for each in range(start, min(start + CHUNKS_A_WRITE, count + 1))]
            texts[0] = ("\n" if self._said and start == 1 else "") + texts[0]
            self._speak("".join(texts))
            await self._wire.send_raw(b"".join(head + json.dumps(each)[1:-1].encode("ascii") + tail for each in texts))
            await asyncio.sleep(0)

    async def _sleep(self, text: str) -> None:
        seconds = number(text, "sleep SECONDS", 86_400)
        await asyncio.sleep(seconds)
        await self._say(f"I slept for {seconds:g} s.")

    async def _fail(self, text: str) -> None:
        raise RpcError(INTERNAL_ERROR, text or "I was told to fail.")

    async def _recall(self, text: str) -> None:
        lines = self._session.remembered(self._first + self._number)
        told = [line for line in lines if line.strip().lower() != "recall"]
        await self._say("\n".join(["You told me before:", *(f"- {line}" for line in told)]) if told else NOT_TOLD)

    # What it does: every tool call is announced, asked for where it changes something, then done and told

    async def _read(self, text: str) -> None:
        path = self._path(text, "read PATH")
        call = await self._announce("read", f"Read {path}", {"path": str(path)}, locations=[{"path": str(path)}])
        await self._step(call, "in_progress")
        try:
            content = read_text(path, OUTPUT_LIMIT, cut=True)
        except Problem as problem:
            await self._step(call, "failed", str(problem))
            raise
        await self._step(call, "completed", content)
        await self._say(content or f"{path.name} is empty.")

    async def _write(self, text: str) -> None:
        name, _, content = text.partition(" ")
        path = self._path(name if content else "", "write PATH TEXT")
        old = read_text(path, FILE_LIMIT) if path.exists() else None
        diff = {"type": "diff", "path": str(path), "oldText": old, "newText": content}
        raw = {"path": str(path), "content": content}
        call = await self._announce("edit", f"Write {path}", raw, content=[diff], locations=[{"path": str(path)}])
        if not await self._allowed(call, f"write {name}"):
            return
        await self._step(call, "in_progress")
        try:
            write_text(path, old, content)
        except Problem as problem:
            await self._step(call, "failed", str(problem))
            raise
        await self._update({**call, "sessionUpdate": "tool_call_update", "status": "completed"})
        await self._say(f"I wrote {len(content)} characters to {name}.")

    async def _run(self, text: str) -> None:
        command = wanted(text, "run COMMAND")
        call = await self._announce("execute", command, {"command": command})
        if await self._allowed(call, f"run {shorten(command)!r}"):
            await self._say(await self._execute(call, command))

    async def _execute(self, call: Json, command: str) -> str:
        await self._step(call, "in_progress")
        code, output = await run_command(command, self._session.cwd)
        await self._step(call, "completed" if code == 0 else "failed", output, {"exitCode": code})
        ending = "" if code == 0 else f"\n[exit code {code}]"
        return f"{output.rstrip()}{ending}".strip() or "The command ended without output."

    async def _call(self, text: str) -> None:
        contact, _, message = wanted(text, "call CONTACT TEXT").partition(" ")
        handle, contacts = read_host_line(self._host_line)
        if contact not in contacts:
            known = f"I know: {', '.join(contacts)}." if contacts else "No contacts exist for me yet."
            raise Problem(f"I cannot call {contact}. {known}")
        if shutil.which("a2a") is None:
            raise Problem(f"I cannot call {contact}: the `a2a` command is not here.")
        words = ["a2a", "send", f"http://a2a/{handle}/{contact}", message, "--timeout", "30m"]
        command = shlex.join(words)
        call = await self._announce("execute", command, {"command": command})
        if await self._allowed(call, f"call {contact}"):
            await self._say(f"{contact} says: {await self._execute(call, command)}")

    def _path(self, text: str, form: str) -> Path:
        return Path(self._session.cwd, wanted(text, form))

    async def _announce(self, kind: str, title: str, raw: Json, **more: Any) -> Json:
        call_id = f"call-{uuid.uuid4().hex[:12]}"
        call = {"toolCallId": call_id, "title": title, "kind": kind, "status": "pending", "rawInput": raw, **more}
        await self._update({"sessionUpdate": "tool_call", **call})
        return call

    async def _step(self, call: Json, status: str, output: str | None = None, raw_output: Any = None) -> None:
        update = {"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": status}
        if output is not None:
            update["content"] = [{"type": "content", "content": {"type": "text", "text": output}}]
        if raw_output is not None:
            update["rawOutput"] = raw_output
        await self._update(update)

    # What it asks

    async def _allowed(self, call: Json, deed: str) -> bool:
        if call["kind"] in self._session.always:
            return True
        option, words = await self._request_permission(call, PERMISSION_OPTIONS)
        if option == "always":
            self._session.always.add(call["kind"])
        if option in {"yes", "always"}:
            return True
        await self._step(call, "failed")
        await self._say(f"I did not {deed}: it was not allowed." + (f" You said: {words}" if words else ""))
        return False

    async def _request_permission(self, call: Json, options: list[Json]) -> tuple[str | None, str]:
        """(the option chosen, or None for a cancelled or malformed answer; the answerer's own words)."""
        params = {"sessionId": self._session.id, "toolCall": call, "options": options}
        answer = await self._wire.request("session/request_permission", params)
        outcome = get(answer, "result", "outcome")
        words = get(outcome, "_meta", "a2a", "reason")
        chosen = get(outcome, "optionId") if get(outcome, "outcome") == "selected" else None
        return chosen if isinstance(chosen, str) else None, words if isinstance(words, str) else ""

    async def _ask(self, text: str) -> None:
        question, mark, rest = text.partition("?")
        choices = [choice.strip() for choice in rest.split("|") if choice.strip()]
        if not mark or not question.strip() or not choices:
            raise Problem("Write it like this: ask QUESTION? A | B")
        ask = self._elicit if self._elicits else self._ask_by_permission
        answer = await ask(f"{question.strip()}?", choices)
        await self._say(answer)

    async def _elicit(self, question: str, choices: list[str]) -> str:
        schema = {
            "type": "object",
            "properties": {"choice": {"type": "string", "title": question, "enum": choices}},
            "required": ["choice"],
        }
        params = {"sessionId": self._session.id, "mode": "form", "message": question, "requestedSchema": schema}
        result = (await self._wire.request("elicitation/create", params)).get("result")
        choice = get(result, "content", "choice")
        return f"You chose: {choice}" if get(result, "action") == "accept" and choice in choices else NOT_CHOSEN

    async def _ask_by_permission(self, question: str, choices: list[str]) -> str:
        """For clients without elicitation: a tool call that changes nothing, with one way to allow it per choice."""
        call = await self._announce("think", question, {"choices": choices})
        options = [
            {"optionId": f"choice-{number}", "name": choice, "kind": "allow_once"}
            for number, choice in enumerate(choices, 1)
        ]
        none = {"optionId": "none", "name": "None of these", "kind": "reject_once"}
        option, words = await self._request_permission(call, [*options, none])
        chosen = next((each["name"] for each in options if each["optionId"] == option), None)
        await self._step(call, "completed" if chosen else "failed")
        return f"You chose: {chosen}" if chosen else f"You said: {words}" if words else NOT_CHOSEN


NOT_TOLD = "You have told me nothing before."
NOT_CHOSEN = "You chose none of them."

_ACTIONS: dict[str, Callable[[Turn, str], Awaitable[None]]] = {
    "say": Turn._say_line,
    "think": Turn._think,
    "plan": Turn._plan,
    "read": Turn._read,
    "write": Turn._write,
    "run": Turn._run,
    "sleep": Turn._sleep,
    "chunks": Turn._chunks,
    "ask": Turn._ask,
    "recall": Turn._recall,
    "fail": Turn._fail,
    "call": Turn._call,
}


def shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def wanted(text: str, form: str) -> str:
    if not text:
        raise Problem(f"Write it like this: {form}")
    return text


def number(text: str, form: str, most: int) -> float:
    """A number from 0 to `most`."""
    try:
        value = float(wanted(text, form))
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise Problem(f"Write it like this: {form} (a number from 0 to {most})")
    return value


def read_host_line(line: str) -> tuple[str, list[str]]:
    """(conversation handle, contacts) from the host's own block: `Conversation k3.` and `Contacts: bob, ann.`"""
    handle = re.search(r"\bConversation (k\d+)\b", line)
    contacts = re.search(r"\bContacts: ([\w., -]+?)\.(?:\s|$)", line)
    if not handle or not contacts:
        return "", []
    return handle[1], [name.strip() for name in contacts[1].split(",")]


def read_text(path: Path, limit: int, *, cut: bool = False) -> str:
    """A regular file's UTF-8 text; longer than `limit` bytes it is cut or refused. Never waits on a pipe or device."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Problem(f"{path} is not a file.")
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise Problem(f"I cannot read {path}: {reason(error)}.") from None
    if len(data) > limit and not cut:
        raise Problem(f"{path} is larger than {limit} bytes.")
    text = data[:limit].decode("utf-8", "replace" if cut else "surrogateescape")
    if not cut and any("\udc80" <= char <= "\udcff" for char in text):
        raise Problem(f"{path} is not a UTF-8 text file.")
    return f"{text}\n[cut after {limit} bytes]" if len(data) > limit else text


def write_text(path: Path, old: str | None, new: str) -> None:
    """Write what was shown, and only over what was shown."""
    try:
        if (read_text(path, FILE_LIMIT) if path.exists() else None) != old:
            raise Problem(f"{path} has changed since I asked; nothing was written.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new, encoding="utf-8", newline="")
    except (OSError, ValueError) as error:
        raise Problem(f"I cannot write {path}: {reason(error)}.") from None


def reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "its name or content is not valid"


async def run_command(command: str, cwd: str) -> tuple[int, str]:
    """(exit code, output) of a shell command. Nothing of its process group outlives it, or a cancel."""
    output = bytearray()
    readable, writable = os.pipe()  # our own pipe: asyncio's would make `wait` wait for every child that holds it
    reading = asyncio.create_task(drain(readable, output))
    try:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", command),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=writable,
            stderr=writable,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise Problem(f"I cannot run that: {reason(error)}.") from None
    finally:
        os.close(writable)
    try:
        await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait({reading}, timeout=1)
        reading.cancel()
    cut = f"\n[cut after {OUTPUT_LIMIT} bytes]" if len(output) > OUTPUT_LIMIT else ""
    return process.returncode or 0, output[:OUTPUT_LIMIT].decode("utf-8", "replace") + cut


async def drain(readable: int, output: bytearray) -> None:
    """Read a pipe to its end, keep the first OUTPUT_LIMIT bytes and one."""
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(readable, "rb"))
    try:
        while data := await stream.read(64 << 10):
            output += data[: OUTPUT_LIMIT + 1 - len(output)]
    finally:
        transport.close()


# --- the agent -------------------------------------------------------------------------------------------------------


class Agent:
    """Answers the client's requests; each prompt runs beside the others."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._sessions: dict[str, Session] = {}
        self._elicits = False
        self._methods: dict[str, Callable[[Json], Awaitable[Json]]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/close": self._close_session,
        }

    async def serve(self) -> None:
        """Until stdin ends; then every turn is cancelled, and with it what it runs."""
        try:
            async for line in self._wire.lines():
                await self._take(line)
        finally:
            await self.close()

    async def close(self) -> None:
        turns = [session.turn for session in self._sessions.values() if session.turn]
        for turn in turns:
            turn.cancel()
        if turns:  # bounded: a client that left without reading would hold up their last words
            await asyncio.wait(turns, timeout=2)

    async def _take(self, line: bytes | None) -> None:
        if line is not None and not line.strip():
            return
        try:
            message = json.loads(line or b"")
        except (ValueError, RecursionError):
            await self._answer(None, RpcError(PARSE_ERROR, "That line is not JSON, or is too long."))
            return
        if not isinstance(message, dict) or not isinstance(message.get("id"), str | int | None):
            await self._answer(None, RpcError(INVALID_REQUEST, "That is not a JSON-RPC request."))
        elif "method" in message:
            await self._dispatch(message)
        elif "id" in message:
            self._wire.settle(message)

    async def _dispatch(self, message: Json) -> None:
        request_id, method, params = message.get("id"), message["method"], message.get("params")
        try:
            params = {} if params is None else params
            if not isinstance(method, str):
                raise RpcError(INVALID_REQUEST, "That is not a JSON-RPC request.")
            if not isinstance(params, dict):
                raise RpcError(INVALID_PARAMS, "params must be an object.")
            if method == "session/prompt" and "id" in message:
                self._prompt(request_id, params)
                # A task cancelled before its first step would never answer its prompt.
                return await asyncio.sleep(0)
            if method == "session/cancel":
                return self._cancel(params)
            if "id" not in message:
                return None
            if method not in self._methods:
                raise RpcError(METHOD_NOT_FOUND, f"I do not know the method {shorten(method)!r}.")
            result: Json | RpcError = await self._methods[method](params)
        except RpcError as error:
            result = error
        except OSError as error:
            result = RpcError(INTERNAL_ERROR, f"I cannot keep my sessions: {reason(error)}.")
        if "id" in message:
            await self._answer(request_id, result)
        return None

    async def _answer(self, request_id: Any, result: Json | RpcError, *before: Json) -> None:
        if isinstance(result, RpcError):
            answer: Json = {"id": request_id, "error": {"code": result.code, "message": result.message}}
        else:
            answer = {"id": request_id, "result": result}
        await self._wire.send(*before, answer)

    async def _initialize(self, params: Json) -> Json:
        self._elicits = get(params, "clientCapabilities", "elicitation", "form") is not None
        return {
            "protocolVersion": 1,
            "agentInfo": {"name": "a2a-demo", "title": "Demo agent", "version": "1"},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "sessionCapabilities": {"close": {}, "resume": {}},
            },
            "authMethods": [],
        }

    async def _new(self, params: Json) -> Json:
        session = Session(uuid.uuid4().hex, folder(params))
        session.history.append({"cwd": session.cwd})
        self._sessions[session.id] = session
        return {"sessionId": session.id}

    async def _load(self, params: Json) -> Json:
        session = await self._restore(params)
        for update in session.replay():
            await self._wire.send(update_message(session.id, update))
        return {}

    async def _resume(self, params: Json) -> Json:
        await self._restore(params)
        return {}

    async def _restore(self, params: Json) -> Session:
        cwd = folder(params)
        known = self._sessions.get(str(params.get("sessionId")))
        if known and known.turn:
            raise RpcError(INVALID_REQUEST, "A prompt is running in this session.")
        session = Session.restore(params.get("sessionId"), cwd)
        self._sessions[session.id] = session
        return session

    async def _close_session(self, params: Json) -> Json:
        session = self._session(params)
        if session.turn:
            session.turn.cancel()
        del self._sessions[session.id]
        return {}

    def _session(self, params: Json) -> Session:
        session_id = params.get("sessionId")
        session = self._sessions.get(session_id) if isinstance(session_id, str) else None
        if session is None:
            raise RpcError(NOT_FOUND, "There is no such session.")
        return session

    def _cancel(self, params: Json) -> None:
        with contextlib.suppress(RpcError):
            if turn := self._session(params).turn:
                turn.cancel()

    def _prompt(self, request_id: Any, params: Json) -> None:
        session = self._session(params)
        if session.turn:
            raise RpcError(INVALID_REQUEST, "A prompt is running in this session.")
        host_line, lines = split_prompt(params.get("prompt"))
        turn = Turn(self._wire, session, host_line, elicits=self._elicits)
        session.turn = asyncio.create_task(self._run(request_id, session, turn, lines))

    async def _run(self, request_id: Any, session: Session, turn: Turn, lines: list[str]) -> None:
        """Run a turn and answer its prompt, however it ends."""
        before: tuple[Json, ...] = ()
        try:
            await turn.run(lines)
            window, usage = turn.usage(lines)
            before = (update_message(session.id, window),)
            result: Json | RpcError = {"stopReason": "end_turn", "usage": usage}
        except asyncio.CancelledError:
            result = {"stopReason": "cancelled"}
        except RpcError as error:
            result = error
        except Exception as error:
            result = RpcError(INTERNAL_ERROR, f"I failed: {type(error).__name__}.")
        session.turn = None
        with contextlib.suppress(ConnectionError):
            await self._answer(request_id, result, *before)


def folder(params: Json) -> str:
    cwd = params.get("cwd")
    if not isinstance(cwd, str) or not os.path.isabs(cwd) or not os.path.isdir(cwd):  # noqa: PTH112, PTH117
        raise RpcError(INVALID_PARAMS, "cwd must be the absolute path of a folder.")
    return cwd


def split_prompt(blocks: Any) -> tuple[str, list[str]]:
    """(the host's block, the caller's lines). Of several blocks the first is the host's and is never executed.

    Blocks that are not text are not commands either: each becomes a line that says what came.
    """
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) for block in blocks):
        raise RpcError(INVALID_PARAMS, "prompt must be a list of content blocks.")
    host, callers = (blocks[0], blocks[1:]) if len(blocks) > 1 else ({}, blocks)
    lines: list[str] = []
    for block in callers:
        text = block.get("text") if block.get("type") == "text" else f"say I was given: {describe(block)}"
        if not isinstance(text, str):
            raise RpcError(INVALID_PARAMS, "a text block needs its text.")
        lines += [line for line in text.splitlines() if line.strip()]
    return str(host.get("text", "")), lines


def describe(block: Json) -> str:
    name = get(block, "resource", "uri") or block.get("uri") or block.get("mimeType") or ""
    return shorten(" ".join(f"{block.get('type')} {name}".split()))


async def main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), sys.stdout.buffer
    )
    wire = Wire(reader, asyncio.StreamWriter(transport, protocol, None, loop))
    serving = asyncio.create_task(Agent(wire).serve())
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError, ConnectionError):
        await serving


if __name__ == "__main__":
    asyncio.run(main())
