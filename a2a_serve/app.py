"""The composition root: builds the parts from the settings, starts them in order, closes them in reverse. No logic.

Start is recovery (crash-only): what an earlier server left behind is swept in named steps before anyone is served.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from a2a_serve import __version__, agents
from a2a_serve.agents import AgentKind
from a2a_serve.agents.acp import Session
from a2a_serve.agents.pool import Pool, ProcessName
from a2a_serve.auth import tokens
from a2a_serve.auth.gate import Gate
from a2a_serve.auth.peer import PeerMethod, user_name
from a2a_serve.auth.tokens import TokenMethod
from a2a_serve.config import AgentDir, Loaded, Lock, Settings, choose_agent, register_server
from a2a_serve.core.model import Conversation, Role
from a2a_serve.core.policy import Memory
from a2a_serve.core.turn import Turn
from a2a_serve.listeners import ASGIApp, Endpoint
from a2a_serve.listeners.local import TcpListener, UnixListener
from a2a_serve.outbound import models
from a2a_serve.sandbox import KINDS, Limits, Sandbox, SandboxSpec
from a2a_serve.server import a2a, card, control, executor
from a2a_serve.server.http import Guard
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
            announce(await server.status())
            server.stop_on_signals()
            await server.stopping.wait()
            log.info("stopping")


class Server:
    """The parts of one server, each made by a named step; what a step opens is closed in reverse."""

    def __init__(self, directory: AgentDir, settings: Settings, progress: Progress, closing: AsyncExitStack) -> None:
        self.directory, self.settings, self.progress = directory, settings, progress
        self.stopping = asyncio.Event()
        self.started_at = time.time()
        self.boot = uuid.uuid4().hex
        self.owner = hashlib.sha256(os.fsencode(directory.root)).hexdigest()[:16]
        self.kind = agent_kind(settings, os.environ)
        self.upstreams = {
            name: models.Upstream(name, each.upstream, each.read_key(), each.scheme)
            for name, each in settings.models.items()
        }
        self.memory = Memory(settings.session.reuse_by_context, settings.session.ttl)
        self.network = settings.sandbox.network or self.kind.network[0]
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
        self.sandbox, self.image = await open_sandbox(self.settings, self.kind, self.progress)
        self._closing.push_async_callback(self.sandbox.close)
        if count := await self.sandbox.reap(self.owner, self.boot):
            log.info("removed %d agent processes that an earlier server left behind", count)
        self.models = models.client()
        self._closing.push_async_callback(self.models.aclose)
        self.pool = Pool(
            self.kind,
            self.sandbox,
            cwd=str(self.directory.root),
            homes=self.directory.homes,
            describe=self._describe,
            door=self._door,
            open_door=self._open_door,
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

    async def _listen_control(self) -> None:
        listener = UnixListener("control", self.directory.control_socket)
        host = control.Host(self.status, self._pair, self._token_for, self.stopping.set)
        await listener.start(control.Control(Gate([PeerMethod()]), self.questions, host).app())
        self._closing.push_async_callback(listener.stop, STOP_SECONDS)

    async def _listen_tcp(self) -> None:
        listen = self.settings.listen
        listener = TcpListener("local", listen.host, listen.port)
        listener.bind()
        origin = f"http://{listen.host}:{listener.port}"
        base = (listen.url or origin).rstrip("/")
        self.origin, self.card_url = origin, f"{base}{card.PATH}"
        self.endpoints = [
            Endpoint(name, base + path) for key, (name, path) in BINDINGS.items() if key in listen.bindings
        ]
        self._local_token = tokens.derive_local(self.directory.state_key())
        gate = Gate([TokenMethod(self.pairings.find, self._local_token, user_name(os.geteuid()))])
        handler = a2a.Handler(self.tasks)
        if listen.grpc:
            self.endpoints.append(await self._listen_grpc(handler, gate))
        made = card.build(self.settings.card, self.endpoints)
        routes = [card.route(made, self.started_at), *a2a.routes(handler, set(listen.bindings))]
        await listener.start(Guard(Starlette(routes=routes), gate))
        self._closing.push_async_callback(listener.stop, STOP_SECONDS)
        register_server(origin, self.directory.root)

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
            questions=self.questions,
            clock=time.time,
            new_id=new_id,
            timing=timing,
        )

    def _new_turn(self) -> Turn:
        return Turn(self.settings.turns.timeout, frozenset(self.kind.unasked), self.kind.hears_reason)

    async def _conversation(self, opener: str, context_id: str) -> Conversation:
        return self.memory.keep(await self.conversations.open(opener, context_id), time.time())

    async def _remember(self, conversation: Conversation, session: Session) -> None:
        if conversation.session_id != session.id:
            await self.conversations.set_session(
                conversation.opener, conversation.id, session.id, self.kind.name, time.time()
            )

    def _describe(self, name: ProcessName) -> SandboxSpec:
        sandbox, root = self.settings.sandbox, self.directory.root
        return SandboxSpec(
            owner=self.owner,
            boot=self.boot,
            user=name.user,
            workspace=root,
            home=name.home,
            door=name.door,
            image=self.image,
            command=command(self.settings, self.kind),
            environment=environment(self.settings, self.kind, self.upstreams.get(self.kind.model)),
            network=self.network,
            protect=sandbox.protect,
            agent_folders=self.kind.folders,
            limits=Limits(sandbox.memory, sandbox.cpus, sandbox.pids, sandbox.tmp),
        )

    def _open_door(self, path: Path) -> UnixListener:
        owner = self.directory.root.stat()
        as_root = os.geteuid() == 0
        return UnixListener("agent", path, uid=owner.st_uid if as_root else None, gid=owner.st_gid if as_root else None)

    def _door(self, name: ProcessName) -> ASGIApp:
        return models.ModelProxy(self.upstreams, self.models).app()

    async def _pair(self, name: str, role: Role) -> str:
        token = tokens.mint(tokens.PAIR)
        await self.pairings.add(name, role, tokens.digest(token), time.time())
        return token

    def _token_for(self, origin: str) -> str | None:
        return self._local_token if origin == self.origin else None

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
            "warnings": [],
        }

    def stop_on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self.stopping.set)


def new_id() -> str:
    return uuid.uuid4().hex


def agent_kind(settings: Settings, environment: Mapping[str, str]) -> AgentKind:
    """The kind that flag, config or the keys at hand choose; a command of the owner's own is a kind without a file."""
    if settings.agent.command:
        return AgentKind("custom", "Custom agent", tuple(settings.agent.command))
    keys = {name: AgentKind.load(name).key_env for name in agents.kinds()}
    return AgentKind.load(choose_agent(settings, environment, keys))


