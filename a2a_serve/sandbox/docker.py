"""Agents in Docker containers: one container for each agent process, hardened and without a network.

The engine's API is used through docker-py's low-level client, whose calls block and so run in threads of their own;
only the attach socket is handed to asyncio. No `docker` program is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import docker
import requests
from docker import errors
from docker.utils import kwargs_from_env

from a2a_serve.core.errors import ImageMissing, SandboxUnavailable
from a2a_serve.sandbox import SandboxSpec
from a2a_serve.sandbox.attached import AttachedProcess, open_lease
from a2a_serve.sandbox.container import BOOT, OWNER, container
from a2a_serve.sandbox.guards import guard
from a2a_serve.sandbox.workspace import User, give, owner_of, refuse_workspace

T = TypeVar("T")

THREADS = 8
CALL_SECONDS = 60
STREAMS = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
FAILURES = (errors.DockerException, requests.exceptions.RequestException, OSError)
ROOTLESS = "name=rootless"


def engine_url(environment: Mapping[str, str]) -> str:
    """Where the engine is: DOCKER_HOST, else the first of the usual sockets that is there."""
    if environment.get("DOCKER_HOST"):
        return environment["DOCKER_HOST"]
    runtime = environment.get("XDG_RUNTIME_DIR", "/nonexistent")
    places = (
        "/var/run/docker.sock",
        f"{runtime}/docker.sock",
        f"{environment.get('HOME', '')}/.docker/run/docker.sock",
    )
    return "unix://" + next((place for place in places if Path(place).exists()), places[0])


def connect(timeout: int = CALL_SECONDS) -> docker.APIClient:
    """A client of the engine, once it answers. `timeout` in seconds, of each call. Raises SandboxUnavailable."""
    url = engine_url(os.environ)
    probe(url)
    settings: dict[str, Any] = {**kwargs_from_env(), "base_url": url}
    try:
        return docker.APIClient(**settings, version="auto", timeout=timeout)
    except (*FAILURES, ValueError) as error:
        raise unreachable(url, error) from error


def probe(url: str) -> None:
    """Whether somebody listens there, where that is quick to tell: docker-py leaves a socket open if nobody does.

    Raises SandboxUnavailable.
    """
    if url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(url.removeprefix("unix://"))
            except OSError as error:
                raise unreachable(url, error) from error


def unreachable(url: str, error: BaseException) -> SandboxUnavailable:
    reason, hint = _cause(error), "Start Docker, or start with --sandbox local."
    if isinstance(reason, PermissionError):
        hint = "Add yourself to the docker group, or start with --sandbox local."
    words = (reason.strerror or "").lower() if isinstance(reason, OSError) else ""
    return SandboxUnavailable(f"Docker is not reachable at {url} ({words or 'it does not answer'}).", hint)


def _cause(error: BaseException) -> BaseException:
    """The operating system's own error somewhere inside the libraries' ones, else the error itself."""
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, OSError) and each.errno:
            return each
        seen.add(id(each))
        inside = (each.__cause__, each.__context__, getattr(each, "reason", None), *each.args)
        waiting += [one for one in inside if isinstance(one, BaseException) and id(one) not in seen]
    return error


def explain(error: BaseException, url: str, image: str = "") -> SandboxUnavailable:
    """One sentence and the next step for whatever an engine call raised."""
    if isinstance(error, errors.ImageNotFound) and image:
        kind = image.partition(":")[0].removeprefix("a2a-serve/")
        return ImageMissing(f"The image {image} is not there.", f"Build it: a2a-serve image build {kind}")
    if not isinstance(error, errors.APIError):
        return unreachable(url, error)
    said = str(error.explanation or error).strip()
    if "bind source path does not exist" in said:
        hint = "An engine on another machine cannot be used: it must see this machine's folders."
        return SandboxUnavailable(f"The Docker engine at {url} does not see the workspace: {said}.", hint)
    return SandboxUnavailable(f"Docker refused: {said}.", "`a2a-serve doctor` looks at the engine.")


class DockerSandbox:
    """Starts agent processes in containers. The engine is looked for when it is needed, so it may come and go."""

    def __init__(self, home: Path | None = None, connect: Callable[[], docker.APIClient] = connect) -> None:
        self._home = home or Path.home()
        self._connect = connect
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")
        self._api: docker.APIClient | None = None
        self._rootless: bool | None = None

    def warnings(self, spec: SandboxSpec) -> list[str]:
        """What the owner should know before this spec is started, one sentence each."""
        found = []
        if owner_of(spec.workspace).is_root and not self._rootless:
            found.append(f"{spec.workspace} belongs to root, so the agent runs as root too, without any capability.")
        if spec.network == "open":
            found.append("The agent's network is open: it can reach the internet and services of this machine.")
        if spec.protect == "off":
            found.append("The agent can change .git hooks and config, which git on this machine runs.")
        return found

    async def start(self, spec: SandboxSpec) -> AttachedProcess:
        """Raises WorkspaceRefused too."""
        spec = replace(spec, workspace=Path(os.path.realpath(spec.workspace)))
        refuse_workspace(spec.workspace, self._home)
        user = User(0, 0) if await self._is_rootless() else owner_of(spec.workspace)
        guards = guard(spec.workspace, spec.protect, spec.agent_folders, owner_of(spec.workspace))
        lease = _furnish(spec, user)
        body, name = container(spec, user, guards), _name(spec)
        try:
            created = await self._call(lambda api: _create(api, body, name), spec.image)
        except BaseException:
            os.close(lease)
            raise
        handle = _Handle(self, created["Id"])
        try:
            sock = await self._call(lambda api: _attach(api, handle.id))
            process = await AttachedProcess.connect(sock, handle, guards)
        except BaseException:
            os.close(lease)
            await asyncio.shield(handle.remove())
            raise
        process.lease, process.memory = lease, spec.limits.memory
        try:
            await self._call(lambda api: api.start(handle.id), spec.image)
            await process.check()
        except BaseException:
            await asyncio.shield(process.stop(0))
            raise
        return process

    async def _is_rootless(self) -> bool:
        """There root in the container is the user who runs the engine, and every other uid is nobody's."""
        if self._rootless is None:
            info = await self._call(lambda api: api.info())
            self._rootless = ROOTLESS in (info.get("SecurityOptions") or ())
        return self._rootless

    async def reap(self, owner: str, boot: str) -> int:
        """Raises SandboxUnavailable."""
        mine = {"label": f"{OWNER}={owner}"}
        found = await self._call(lambda api: api.containers(all=True, filters=mine))
        leftovers = [each["Id"] for each in found if each["Labels"].get(BOOT) != boot]
        for each in leftovers:
            await _Handle(self, each).remove()
        return len(leftovers)

    async def close(self) -> None:
        if self._api:
            self._api.close()
        self._api = None
        self._threads.shutdown(wait=False)

    async def _call(self, work: Callable[[docker.APIClient], T], image: str = "") -> T:
        """One engine call in a thread. Raises SandboxUnavailable or ImageMissing."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._do, work, image)

    def _do(self, work: Callable[[docker.APIClient], T], image: str) -> T:
        if self._api is None:
            self._api = self._connect()
        url = engine_url(os.environ)
        probe(url)
        try:
            return work(self._api)
        except FAILURES as error:
            raise explain(error, url, image) from error


class _Handle:
    """One container, for its AttachedProcess."""

    def __init__(self, sandbox: DockerSandbox, container_id: str) -> None:
        self._sandbox, self.id = sandbox, container_id

    async def state(self) -> Mapping[str, Any] | None:
        def inspect(api: docker.APIClient) -> Mapping[str, Any] | None:
            with contextlib.suppress(errors.NotFound):
                state: Mapping[str, Any] = api.inspect_container(self.id)["State"]
                return state
            return None

        return await self._sandbox._call(inspect)

    async def signal(self, name: str) -> None:
        await self._unless_gone(lambda api: api.kill(self.id, name))

    async def remove(self) -> None:
        await self._unless_gone(lambda api: api.remove_container(self.id, force=True, v=True))

    async def _unless_gone(self, work: Callable[[docker.APIClient], None]) -> None:
        def tolerant(api: docker.APIClient) -> None:
            try:
                work(api)
            except errors.APIError as error:
                if error.status_code not in (404, 409):  # gone; not running, or already being removed
                    raise

        await self._sandbox._call(tolerant)


def _create(api: docker.APIClient, body: dict[str, Any], name: str) -> dict[str, Any]:
    created: dict[str, Any] = api.create_container_from_config(body, name)  # type: ignore[no-untyped-call]
    return created


def _attach(api: docker.APIClient, container_id: str) -> socket.socket:
    """Our own descriptor of the hijacked connection. Before the start, so that no byte is missed."""
    stream = api.attach_socket(container_id, STREAMS)
    sock: socket.socket | None = getattr(stream, "_sock", None)
    if not isinstance(sock, socket.socket):
        raise SandboxUnavailable(
            "The Docker engine is reached in a way that cannot carry an agent (TLS or ssh).",
            "Use a unix:// or tcp:// address in DOCKER_HOST, for example through a tunnel.",
        )
    return socket.socket(fileno=sock.detach())  # the response keeps an empty shell, and may go when it likes


def _furnish(spec: SandboxSpec, user: User) -> int:
    """Put into the door what the container needs, and make it and the home the user's; returns the lease."""
    lease = open_lease(spec.door, user.uid, user.gid)
    for name, text in (("passwd", user.passwd), ("group", user.group)):
        path = spec.door / name
        path.write_text(text, encoding="ascii")
        path.chmod(0o644)
    for path in (spec.home, spec.door):
        give(path, user)
    return lease


def _name(spec: SandboxSpec) -> str:
    """For people who look at `docker ps`."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{spec.workspace.name}-{spec.user}")[:60]
    return f"a2a-serve-{readable}-{secrets.token_hex(4)}"
