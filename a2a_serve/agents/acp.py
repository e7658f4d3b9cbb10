"""One agent process spoken to over ACP: sessions, prompts, permission answers.

The ACP library keeps request ids and shapes; our own Transport stands in front of it. It takes everything that the
agent starts (updates, permission requests, withdrawals) out of the stream in wire order, because the library would run
each as a task of its own and let `_meta` keys replace arguments. The library sees only responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import acp
import orjson
from acp import schema
from pydantic import ValidationError

from a2a_serve import __version__
from a2a_serve.agents import AgentKind
from a2a_serve.agents.framing import Lines, ProtocolViolation
from a2a_serve.agents.updates import to_event, to_permission, to_usage
from a2a_serve.core import events as e
from a2a_serve.core.errors import AgentFailure, AgentLoginRequired
from a2a_serve.core.model import Prompt
from a2a_serve.sandbox import AgentProcess, Exit

log = logging.getLogger(__name__)

Deliver = Callable[[e.AgentEvent], Awaitable[None]]

SEND_SECONDS = 30.0
METHOD_NOT_FOUND = -32601
AUTH_REQUIRED = -32000


class Transport:
    """ACP messages over an AgentProcess; hands the library only responses, everything else to `Agent`."""

    def __init__(
        self,
        process: AgentProcess,
        on_message: Callable[[dict[str, Any]], Awaitable[None]],
        on_end: Callable[[], None],
    ) -> None:
        self._process = process
        self._on_message, self._on_end = on_message, on_end
        self.lines = Lines(process.read)
        self.violation: ProtocolViolation | None = None

    async def send(self, message: dict[str, Any]) -> None:
        line = orjson.dumps(message) + b"\n"
        try:
            await asyncio.wait_for(self._process.write(line), SEND_SECONDS)
        except TimeoutError:
            await self._process.stop(0)
            raise ConnectionError("the agent does not read its input") from None

    async def receive(self) -> dict[str, Any] | None:
        try:
            while (message := await self.lines.next()) is not None:
                if "method" not in message:
                    return _with_integer_id(message)
                await self._on_message(message)
        except ProtocolViolation as violation:
            log.warning("agent process ended: %s", violation)
            self.violation = violation
            await self._process.stop(0)
        except ConnectionError:
            pass
        self._on_end()
        return None

    async def close(self) -> None:
        """The process is ended by its owner; there is nothing else to let go of."""


def _with_integer_id(response: dict[str, Any]) -> dict[str, Any]:
    """Some agents send our integer id back as a string, which the library would ignore for ever."""
    if isinstance(number := response.get("id"), str) and number.isdecimal():
        return {**response, "id": int(number)}
    return response


class _NoClient:
    """What the library asks of a client: nothing reaches it, see Transport."""


class Session:
    """One ACP session: a conversation's memory in its agent process. One prompt at a time."""

    def __init__(self, agent: Agent, session_id: str, *, fresh: bool) -> None:
        self.id = session_id
        self.fresh = fresh
        self._agent = agent
        self._deliver: Deliver | None = None
        self._prompt: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return not self._agent.lost

    @property
    def running(self) -> bool:
        return self._deliver is not None

    async def check(self) -> None:
        """Raise SandboxBroken where the process's protection no longer holds."""
        await self._agent.process.check()

    def prompt(self, prompt: Prompt, deliver: Deliver) -> None:
        """Send a prompt; everything that follows comes to `deliver` in wire order, its end as the last event."""
        self._agent.begin_turn()
        self._deliver = deliver
        self._prompt = asyncio.create_task(self._run(prompt, deliver))

    async def _run(self, prompt: Prompt, deliver: Deliver) -> None:
        event = await self._agent.run_prompt(self.id, prompt)
        await deliver(event)

    async def reply(self, request_id: str, option_id: str | None, words: str = "") -> None:
        """Answer a permission request: the option chosen, or None for the outcome `cancelled`."""
        await self._agent.reply(request_id, option_id, words)

    async def cancel(self) -> None:
        """Ask the agent to end its prompt (ACP session/cancel)."""
        with contextlib.suppress(ConnectionError, acp.RequestError):
            await self._agent.cancel(self.id)

    async def close(self) -> None:
        """The conversation is forgotten; an agent that can frees what it kept for it."""
        await self._agent.close_session(self.id)

    async def stop_process(self) -> None:
        """End the whole agent process: it can no longer be trusted, or does not listen."""
        await self._agent.close(0)

    async def end(self) -> None:
        """The turn is over: what the agent still says out of turn goes nowhere."""
        self._deliver = None
        if self._prompt:
            self._prompt.cancel()
            await asyncio.gather(self._prompt, return_exceptions=True)
            self._prompt = None

    async def take(self, event: e.AgentEvent) -> bool:
        """Deliver an event to the running turn; False when none runs."""
        if self._deliver is None:
            return False
        await self._deliver(event)
        return True


