"""Drives one turn: takes its events in order and performs the effects that the turn table decides. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from a2a.types.a2a_pb2 import Message, TaskState

from a2a_serve.agents.acp import Session
from a2a_serve.core import events as e
from a2a_serve.core.errors import SandboxBroken, ServeError
from a2a_serve.core.model import Conversation, Identity, Prompt, Question, QuestionState, Role
from a2a_serve.core.turn import State, Turn, TurnError
from a2a_serve.sandbox.host_files import HostFiles
from a2a_serve.server import prompt, surface
from a2a_serve.server.live import LiveTask
from a2a_serve.server.mailbox import Mailbox
from a2a_serve.server.questions import Questions

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: how long text is gathered, deltas stay unsaved, a request waits for its input, a cancel is waited for,
    a question stands."""

    flush: float = 0.02
    save: float = 0.25
    settle: float = 0.15
    cancel: float = 5.0
    expire: float = 3600.0


@dataclass(frozen=True, slots=True)
class Tools:
    """What a turn needs of the rest of the server."""

    conversation: Callable[[str, str], Awaitable[Conversation]]
    """Opener and context id -> the conversation, with the session that this turn may go on with."""
    session: Callable[[Conversation], AbstractAsyncContextManager[Session]]
    remember: Callable[[Conversation, Session], Awaitable[None]]
    snapshot: Callable[[HostFiles | None], Awaitable[HostFiles]]
    """The workspace's host-executed files as they are now; what has not changed since an earlier one is not read."""
    questions: Questions
    clock: Callable[[], float]
    new_id: Callable[[], str]
    timing: Timing


