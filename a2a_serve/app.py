"""The composition root: builds the parts from the settings, starts them in order, closes them in reverse. No logic.

Start is recovery (crash-only): what an earlier server left behind is swept in named steps before anyone is served.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import os
import secrets
import shutil
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.routing import Router

from a2a_serve import __version__
from a2a_serve.agents import launch
from a2a_serve.agents.acp import Session
from a2a_serve.agents.launch import ProcessName
from a2a_serve.agents.pool import Pool
from a2a_serve.auth import tokens
from a2a_serve.auth.gate import Gate
from a2a_serve.auth.peer import PeerMethod, user_name
from a2a_serve.auth.tokens import TokenMethod
from a2a_serve.config import AgentDir, Loaded, Lock, Settings, origin_of, register_server
from a2a_serve.core.calls import Calls
from a2a_serve.core.model import Conversation, Role
from a2a_serve.core.policy import Memory
from a2a_serve.core.turn import Turn
from a2a_serve.listeners import ASGIApp, Endpoint
from a2a_serve.listeners.local import ConnectionLimits, TcpListener, UnixListener
from a2a_serve.log import hide
from a2a_serve.outbound import models
from a2a_serve.sandbox import host_files
from a2a_serve.server import a2a, card, control, executor
from a2a_serve.server.http import Guard, Limits, Rules
from a2a_serve.server.questions import Questions
from a2a_serve.server.tasks import Tasks
from a2a_serve.store.access import Pairings
from a2a_serve.store.conversations import Conversations
from a2a_serve.store.conversations import Questions as QuestionStore
from a2a_serve.store.db import Database
from a2a_serve.store.tasks import Tasks as TaskStore

log = logging.getLogger(__name__)

Announce = Callable[[dict[str, Any]], None]
Progress = Callable[[str], None]

STOP_SECONDS = 5.0
CONTROL_BYTES = 1 << 20
BINDINGS = {"jsonrpc": ("JSONRPC", a2a.JSONRPC_PATH), "rest": ("HTTP+JSON", a2a.REST_PATH)}


async def run(directory: AgentDir, loaded: Loaded, announce: Announce, progress: Progress) -> None:
    """Serve the agent directory until SIGINT, SIGTERM or the control socket's `stop`.

    `announce` gets the status once everything serves; `progress` a line for each long step.
    Raises ServeError with the next step where it cannot start.
    """
    directory.prepare()
    with Lock(directory):
        async with AsyncExitStack() as closing:
            server = Server(directory, loaded.settings, progress, closing)
            await server.open_store()
            await server.open_sandbox()
            await server.fail_leftovers()
            await server.listen()
            server.stop_on_signals()
            announce(await server.status())
            relax_garbage_collection()
            sweeping = asyncio.create_task(server.forget_old_sessions())
            await server.stopping.wait()
            log.info("stopping")
            sweeping.cancel()


class Server:
    """The parts of one server, each made by a named step; what a step opens is closed in reverse."""

    def __init__(self, directory: AgentDir, settings: Settings, progress: Progress, closing: AsyncExitStack) -> None:
        self.directory, self.settings, self.progress = directory, settings, progress
        self.stopping = asyncio.Event()
        self.started_at = time.time()
        self.boot = uuid.uuid4().hex
        self.owner = hashlib.sha256(os.fsencode(directory.root)).hexdigest()[:16]
        self.kind = launch.choose_kind(settings, os.environ)
        self.upstreams = {
            name: models.Upstream(name, each.upstream, each.read_key(), each.scheme)
            for name, each in settings.models.items()
        }
        self.memory = Memory(settings.session.reuse_by_context, settings.session.ttl)
        self.endpoints: list[Endpoint] = []
        self._closing = closing

    # --- steps of a start ------------------------------------------------------------------------------------------

    async def open_store(self) -> None:
        database = await Database.open(self.directory.database)
        self._closing.push_async_callback(database.close)
        self.pairings = Pairings(database)
        self.conversations = Conversations(database)
        self.questions = Questions(QuestionStore(database), clock=time.time, new_id=new_id)
        self._task_store = TaskStore(database)

    async def open_sandbox(self) -> None:
        """The image is made ready, and what an earlier server of this directory left running is removed."""
        self.sandbox, image = await launch.open_sandbox(self.settings, self.kind, self.progress)
        self._closing.push_async_callback(self.sandbox.close)
        if count := await self.sandbox.reap(self.owner, self.boot):
            log.info("removed %d agent processes that an earlier server left behind", count)
        self.models = models.client()
        self._closing.push_async_callback(self.models.aclose)
        upstream = self.upstreams.get(self.kind.model)
        start = launch.Launch(
            self.settings,
            self.kind,
            self.directory.root,
            image,
            self.owner,
            self.boot,
            has_model=bool(upstream and upstream.key),
        )
        doors = launch.make_doors(self.owner)
        self._closing.callback(shutil.rmtree, doors, ignore_errors=True)
        self.warnings = self.sandbox.warnings(start.spec(ProcessName("", doors, self.directory.homes)))
        self.pool = Pool(
            self.kind,
            self.sandbox,
            cwd=str(self.directory.root),
            homes=self.directory.homes,
            doors=doors,
            describe=start.spec,
            door=self._door,
            open_door=start.open_door,
            idle_stop=self.settings.turns.idle_stop,
        )
        self._closing.push_async_callback(self.pool.close)

    async def fail_leftovers(self) -> None:
        """Tasks and questions of an earlier server have no turn any more."""
        self.tasks = Tasks(self._task_store, self._tools(), self._new_turn)
        questions = await self.questions.close_leftovers()
        tasks = await self.tasks.fail_leftovers()
        if tasks or questions:
            log.info("an earlier server left %d tasks and %d questions open; they are closed", tasks, questions)

    async def listen(self) -> None:
        """Serve; at the end tasks close first, so that every open stream gets its last event."""
        await self._listen_control()
        await self._listen_tcp()
        self._closing.push_async_callback(self.tasks.close)

    async def forget_old_sessions(self) -> None:
        """Every `session.cleanup_interval`: what is older than `session.ttl` is closed in the agent, too."""
        session = self.settings.session
        while session.ttl and session.cleanup_interval:
            await asyncio.sleep(session.cleanup_interval)
            for conversation in await self.conversations.forget_sessions(before=time.time() - session.ttl):
                await self.pool.forget(conversation)

    async def _listen_control(self) -> None:
        listener = UnixListener("control", self.directory.control_socket)
        host = control.Host(self.status, self._pair, self._token_for, self.stopping.set)
        app = control.Control(self.questions, host).app()
        sizes = Limits(body=CONTROL_BYTES, body_of_strangers=CONTROL_BYTES)
        await listener.start(Guard(app, Gate([PeerMethod()]), Rules(names=None), sizes))
        self._closing.push_async_callback(listener.stop, STOP_SECONDS)

    async def _listen_tcp(self) -> None:
        listen = self.settings.listen
        limits = self.settings.limits
        connections = ConnectionLimits(connections=limits.connections)
        listener = TcpListener("local", listen.host, listen.port, limits=connections)
        listener.bind()
        origin = f"http://{listen.host}:{listener.port}"
        base = (listen.url or origin).rstrip("/")
        self.origins, self.card_url = {origin_of(origin), origin_of(base)}, f"{base}{card.PATH}"
        self.endpoints = [
            Endpoint(name, base + path) for key, (name, path) in BINDINGS.items() if key in listen.bindings
        ]
        self._local_token = tokens.derive_local(self.directory.state_key())
        hide(self._local_token, *(each.key for each in self.upstreams.values() if each.key))
        gate = Gate([TokenMethod(self.pairings.find, self._local_token, user_name(os.geteuid()))])
        handler = a2a.Handler(self.tasks)
        if listen.grpc:
            self.endpoints.append(await self._listen_grpc(handler, gate))
        made = card.build(self.settings.card, self.endpoints)
        routes = [card.route(made, self.started_at), *a2a.routes(handler, set(listen.bindings))]
        rules = Rules(hosts=(urlsplit(base).netloc,) if listen.url else ())
        sizes = Limits(body=limits.max_request_mib << 20)
        await listener.start(Guard(Router(routes), gate, rules, sizes))
        self._closing.push_async_callback(listener.stop, STOP_SECONDS)
        for each in self.origins:
            register_server(each, self.directory.root)

    async def _listen_grpc(self, handler: a2a.Handler, gate: Gate) -> Endpoint:
        from a2a_serve.listeners.grpc import GrpcLimits, GrpcListener
        from a2a_serve.server.grpc import Application

        listen = self.settings.listen
        limits = GrpcLimits(message=self.settings.limits.max_request_mib << 20)
        listener = GrpcListener("grpc", listen.host, int(listen.grpc_port), limits=limits)
        await listener.start(Application(handler, gate, listener=listener.name))
        self._closing.push_async_callback(listener.stop, STOP_SECONDS)
        return Endpoint("GRPC", listener.target)

    # --- what the parts ask for ------------------------------------------------------------------------------------

    def _tools(self) -> executor.Tools:
        timing = executor.Timing(cancel=self.settings.turns.cancel_grace, expire=self.settings.questions.expire)
        return executor.Tools(
            conversation=self._conversation,
            session=self.pool.session,
            remember=self._remember,
            snapshot=partial(asyncio.to_thread, host_files.snapshot, self.directory.root),
            questions=self.questions,
            clock=time.time,
            new_id=new_id,
            timing=timing,
        )

    def _new_turn(self) -> Turn:
        kind, turns = self.kind, self.settings.turns
        return Turn(
            timeout=turns.timeout,
            calls=Calls(frozenset(kind.unasked)),
            hears_reason=kind.hears_reason,
            progress_grace=kind.progress_grace,
            denies_changes=self.settings.questions.preset == "plan",
            max_rounds=turns.max_rounds,
            budget=turns.budget,
        )

    async def _conversation(self, opener: str, context_id: str) -> Conversation:
        return self.memory.keep(await self.conversations.open(opener, context_id), time.time())

    async def _remember(self, conversation: Conversation, session: Session) -> None:
        if conversation.session_id != session.id:
            await self.conversations.set_session(
                conversation.opener, conversation.id, session.id, self.kind.name, time.time()
            )

    def _door(self, name: ProcessName) -> ASGIApp:
        return models.ModelProxy(self.upstreams, self.models).app()

    async def _pair(self, name: str, role: Role) -> str:
        token = tokens.mint(tokens.PAIR)
        await self.pairings.add(name, role, tokens.digest(token), time.time())
        return token

    def _token_for(self, origin: str) -> str | None:
        return self._local_token if origin in self.origins else None

    async def status(self) -> dict[str, Any]:
        """What `a2a-serve status` shows."""
        return {
            "state": "running",
            "pid": os.getpid(),
            "directory": str(self.directory.root),
            "agent": self.kind.name,
            "sandbox": self.settings.sandbox.kind,
            "version": __version__,
            "started_at": self.started_at,
            "endpoints": [{"binding": each.binding, "url": each.url} for each in self.endpoints],
            "card_url": self.card_url,
            "tasks": {"open": await self.tasks.count_open()},
            "questions": {"open": await self.questions.count_open()},
            "warnings": self.warnings,
        }

    def stop_on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self.stopping.set)


def relax_garbage_collection() -> None:
    """What a start has made stays: looking through it again and again took 3 % of the time, 40 ms at once."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


def new_id() -> str:
    return secrets.token_hex(16)
