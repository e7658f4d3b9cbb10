"""A bare ACP client: starts an agent by its command, keeps every message both ways in wire order, answers by script.

It knows no schema and no library, so a test sees exactly what was on the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Answer = Callable[[Json], Json | None]
"""From the agent's request to our result; None leaves it open."""

LEFT_OPEN = {"session/request_permission", "elicitation/create"}
"""Questions wait for ever unless `answers` says otherwise; whatever else the agent asks for is not offered."""

CANCELLED: Json = {"outcome": {"outcome": "cancelled"}}


def choose(kind: str, words: str = "") -> Answer:
    """Answers a permission request by the first option of `kind`, with a person's words where there are any."""

    def answer(request: Json) -> Json | None:
        for option in request["params"]["options"]:
            if option["kind"] == kind:
                outcome: Json = {"outcome": "selected", "optionId": option["optionId"]}
                return {"outcome": {**outcome, **({"_meta": {"a2a": {"reason": words}}} if words else {})}}
        return CANCELLED

    return answer


allow, deny = choose("allow_once"), choose("reject_once")


@dataclass(slots=True)
class Driver:
    """`received`: what the agent sent, in order. `answers`: by method, how its requests are answered."""

    process: asyncio.subprocess.Process
    received: list[Json] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    _next_id: int = 0
    _waiting: dict[int, asyncio.Future[Json]] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def send(self, message: Json) -> None:
        await self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def begin(self, method: str, **params: Any) -> asyncio.Future[Json]:
        """Send a request; the whole response comes later."""
        self._next_id += 1
        waiting = self._waiting[self._next_id] = asyncio.get_running_loop().create_future()
        await self.send({"id": self._next_id, "method": method, "params": params})
        return waiting

    async def ask(self, method: str, **params: Any) -> Json:
        """The whole response to a request, an error too."""
        return await asyncio.wait_for(await self.begin(method, **params), 30)

    async def result(self, method: str, **params: Any) -> Json:
        response = await self.ask(method, **params)
        assert "result" in response, response
        result: Json = response["result"]
        return result

    async def initialize(self, **capabilities: Any) -> Json:
        return await self.result("initialize", protocolVersion=1, clientCapabilities=capabilities)

    async def open(self, cwd: object, **more: Any) -> str:
        result = await self.result("session/new", cwd=str(cwd), mcpServers=[], **more)
        return str(result["sessionId"])

    async def prompt(self, session: str, *texts: str) -> Json:
        """The response to a prompt of text blocks."""
        return await self.ask("session/prompt", sessionId=session, prompt=blocks(*texts))

    async def wait_for(self, wanted: Callable[[Json], bool], seconds: float = 20) -> Json:
        """The first message, received already or later, that is `wanted`."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: any(map(wanted, self.received)))
        return next(filter(wanted, self.received))

    def updates(self, session: str | None = None) -> list[Json]:
        """The updates received so far, of one session or of all."""
        params = [message["params"] for message in self.received if message.get("method") == "session/update"]
        return [each["update"] for each in params if session in (None, each["sessionId"])]

    def text(self, session: str | None = None, kind: str = "agent_message_chunk") -> str:
        chunks = [each for each in self.updates(session) if each["sessionUpdate"] == kind]
        return "".join(each["content"]["text"] for each in chunks)

    def requests(self, method: str = "session/request_permission") -> list[Json]:
        return [message for message in self.received if message.get("method") == method]

    def forget(self) -> None:
        """Only what comes from now on counts."""
        self.received.clear()

    async def pump(self) -> None:
        """Read until the agent's stdout ends; then every open request fails."""
        assert self.process.stdout
        while line := await self.process.stdout.readline():
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict):
                    await self._take(message)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the agent is gone"))
                waiting.exception()

    async def _take(self, message: Json) -> None:
        async with self._changed:
            self.received.append(message)
            self._changed.notify_all()
        if "method" not in message:
            waiting = self._waiting.get(message.get("id") or 0)
            if waiting and not waiting.done():
                waiting.set_result(message)
        elif "id" in message and message["method"] in self.answers:
            result = self.answers[message["method"]](message)
            if result is not None:
                await self.send({"id": message["id"], "result": result})
        elif "id" in message and message["method"] not in LEFT_OPEN:
            await self.send({"id": message["id"], "error": {"code": -32601, "message": "not offered"}})


def blocks(*texts: str) -> list[Json]:
    return [{"type": "text", "text": text} for text in texts]


@asynccontextmanager
async def driving(
    command: Sequence[str], env: Mapping[str, str] | None = None, cwd: object = "/", limit: int = 64 << 20
) -> AsyncIterator[Driver]:
    """A started agent. Afterwards it and all that it started are gone, whatever process group they chose."""
    mark = f"{MARK}={uuid.uuid4().hex}"
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**(os.environ if env is None else env), MARK: mark.partition("=")[2]},
        cwd=str(cwd),
        limit=limit,
        start_new_session=True,
    )
    driver = Driver(process)
    reading = asyncio.create_task(driver.pump())
    try:
        yield driver
    finally:
        kill_marked(mark.encode())
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await process.communicate()


MARK = "ACP_DRIVER"


def kill_marked(mark: bytes) -> None:
    """Kill every process whose environment holds the mark, until there is none."""
    while found := [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _is_marked(pid, mark)]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
