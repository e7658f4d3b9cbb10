"""JSON-RPC 2.0 with an agent process, one object a line: our requests and their answers, the agent's own messages.

Not the ACP library: of it we would use only the matching of ids. It validates every update by models whose import
takes a second and 30 MiB, runs each message as a task of its own (which reorders them), and lets `_meta` keys replace
arguments. Tests hold what we send against its models.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from a2a_serve.agents.framing import Lines, ProtocolViolation
from a2a_serve.sandbox import AgentProcess

log = logging.getLogger(__name__)

Json = dict[str, Any]

SEND_SECONDS = 30.0
METHOD_NOT_FOUND = -32601


class RpcError(Exception):
    """The agent answered a request with an error. Its message is the agent's own text: for the log only."""

    def __init__(self, error: Any) -> None:
        fields = error if isinstance(error, dict) else {}
        code, data = fields.get("code"), fields.get("data")
        super().__init__(str(fields.get("message", ""))[:500])
        self.code = code if isinstance(code, int) else 0
        self.data: Json = data if isinstance(data, dict) else {}


class Wire:
    """Both directions of one agent process.

    `on_message` gets what the agent starts (requests and notifications), one at a time, in wire order; the next line
    is not read before it returns. Every request that is still open when the stream ends raises ConnectionError.
    """

    def __init__(self, process: AgentProcess, on_message: Callable[[Json], Awaitable[None]]) -> None:
        self.lines = Lines(process.read)
        self.violation: ProtocolViolation | None = None
        self.ended = False
        self._process, self._on_message = process, on_message
        self._ids = itertools.count(1)
        self._open: dict[int, asyncio.Future[Json]] = {}
        self._reading = asyncio.create_task(self._read())

    async def request(self, method: str, params: Json) -> Json:
        """Ask and wait for the answer, {} where it is no object. Raises RpcError, or ConnectionError at the end."""
        if self.ended:
            raise ConnectionError("the agent's stream has ended")
        number = next(self._ids)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            await self._send({"id": number, "method": method, "params": params})
            return await answer
        finally:
            self._open.pop(number, None)

    async def notify(self, method: str, params: Json) -> None:
        await self._send({"method": method, "params": params})

    async def respond(self, request_id: Any, result: Json) -> None:
        await self._send({"id": request_id, "result": result})

    async def refuse(self, request_id: Any, sentence: str) -> None:
        await self._send({"id": request_id, "error": {"code": METHOD_NOT_FOUND, "message": sentence}})

    async def close(self) -> None:
        """To be called once the process is ended."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._end()

    async def _send(self, message: Json) -> None:
        """In bounded time: an agent that does not read is ended."""
        try:
            line = orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n"
            async with asyncio.timeout(SEND_SECONDS):  # not `wait_for`: that of Python 3.11 can swallow a cancel
                await self._process.write(line)
        except TimeoutError:
            await self._process.stop(0)
            raise ConnectionError("the agent does not read its input") from None

    async def _read(self) -> None:
        try:
            while (message := await self.lines.next()) is not None:
                if "method" in message:
                    await self._on_message(message)
                else:
                    self._take_answer(message)
        except ProtocolViolation as violation:
            log.warning("agent process ended: %s", violation)
            self.violation = violation
            await self._process.stop(0)
        except ConnectionError:
            pass
        except Exception:
            log.exception("reading from the agent failed")
            await self._process.stop(0)
        finally:
            self._end()

    def _take_answer(self, message: Json) -> None:
        number = message.get("id")
        if isinstance(number, str) and number.isdecimal():  # some agents send our number back as text
            number = int(number)
        answer = self._open.get(number) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(RpcError(message["error"]))
        else:
            result = message.get("result")
            answer.set_result(result if isinstance(result, dict) else {})

    def _end(self) -> None:
        self.ended = True
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the agent's stream has ended"))