class TurnRun:
    """One task's turn, from its place in the conversation's queue to its final state."""

    def __init__(self, live: LiveTask, message: Message, starter: Identity, turn: Turn, tools: Tools) -> None:
        self.live, self.starter = live, starter
        self._message, self._turn, self._tools = message, turn, tools
        self._mailbox = Mailbox()
        self._timers: dict[str, tuple[float, e.Event | None]] = {}
        self._text: dict[str, list[str]] = {}
        self._flushed_at = 0.0
        self._round = 1
        self._questions: dict[str, Question] = {}
        self._session: Session | None = None
        self._conversation: Conversation | None = None
        self._host_files: HostFiles | None = None
        self._started = tools.clock()
        self._task: asyncio.Task[None] | None = None
        self._aborted: e.Event | None = None

    # --- from outside ----------------------------------------------------------------------------------------------

    def start(self, queue: asyncio.Lock) -> asyncio.Task[None]:
        """Run as soon as the earlier turns of the conversation are over."""
        self._task = asyncio.create_task(self._run(queue), name=f"turn {self.live.id}")
        return self._task

    def cancel(self) -> None:
        """Somebody wants the task canceled; the state changes once the agent has stopped."""
        self._abort(e.CancelRequested())

    def stop(self) -> None:
        """The server stops: the task fails and says so."""
        self._abort(e.AgentLost("server_stopped", "The server was stopped."))

    def _abort(self, event: e.Event) -> None:
        if self._turn.state is State.QUEUED and self._task and self._aborted is None:
            self._aborted = event
            self._task.cancel()
        elif self._turn.state is not State.QUEUED:
            self._mailbox.post(event)

    async def _take_answer(self, question: Question) -> None:
        """The answer is decided and committed; the turn hears it next. Who follows the task sees it go on at once."""
        for request_id, asked in list(self._questions.items()):
            if asked.id == question.id:
                del self._questions[request_id]
                self._mailbox.post(e.Answered(request_id, question.option_id, question.reason))
        await self._show_questions()

    # --- the run ---------------------------------------------------------------------------------------------------

    async def _run(self, queue: asyncio.Lock) -> None:
        try:
            async with queue:
                await self._run_in_session()
        except asyncio.CancelledError:
            if self._aborted is None:
                raise
            await self._receive(self._aborted)
        except ServeError as error:
            log.warning("task %s: %s", self.live.id, error)
            sentence = str(error) if self.starter.is_owner else error.sentence
            await self._receive(e.AgentLost(error.code, sentence))
        except Exception:
            log.exception("the turn of task %s broke", self.live.id)
            await self._receive(e.AgentLost("internal", "The server failed to run this turn."))

    async def _run_in_session(self) -> None:
        conversation = await self._tools.conversation(self.starter.id, self.live.task.context_id)
        async with self._tools.session(conversation) as session:
            try:
                await self._begin(conversation, session)
                await self._loop()
            except BaseException:
                await session.stop_process()  # its prompt runs on, and nobody hears it any more
                raise
            finally:
                self._mailbox.close()
                await session.end()

    async def _begin(self, conversation: Conversation, session: Session) -> None:
        await session.check()
        self._session, self._conversation = session, conversation
        lost = bool(conversation.session_id) and session.id != conversation.session_id
        await self._tools.remember(conversation, session)
        self._send(session, prompt.build(self._message, self.live.id, conversation, self.starter, lost=lost))
        await self._receive(e.Started())

    def _send(self, session: Session, made: Prompt) -> None:
        session.prompt(made, self._mailbox.deliver)

    async def _loop(self) -> None:
        while self._turn.state is not State.DONE:
            event = await self._mailbox.next(self._next_due())
            if event is not None:
                await self._receive(event)
            await self._run_timers()

    async def _receive(self, event: e.Event) -> None:
        try:
            effects = self._turn.receive(event, self._now())
        except TurnError as error:
            log.debug("task %s: %s", self.live.id, error)
            return
        for effect in effects:
            await _PERFORM[type(effect)](self, effect)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- timers ----------------------------------------------------------------------------------------------------

    def _next_due(self) -> float | None:
        deadline = self._turn.deadline()
        dues = [due for due, _ in self._timers.values()]
        return min(dues if deadline is None else [*dues, deadline], default=None)

    def _set_timer(self, name: str, seconds: float, event: e.Event | None = None) -> None:
        self._timers.setdefault(name, (self._now() + seconds, event))

    async def _run_timers(self) -> None:
        now = self._now()
        for name in [name for name, (due, _) in self._timers.items() if due <= now]:
            _, event = self._timers.pop(name)
            if event is not None:
                await self._receive(event)
            elif name == "flush":
                self._flush()
            else:
                await self.live.commit()
        deadline = self._turn.deadline()
        if deadline is not None and deadline <= now:
            await self._receive(e.DeadlinePassed())

    # --- effects: what callers see ---------------------------------------------------------------------------------

    async def _working(self, effect: e.Working) -> None:
        self._flush()
        if self._turn.state is State.WAITING:
            return  # the question stays the status until it is answered
        metadata = surface.working_metadata(effect)
        self.live.show_working(self._tools.clock(), effect.line, self._tools.new_id(), metadata)

    async def _publish_text(self, effect: e.PublishText) -> None:
        name = "response" if self._round == 1 else f"response-{self._round}"
        if effect.text:
            self._gather(name, effect.text)
        if effect.last:
            self._flush()
            self.live.append_text(name, "", last=True)

    async def _publish_file(self, effect: e.PublishFile) -> None:
        self._flush()
        self.live.put_artifact(surface.file_artifact(effect.file))

    async def _publish_thought(self, effect: e.PublishThought) -> None:
        if self.starter.role is not Role.GUEST:
            self._gather("thinking", effect.text)

    def _gather(self, artifact_id: str, text: str) -> None:
        """The first text goes out at once, then every few milliseconds; order between artifacts is kept."""
        if self._text and artifact_id not in self._text:
            self._flush()
        self._text.setdefault(artifact_id, []).append(text)
        wait = self._flushed_at + self._tools.timing.flush - self._now()
        if wait <= 0:
            self._flush()
        else:
            self._set_timer("flush", wait)

    def _flush(self) -> None:
        self._timers.pop("flush", None)
        if not self._text:
            return
        self._flushed_at = self._now()
        for artifact_id, pieces in self._text.items():
            self.live.append_text(artifact_id, "".join(pieces), last=False)
        self._text.clear()
        self._set_timer("save", self._tools.timing.save)

    async def _publish_plan(self, effect: e.PublishPlan) -> None:
        self._flush()
        self.live.put_artifact(surface.plan_artifact(effect.entries))

    async def _publish_diff(self, effect: e.PublishDiff) -> None:
        self._flush()
        self.live.put_artifact(surface.diff_artifact(effect.path, effect.unified))

    # --- effects: questions ----------------------------------------------------------------------------------------

    async def _settle_soon(self, effect: e.SettleSoon) -> None:
        event = e.Settled(effect.request_id)
        self._set_timer(f"settle {effect.request_id}", self._tools.timing.settle, event)

    async def _check_soon(self, effect: e.CheckSoon) -> None:
        event = e.ProgressOverdue(effect.call_id)
        self._set_timer(f"progress {effect.call_id}", self._turn.progress_grace, event)

    async def _ask(self, effect: e.Ask) -> None:
        self._flush()
        expire = self._tools.timing.expire
        question = self._tools.questions.draft(effect, self.live.id, self.live.task.context_id, self.starter, expire)
        self._questions[effect.request_id] = question
        await self._tools.questions.open(question, self._take_answer)
        expired = e.QuestionExpired(effect.request_id)
        self._set_timer(f"expire {effect.request_id}", expire, expired)
        await self._show_questions()

    async def _show_questions(self) -> None:
        """All open questions of the task as its status; back to working when there is none."""
        now, message_id = self._tools.clock(), self._tools.new_id()
        if not self._questions:
            self.live.resume(now, message_id)
        elif not self.live.is_over:
            parts = surface.question_parts(list(self._questions.values()))
            await self.live.settle(TaskState.TASK_STATE_INPUT_REQUIRED, now, parts, message_id, {})

    async def _close_question(self, effect: e.CloseQuestion) -> None:
        self._timers.pop(f"expire {effect.request_id}", None)
        if question := self._questions.pop(effect.request_id, None):
            await self._tools.questions.close(question.id, QuestionState(effect.state))
        if effect.state != QuestionState.SUPERSEDED:  # whose successor is asked next
            await self._show_questions()

    async def _reply(self, effect: e.Reply) -> None:
        self._timers.pop(f"expire {effect.request_id}", None)
        self._timers.pop(f"settle {effect.request_id}", None)
        assert self._session is not None
        if effect.option_id is not None:
            self._host_files = self._host_files or await self._tools.snapshot(None)
            if not await self._is_intact(self._session):
                return
        await self._session.reply(effect.request_id, effect.option_id, effect.words)

    async def _is_intact(self, session: Session) -> bool:
        """What was approved is let go on only in a sandbox that still protects the host."""
        try:
            await session.check()
        except SandboxBroken as broken:
            await session.stop_process()
            self._mailbox.post(e.AgentLost(broken.code, str(broken)))
            return False
        return True

    # --- effects: the agent and the end ----------------------------------------------------------------------------

    async def _prompt_again(self, effect: e.PromptAgain) -> None:
        assert self._session is not None
        assert self._conversation is not None
        self._round += 1
        self._send(self._session, prompt.again(effect.text, self.live.id, self._conversation, self.starter))

    async def _cancel_prompt(self, effect: e.CancelPrompt) -> None:
        assert self._session is not None
        self._set_timer("overdue", self._tools.timing.cancel, e.CancelOverdue())
        await self._session.cancel()

    async def _stop_process(self, effect: e.StopProcess) -> None:
        log.warning("task %s: agent process stopped (%s): %s", self.live.id, effect.code, effect.sentence)
        if self._session:
            await self._session.stop_process()

    async def _finish(self, effect: e.Finish) -> None:
        self._flush()
        self._timers.clear()
        now = self._tools.clock()
        parts = [surface.text_part(effect.sentence)] if effect.sentence else []
        metadata: dict[str, Any] = surface.final_metadata(effect, now - self._started)
        if changes := await self._host_file_changes():
            parts.append(surface.text_part(surface.host_file_warning(changes)))
            metadata["hostFiles"] = changes
        await self.live.settle(surface.FINAL[effect.state], now, parts, self._tools.new_id(), metadata)

    async def _host_file_changes(self) -> list[str]:
        """Since the turn's first allow: what was changed that this machine runs later (requirement S3)."""
        if self._host_files is None:
            return []
        changes = self._host_files.changes(await self._tools.snapshot(self._host_files))
        for change in changes:
            log.warning("task %s: a file that this machine runs was changed: %s", self.live.id, change)
        return changes


_PERFORM: dict[type[Any], Callable[[TurnRun, Any], Awaitable[None]]] = {
    e.Working: TurnRun._working,
    e.PublishText: TurnRun._publish_text,
    e.PublishFile: TurnRun._publish_file,
    e.PublishThought: TurnRun._publish_thought,
    e.PublishPlan: TurnRun._publish_plan,
    e.PublishDiff: TurnRun._publish_diff,
    e.SettleSoon: TurnRun._settle_soon,
    e.CheckSoon: TurnRun._check_soon,
    e.Ask: TurnRun._ask,
    e.CloseQuestion: TurnRun._close_question,
    e.Reply: TurnRun._reply,
    e.PromptAgain: TurnRun._prompt_again,
    e.CancelPrompt: TurnRun._cancel_prompt,
    e.StopProcess: TurnRun._stop_process,
    e.Finish: TurnRun._finish,
}