class Agent:
    """A connected agent process. Created by `connect`; `lost` once its end has been seen."""

    def __init__(self, process: AgentProcess, kind: AgentKind, cwd: str) -> None:
        self.process = process
        self.lost = False
        self._kind, self._cwd = kind, cwd
        self._sessions: dict[str, Session] = {}
        self._requests: dict[str, tuple[Any, str]] = {}
        self._next_request = 0
        self._capabilities = schema.AgentCapabilities()
        self._transport = Transport(process, self._take, self._end)
        self._connection = acp.connect_to_agent(cast(Any, _NoClient()), self._transport)

    @classmethod
    async def connect(cls, process: AgentProcess, kind: AgentKind, cwd: str, seconds: float = 60) -> Agent:
        """Initialize within `seconds`. Raises AgentFailure with the cause; the process is then ended."""
        agent = cls(process, kind, cwd)
        try:
            async with asyncio.timeout(seconds):
                answer = await agent._connection.initialize(
                    protocol_version=1,
                    client_capabilities=schema.ClientCapabilities(),
                    client_info=schema.Implementation(name="a2a-serve", version=__version__),
                )
        except (TimeoutError, ConnectionError, acp.RequestError, ValidationError) as error:
            failure = await agent._failure(error, "did not start speaking ACP", seconds)
            await agent.close(0)
            raise failure from error
        agent._capabilities = answer.agent_capabilities or agent._capabilities
        return agent

    async def new_session(self, seconds: float = 90) -> Session:
        """A session with no memory. Raises AgentFailure."""
        meta = self._kind.session_meta
        answer = await self._ask("open a session", seconds, self._connection.new_session(cwd=self._cwd, **meta))
        return await self._adopt(answer.session_id, answer.modes, fresh=True)

    async def restore_session(self, session_id: str, seconds: float = 120) -> Session:
        """A stored session with its memory: resumed where the agent can, else loaded with the replay unheard.

        Raises AgentFailure when the agent has lost it.
        """
        can_resume = (self._capabilities.session_capabilities or schema.SessionCapabilities()).resume is not None
        if not can_resume and not self._capabilities.load_session:
            raise AgentFailure("The agent cannot load an earlier session.")
        restore = self._connection.resume_session if can_resume else self._connection.load_session
        asking = restore(cwd=self._cwd, session_id=session_id, mcp_servers=[], **self._kind.session_meta)
        answer = await self._ask("load the session", seconds, asking)
        return await self._adopt(session_id, getattr(answer, "modes", None), fresh=False)

    async def close_session(self, session_id: str, seconds: float = 30) -> None:
        self._sessions.pop(session_id, None)
        offered = self._capabilities.session_capabilities or schema.SessionCapabilities()
        if offered.close is not None:
            with contextlib.suppress(AgentFailure):
                await self._ask("close a session", seconds, self._connection.close_session(session_id=session_id))

    async def _adopt(self, session_id: str, modes: schema.SessionModeState | None, *, fresh: bool) -> Session:
        await self._force_mode(session_id, modes)
        session = self._sessions[session_id] = Session(self, session_id, fresh=fresh)
        return session

    async def _force_mode(self, session_id: str, modes: schema.SessionModeState | None) -> None:
        """A session in a mode that acts without asking is never used (a restored one comes back in any mode)."""
        mode = self._kind.mode
        if not mode:
            return
        if modes is not None and mode not in {each.id for each in modes.available_modes}:
            raise AgentFailure(f"The agent does not offer the mode {mode!r}, in which it asks before changes.")
        asking = self._connection.set_session_mode(session_id=session_id, mode_id=mode)
        await self._ask(f"switch to the mode {mode!r}", 30, asking)

    async def _ask(self, what: str, seconds: float, asking: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await asking
        except (TimeoutError, ConnectionError, acp.RequestError, ValidationError) as error:
            raise await self._failure(error, f"could not {what}", seconds) from error

    async def _failure(self, error: Exception, what: str, seconds: float) -> AgentFailure:
        if isinstance(error, acp.RequestError):
            if error.code == AUTH_REQUIRED:
                return AgentLoginRequired("The agent is not signed in.", "The owner can see the cause with `doctor`.")
            log.warning("the agent %s: %s (%s)", what, error, error.code)
            return AgentFailure(f"The agent {what} (error {error.code}).")
        if isinstance(error, TimeoutError):
            return AgentFailure(f"The agent {what} within {seconds:g} seconds.")
        if isinstance(error, ValidationError):
            return AgentFailure(f"The agent {what}: its answer does not follow ACP.")
        cause = await self.cause()
        failure = AgentFailure(f"The agent {what}. {cause.sentence}")
        failure.code = cause.code
        return failure

    # --- prompts ---------------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        self._transport.lines.begin_turn()

    async def run_prompt(self, session_id: str, prompt: Prompt) -> e.AgentEvent:
        """Send a prompt and wait for its end, which is returned as the turn's last event."""
        request = {"sessionId": session_id, "prompt": list(prompt.blocks), "_meta": {"a2a": prompt.meta}}
        try:
            # The library would refuse a stop reason that it does not know; what decides is read here.
            answer = await self._connection._conn.send_request("session/prompt", request)
        except acp.RequestError as error:
            return _failed(error)
        except ConnectionError:
            return await self.cause()
        result = answer if isinstance(answer, dict) else {}
        return e.PromptEnded(str(result.get("stopReason", "end_turn")), to_usage(result.get("usage")))

    async def cancel(self, session_id: str) -> None:
        await self._connection.cancel(session_id=session_id)

    async def reply(self, request_id: str, option_id: str | None, words: str) -> None:
        wire_id, _ = self._requests.pop(request_id)
        outcome: dict[str, Any] = {"outcome": "cancelled"}
        if option_id is not None:
            outcome = {"outcome": "selected", "optionId": option_id}
        if words:
            outcome["_meta"] = {"a2a": {"reason": words}}
        with contextlib.suppress(ConnectionError):
            await self._transport.send({"jsonrpc": "2.0", "id": wire_id, "result": {"outcome": outcome}})

    # --- what the agent starts -------------------------------------------------------------------------------------

    async def _take(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        match message["method"]:
            case "session/update":
                await self._take_update(params)
            case "session/request_permission" if "id" in message:
                await self._take_permission(message["id"], params)
            case "$/cancel_request":
                await self._take_withdrawal(params.get("requestId"))
            case method if "id" in message:
                error = {"code": METHOD_NOT_FOUND, "message": f"{str(method)[:80]} is not offered"}
                await self._transport.send({"jsonrpc": "2.0", "id": message["id"], "error": error})

    async def _take_update(self, params: dict[str, Any]) -> None:
        session = self._sessions.get(_text(params.get("sessionId")))
        update = params.get("update")
        if session is None or not isinstance(update, dict):
            return
        if update.get("sessionUpdate") == "current_mode_update" and session.running:
            await self._hold_mode(update.get("currentModeId"))
        elif (event := to_event(update, self._cwd)) is not None:
            await session.take(event)

    async def _hold_mode(self, mode: Any) -> None:
        """An agent that leaves the mode in which it asks is stopped before it can use the new one."""
        if self._kind.mode and mode != self._kind.mode:
            raise ProtocolViolation(f"The agent left the mode {self._kind.mode!r}, in which it asks before changes.")

    async def _take_permission(self, wire_id: Any, params: dict[str, Any]) -> None:
        """A request of a session without a running turn, or of an unknown one, is refused at once."""
        self._next_request += 1
        request_id = f"r{self._next_request}"
        session_id = _text(params.get("sessionId"))
        self._requests[request_id] = (wire_id, session_id)
        session = self._sessions.get(session_id)
        if session is None or not await session.take(to_permission(request_id, params, self._cwd)):
            await self.reply(request_id, None, "")

    async def _take_withdrawal(self, wire_id: Any) -> None:
        for request_id, (known, session_id) in list(self._requests.items()):
            if known == wire_id and (session := self._sessions.get(session_id)):
                await session.take(e.PermissionWithdrawn(request_id))

    # --- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self.lost = True

    async def cause(self) -> e.AgentLost:
        """Why the process is gone; called once its stream has ended."""
        if self._transport.violation:
            return e.AgentLost(self._transport.violation.code, self._transport.violation.sentence)
        try:
            async with asyncio.timeout(10):
                return _lost(await self.process.wait())
        except TimeoutError:
            return e.AgentLost("agent_lost", "The connection to the agent ended.")

    async def close(self, grace: float) -> None:
        """End the process, then the connection."""
        self.lost = True
        await self.process.stop(grace)
        await self._connection.close()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _lost(end: Exit) -> e.AgentLost:
    code = "out_of_memory" if end.out_of_memory else "agent_exited"
    return e.AgentLost(code, end.sentence or f"The agent's process ended with code {end.code}.")


def _failed(error: acp.RequestError) -> e.PromptFailed:
    """Our code for an agent's error; its own text goes to the log only."""
    data = error.data if isinstance(error.data, dict) else {}
    log.warning("the agent failed a prompt: %s (%s)", error, error.code)
    if error.code == AUTH_REQUIRED:
        return e.PromptFailed("agent_login_required", "The agent is not signed in to its model.")
    if data.get("errorKind") == "rate_limit" or "429" in str(error):
        return e.PromptFailed("rate_limited", "The model's rate limit is reached. Try again later in the same context.")
    return e.PromptFailed("agent_error", f"The agent reported an error (code {error.code}).")
