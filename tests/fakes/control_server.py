"""A control server for tests of its clients: a real unix socket, answers that may be wrong on purpose."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from a2a_serve.config import AgentDir
from a2a_serve.listeners.sockets import socket_address


@dataclass
class FakeControl:
    """Answers with what `answers` has for `METHOD path`: bytes, (status, JSON), or a maker of one. Keeps requests."""

    directory: AgentDir
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    listener: socket.socket | None = None

    def start(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        with socket_address(self.directory.control_socket) as address:
            self.listener.bind(address)
        self.listener.listen(16)
        threading.Thread(target=self._serve, args=(self.listener,), daemon=True).start()

    def stop(self) -> None:
        if self.listener is not None:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None
            self.directory.control_socket.unlink(missing_ok=True)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with accepted, suppress(OSError, ValueError):  # a client may go away at any moment
                accepted.sendall(self._answer(accepted))

    def _answer(self, accepted: socket.socket) -> bytes:
        with accepted.makefile("rb") as file:
            method, path, _ = file.readline().decode().split(" ")
            length = 0
            while line := file.readline().strip():
                name, _, value = line.decode().partition(":")
                if name.lower() == "content-length":
                    length = int(value)
            body = file.read(length)
        self.asked.append((f"{method} {path}", json.loads(body) if body else None))
        answer = self.answers.get(f"{method} {path.split('?')[0]}", (404, {"error": {"code": "x", "sentence": "no"}}))
        if callable(answer):
            answer = answer()
        if isinstance(answer, bytes):
            return answer
        status, value = answer
        text = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        return head.encode() + text
