"""One agent process spoken to over the Agent Client Protocol, v1: sessions, prompts, permission answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from a2a_serve import __version__
from a2a_serve.agents import AgentKind
from a2a_serve.agents.framing import ProtocolViolation
from a2a_serve.agents.rpc import Json, RpcError, Wire
from a2a_serve.agents.updates import to_event, to_permission, to_usage
from a2a_serve.core import events as e
from a2a_serve.core.errors import AgentFailure, AgentLoginRequired
from a2a_serve.core.model import Prompt
from a2a_serve.sandbox import AgentProcess, Exit

log = logging.getLogger(__name__)

Deliver = Callable[[e.AgentEvent], Awaitable[None]]

PROTOCOL_VERSION = 1
AUTH_REQUIRED = -32000
NO_HOST_ACCESS: Json = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
"""Client capabilities: an agent acts in its sandbox, never on the host through us."""


class Session:
    """One ACP session: a conversation's memory in its agent process. One prompt at a time."""

    def __init__(self, agent: Agent, session_id: str) -> None:
        self.id = session_id
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
        await self._agent.cancel(self.id)

    async def close(self) -> None:
        """The conversation is forgotten; an agent that can frees what it kept for it."""
        await self._agent.close_session(self.id)

    async def stop_process(self) -> None:
        """End the whole agent process: it can no longer be trusted, or does not listen."""
        await self._agent.close(0)

    async def end(self) -> None:
        """The turn is over: what the agent still says out of turn goes nowhere, what it still asks is refused."""
        self._deliver = None
        await self._agent.refuse_requests(self.id)
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
    """A connected agent process. Created by `connect`."""

    def __init__(self, process: AgentProcess, kind: AgentKind, cwd: str) -> None:
        self.process = process
        self._kind, self._cwd = kind, cwd
        self._sessions: dict[str, Session] = {}
        self._requests: dict[str, tuple[Any, str]] = {}
        self._next_request = 0
        self._capabilities: Json = {}
        self._wire = Wire(process, self._take)

    @property
    def lost(self) -> bool:
        """The process's stream has ended; it takes no more prompts."""
        return self._wire.ended

    @classmethod
    async def connect(cls, process: AgentProcess, kind: AgentKind, cwd: str, seconds: float = 60) -> Agent:
        """Initialize within `seconds`. Raises AgentFailure with the cause; the process is then ended."""
        agent = cls(process, kind, cwd)
        try:
            await agent._initialize(seconds)
        except BaseException:
            await agent.close(0)
            raise
        return agent

    async def _initialize(self, seconds: float) -> None:
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": NO_HOST_ACCESS,
            "clientInfo": {"name": "a2a-serve", "version": __version__},
        }
        answer = await self._ask("start speaking ACP", seconds, "initialize", params)
        if answer.get("protocolVersion") != PROTOCOL_VERSION:
            raise AgentFailure(f"The agent does not speak version {PROTOCOL_VERSION} of ACP.")
        self._capabilities = _object(answer.get("agentCapabilities"))

    # --- sessions --------------------------------------------------------------------------------------------------

    async def new_session(self, seconds: float = 90) -> Session:
        """A session with no memory. Raises AgentFailure."""
        answer = await self._ask("open a session", seconds, "session/new", self._session_params())
        session_id = answer.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise AgentFailure("The agent opened a session without an id.")
        return await self._adopt(session_id, answer)

    async def restore_session(self, session_id: str, seconds: float = 120) -> Session:
        """A stored session with its memory: resumed where the agent can, else loaded with the replay unheard.

        Raises AgentFailure when the agent has lost it.
        """
        if self._offers("resume"):
            method = "session/resume"
        elif self._capabilities.get("loadSession") is True:
            method = "session/load"
        else:
            raise AgentFailure("The agent cannot load an earlier session.")
        params = {**self._session_params(), "sessionId": session_id}
        return await self._adopt(session_id, await self._ask("load the session", seconds, method, params))

    async def close_session(self, session_id: str, seconds: float = 30) -> None:
        self._sessions.pop(session_id, None)
        if self._offers("close"):
            with contextlib.suppress(AgentFailure):
                await self._ask("close a session", seconds, "session/close", {"sessionId": session_id})

    def _session_params(self) -> Json:
        meta = {"_meta": self._kind.session_meta} if self._kind.session_meta else {}
        return {"cwd": self._cwd, "mcpServers": [], **meta}

    def _offers(self, capability: str) -> bool:
        return _object(self._capabilities.get("sessionCapabilities")).get(capability) is not None

    async def _adopt(self, session_id: str, answer: Json) -> Session:
        if self._kind.mode:
            await self._force_mode(session_id, _object(answer.get("modes")))
        session = self._sessions[session_id] = Session(self, session_id)
        return session

    async def _force_mode(self, session_id: str, modes: Json) -> None:
        """A session in a mode that acts without asking is never used (a restored one comes back in any mode)."""
        mode = self._kind.mode
        offered = modes.get("availableModes")
        if isinstance(offered, list) and mode not in [_object(each).get("id") for each in offered]:
            raise AgentFailure(f"The agent does not offer the mode {mode!r}, in which it asks before changes.")
        params = {"sessionId": session_id, "modeId": mode}
        await self._ask(f"switch to the mode {mode!r}", 30, "session/set_mode", params)

    async def _ask(self, what: str, seconds: float, method: str, params: Json) -> Json:
        try:
            async with asyncio.timeout(seconds):
                return await self._wire.request(method, params)
        except TimeoutError:
            raise AgentFailure(f"The agent did not {what} within {seconds:g} seconds.") from None
        except RpcError as error:
            log.warning("the agent could not %s: %s (%s)", what, error, error.code)
            if error.code == AUTH_REQUIRED:
                raise AgentLoginRequired("The agent is not signed in.", "`a2a-serve doctor` tells more.") from error
            raise AgentFailure(f"The agent could not {what} (error {error.code}).") from error
        except ConnectionError:
            cause = await self._cause()
            failure = AgentFailure(f"The agent did not {what}. {cause.sentence}")
            failure.code = cause.code
            raise failure from None

    # --- prompts ---------------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        self._wire.lines.begin_turn()

    async def run_prompt(self, session_id: str, prompt: Prompt) -> e.AgentEvent:
        """Send a prompt and wait for its end, which is returned as the turn's last event."""
        params = {"sessionId": session_id, "prompt": list(prompt.blocks), "_meta": {"a2a": prompt.meta}}
        try:
            answer = await self._wire.request("session/prompt", params)
        except RpcError as error:
            return _failed(error)
        except ConnectionError:
            return await self._cause()
        return e.PromptEnded(_text(answer.get("stopReason")), to_usage(answer.get("usage")))

    async def cancel(self, session_id: str) -> None:
        with contextlib.suppress(ConnectionError):
            await self._wire.notify("session/cancel", {"sessionId": session_id})

    async def reply(self, request_id: str, option_id: str | None, words: str) -> None:
        wire_id, _ = self._requests.pop(request_id)
        outcome: Json = {"outcome": "cancelled"}
        if option_id is not None:
            outcome = {"outcome": "selected", "optionId": option_id}
        if words:
            outcome["_meta"] = {"a2a": {"reason": words}}
        with contextlib.suppress(ConnectionError):
            await self._wire.respond(wire_id, {"outcome": outcome})

    async def refuse_requests(self, session_id: str) -> None:
        """Those that nobody has answered: an agent that waits for an answer would never take another prompt."""
        for request_id in [each for each, (_, asked_in) in self._requests.items() if asked_in == session_id]:
            await self.reply(request_id, None, "")

    # --- what the agent starts -------------------------------------------------------------------------------------

    async def _take(self, message: Json) -> None:
        params = _object(message.get("params"))
        match message["method"]:
            case "session/update":
                await self._take_update(params)
            case "session/request_permission" if "id" in message:
                await self._take_permission(message["id"], params)
            case "$/cancel_request":
                await self._take_withdrawal(params.get("requestId"))
            case method if "id" in message:
                await self._wire.refuse(message["id"], f"{str(method)[:80]} is not offered")

    async def _take_update(self, params: Json) -> None:
        session = self._sessions.get(_text(params.get("sessionId")))
        update = params.get("update")
        if session is None or not isinstance(update, dict):
            return
        if update.get("sessionUpdate") == "current_mode_update" and session.running:
            self._hold_mode(update.get("currentModeId"))
        elif (event := to_event(update, self._cwd)) is not None:
            await session.take(event)

    def _hold_mode(self, mode: Any) -> None:
        """An agent that leaves the mode in which it asks is stopped before it can use the new one."""
        if self._kind.mode and mode != self._kind.mode:
            raise ProtocolViolation(f"The agent left the mode {self._kind.mode!r}, in which it asks before changes.")

    async def _take_permission(self, wire_id: Any, params: Json) -> None:
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

    async def _cause(self) -> e.AgentLost:
        """Why the process is gone; called once its stream has ended."""
        if self._wire.violation:
            return e.AgentLost(self._wire.violation.code, self._wire.violation.sentence)
        try:
            async with asyncio.timeout(10):
                return _lost(await self.process.wait())
        except TimeoutError:
            return e.AgentLost("agent_lost", "The connection to the agent ended.")

    async def close(self, grace: float) -> None:
        """End the process, then the connection."""
        await self.process.stop(grace)
        await self._wire.close()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _lost(end: Exit) -> e.AgentLost:
    code = "out_of_memory" if end.out_of_memory else "agent_exited"
    return e.AgentLost(code, end.sentence or f"The agent's process ended with code {end.code}.")


def _failed(error: RpcError) -> e.PromptFailed:
    """Our code for an agent's error; its own text goes to the log only."""
    log.warning("the agent failed a prompt: %s (%s)", error, error.code)
    if error.code == AUTH_REQUIRED:
        return e.PromptFailed("agent_login_required", "The agent is not signed in to its model.")
    if error.data.get("errorKind") == "rate_limit" or "429" in str(error):
        return e.PromptFailed("rate_limited", "The model's rate limit is reached. Try again later in the same context.")
    return e.PromptFailed("agent_error", f"The agent reported an error (code {error.code}).")
