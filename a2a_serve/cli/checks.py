"""The checks of `doctor`. Each looks at one thing, changes nothing, and says the next step."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from a2a_serve.agents import AgentKind
from a2a_serve.cli.control import ControlClient
from a2a_serve.config import AgentDir, Settings
from a2a_serve.core.errors import NotRunning, ServeError
from a2a_serve.listeners.sockets import bind_tcp

LITTLE_ROOM, NO_ROOM = 2 << 30, 100 << 20
"""Bytes free below which a disk is worth a warning, or of no use."""
EARLIEST = 1_764_547_200
"""2025-12-01: a clock before that is wrong, as this program did not exist."""
CONNECT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Check:
    """What was found: `state` is ok, warn or fail; `next` is what to do about it."""

    check: str
    state: str
    text: str
    next: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the checks look at. `clock` gives seconds since the epoch."""

    directory: AgentDir
    settings: Settings
    kind: AgentKind
    environment: Mapping[str, str]
    clock: Callable[[], float]


def checks(facts: Facts) -> list[tuple[str, Callable[[], Iterator[Check]]]]:
    """All of them by name, in the order in which a start would meet them."""
    engine = [("docker", lambda: check_docker(facts))] if facts.settings.sandbox.kind == "docker" else []
    return [
        ("permissions", lambda: check_permissions(facts)),
        ("disk", lambda: check_disk(facts)),
        ("clock", lambda: check_clock(facts)),
        *engine,
        ("agent", lambda: check_agent(facts)),
        ("network", lambda: check_network(facts)),
        ("ports", lambda: check_ports(facts)),
    ]


def check_permissions(facts: Facts) -> Iterator[Check]:
    root, state = facts.directory.root, facts.directory.state
    place = facts.directory.own if facts.directory.own.exists() else root
    if not os.access(place, os.W_OK | os.X_OK):
        yield Check("permissions", "fail", f"{place} cannot be written to.", "Check who owns it.")
        return
    if state.exists() and stat.S_IMODE(state.stat().st_mode) & 0o077:
        yield Check("permissions", "warn", f"{state} is open to others.", f"chmod 700 {state}")
    elif root.stat().st_uid == 0 and facts.settings.sandbox.kind == "docker":
        text = f"{root} belongs to root, so the agent runs as root in its container, without any of root's powers."
        yield Check("permissions", "warn", text, "Better: a folder that belongs to a plain user.")
    else:
        yield Check("permissions", "ok", f"{root} can be written to.")


def check_disk(facts: Facts) -> Iterator[Check]:
    free = shutil.disk_usage(facts.directory.root).free
    text = f"{free / (1 << 30):.1f} GiB free."
    state = "fail" if free < NO_ROOM else "warn" if free < LITTLE_ROOM else "ok"
    yield Check("disk", state, text, "" if state == "ok" else "Make room: an image alone takes about 1 GiB.")


def check_clock(facts: Facts) -> Iterator[Check]:
    now = facts.clock()
    written = facts.directory.database.stat().st_mtime if facts.directory.database.exists() else 0
    if now < max(EARLIEST, written - 60):
        yield Check("clock", "warn", "The clock is behind.", "Set it: tokens and schedules depend on it.")
    else:
        yield Check("clock", "ok", "The clock is plausible.")


def check_docker(facts: Facts) -> Iterator[Check]:
    from a2a_serve.sandbox import images

    found = asyncio.run(images.list_images())
    yield Check("docker", "ok", "The engine answers.")
    kind = "demo" if facts.kind.name == "custom" else facts.kind.name
    ours = [each for each in found if each.kind == kind]
    build = f"A start builds it, or now: a2a-serve image build {kind}"
    if facts.settings.agent.image:
        yield Check("image", "ok", f"Set to {facts.settings.agent.image}; a start tells whether it is there.")
    elif any(each.current for each in ours):
        yield Check("image", "ok", f"The image of {kind} is there.")
    else:
        missing = f"The image of {kind} is of another version." if ours else f"There is no image of {kind} yet."
        yield Check("image", "warn", missing, build)


def check_agent(facts: Facts) -> Iterator[Check]:
    """Whether the agent's command (locally) and its model key are there."""
    kind, local = facts.kind, facts.settings.sandbox.kind == "local"
    if local and kind.name != "demo" and shutil.which(kind.command[0], path=facts.environment.get("PATH")) is None:
        text = f"There is no command {kind.command[0]!r} on this machine."
        yield Check("agent", "fail", text, "Install it, or use --sandbox docker: its image holds it.")
        return
    api = facts.settings.models.get(kind.model)
    if not kind.model:
        yield Check("agent", "ok", f"{kind.name} needs no model key.")
    elif api is not None and api.read_key(facts.environment):
        yield Check("agent", "ok", f"{kind.name}, with a key for {kind.model}.")
    else:
        step = f"Set {api.key_env}." if api and api.key_env else f"Set models.{kind.model} in {facts.directory.config}."
        yield Check("agent", "warn", f"{kind.name} has no key for {kind.model} here.", step)


def check_network(facts: Facts) -> Iterator[Check]:
    """Whether the model API can be reached from here, where one is used."""
    api = facts.settings.models.get(facts.kind.model)
    if api is None or not api.read_key(facts.environment):
        yield Check("network", "ok", "No model API is used.")
        return
    parts = urlsplit(api.upstream)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
    except OSError as error:
        text = f"{parts.hostname} port {port} cannot be reached ({error.strerror or error})."
        yield Check("network", "warn", text, "Check the network, or models.*.upstream.")
    else:
        yield Check("network", "ok", f"{parts.hostname} can be reached.")


def check_ports(facts: Facts) -> Iterator[Check]:
    try:
        pid = ControlClient(facts.directory).status().get("pid")
    except NotRunning:
        yield from _free_ports(facts)
    else:
        yield Check("ports", "ok", f"In use by this folder's own server (process {pid}).")


def _free_ports(facts: Facts) -> Iterator[Check]:
    listen = facts.settings.listen
    wanted = {"listen.port": listen.port}
    if listen.grpc and isinstance(listen.grpc_port, int):
        wanted["listen.grpc_port"] = listen.grpc_port
    for name, port in wanted.items():
        try:
            bind_tcp(listen.host, port).close()
        except ServeError as error:
            hint = f"Stop what uses it, or change {name}."
            yield Check("ports", "fail", error.sentence, hint)
        else:
            yield Check("ports", "ok", f"{port} is free." if port else "A free one is taken.")
