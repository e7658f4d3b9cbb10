"""Talks to a running server over its control socket: HTTP with JSON on a unix socket that only its user can open."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
from typing import Any
from urllib.parse import quote, urlencode

from a2a_serve.config.directory import AgentDir
from a2a_serve.core.errors import NotAllowed, NotRunning, ServeError
from a2a_serve.listeners.sockets import read_peer, socket_address

TIMEOUT = 30.0
MAX_ANSWER = 64 << 20


class ControlClient:
    """One agent directory's server. Every call raises NotRunning when there is none, ServeError as the server says."""

    def __init__(self, directory: AgentDir, timeout: float = TIMEOUT) -> None:
        self._directory, self._timeout = directory, timeout

    def status(self) -> dict[str, Any]:
        return _mapping(self._ask("GET", "/status"))

    def questions(self) -> list[dict[str, Any]]:
        found = self._ask("GET", "/questions")
        return [_mapping(each) for each in found] if isinstance(found, list) else []

    def answer(self, question_id: str, option: str, reason: str) -> dict[str, Any]:
        path = f"/questions/{quote(question_id, safe='')}/answer"
        return _mapping(self._ask("POST", path, {"option": option, "reason": reason}))

    def pair(self, name: str, role: str) -> dict[str, Any]:
        return _mapping(self._ask("POST", "/pairings", {"name": name, "role": role}))

    def token(self, origin: str) -> str | None:
        """The user's own token for an origin that this server serves, None when it does not serve it."""
        try:
            answer = self._ask("GET", f"/token?{urlencode({'origin': origin})}")
        except ServeError as error:
            if getattr(error, "status", 0) == 404:
                return None
            raise
        token = _mapping(answer).get("token")
        return token if isinstance(token, str) and token else None

    def stop(self) -> None:
        self._ask("POST", "/stop", {})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = _Connection(self._directory, self._timeout)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            with connection.getresponse() as answer:
                status, text = answer.status, answer.read(MAX_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            root = self._directory.root
            raise NotRunning(
                f"The server in {root} does not answer ({type(error).__name__}).", f"See `a2a-serve logs {root}`."
            ) from error
        finally:
            connection.close()
        return _read(status, text)


class _Connection(http.client.HTTPConnection):
    """Connects only to a socket that is ours and whose other end is too: a token may come back on it."""

    def __init__(self, directory: AgentDir, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._directory = directory

    def connect(self) -> None:
        path, root = self._directory.control_socket, self._directory.root
        try:
            found = path.lstat()
            if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
                raise _anothers(root)
            self.sock = _connect(self._directory, self.timeout or TIMEOUT)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
            raise NotRunning(f"No server runs in {root}.", f"`a2a-serve start {root}` starts one.") from error
        except PermissionError as error:
            raise _anothers(root) from error
        if read_peer(self.sock)[0] != os.geteuid():
            raise _anothers(root)


def _connect(directory: AgentDir, timeout: float) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(timeout)
    try:
        with socket_address(directory.control_socket) as address:
            connected.connect(address)
    except BaseException:
        connected.close()
        raise
    return connected


def _anothers(root: object) -> NotAllowed:
    return NotAllowed(f"The server in {root} is not yours.", "Its control socket answers only the user who runs it.")


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ServeError("The server's answer is not understood.", "Is it of another version? Restart it.")
    return value


def _read(status: int, text: bytes) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if status == 200:
        return value
    told = value.get("error") if isinstance(value, dict) else None
    told = told if isinstance(told, dict) else {}
    error = ServeError(str(told.get("sentence") or f"The server refused ({status})."), str(told.get("hint") or ""))
    error.code = str(told.get("code") or "error")
    error.status = status  # type: ignore[attr-defined]
    raise error