async def open_sandbox(settings: Settings, kind: AgentKind, progress: Progress) -> tuple[Sandbox, str]:
    """The sandbox of the chosen kind and the image it starts ('' where there is none)."""
    module, _, name = KINDS[settings.sandbox.kind].partition(":")
    sandbox: Sandbox = getattr(import_module(module), name)()
    if settings.sandbox.kind != "docker":
        return sandbox, ""
    images = import_module("a2a_serve.sandbox.images")
    image = settings.agent.image or await images.ensure(
        "demo" if kind.name == "custom" else kind.name, progress=progress
    )
    return sandbox, image


def command(settings: Settings, kind: AgentKind) -> tuple[str, ...]:
    """The kind's command; on the host the demo agent is the file of this package, not that of an image."""
    if settings.sandbox.kind == "local" and kind.name == "demo":
        return (sys.executable, str(resources.files(agents) / "demo.py"))
    return kind.command


def environment(settings: Settings, kind: AgentKind, upstream: models.Upstream | None) -> dict[str, str]:
    """The agent's environment: its kind's, the way to its model, and what the owner set. Never a key."""
    base = {key: value.format(base=f"http://127.0.0.1/m/{kind.model}") for key, value in kind.model_env.items()}
    proxied = base if upstream and upstream.key and settings.sandbox.kind != "local" else {}
    return {**kind.environment, **proxied, **settings.agent.environment}
