"""An A2A agent that answers whatever a test wants, mostly wrongly: bytes on a real socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

CARD = "GET /.well-known/agent-card.json"
RPC = "POST /rpc"

Answer = bytes | tuple[int, Any] | Callable[[], Any]


@dataclass
class Asked:
    headers: dict[str, str]
    body: Any


@dataclass
class RudeAgent:
    """`answers` by `METHOD path`: bytes as they go out, or (status, JSON), or a maker of one. Keeps what was asked."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: dict[str, list[Asked]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.answers.setdefault(CARD, (200, card(f"{self.url}/rpc")))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted, suppress(OSError, ValueError):
            accepted.sendall(self._answer(accepted))

    def _answer(self, accepted: socket.socket) -> bytes:
        with accepted.makefile("rb") as file:
            what = " ".join(file.readline().decode().split(" ")[:2])
            headers: dict[str, str] = {}
            while line := file.readline().strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            body = file.read(int(headers.get("content-length", 0)))
        self.asked.setdefault(what, []).append(Asked(headers, json.loads(body) if body else None))
        answer = self.answers.get(what, (404, {}))
        if callable(answer):
            answer = answer()
        if isinstance(answer, bytes):
            return answer
        return http(answer[0], "application/json", json.dumps(answer[1]).encode())


def http(status: int, kind: str, body: bytes, more: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def result(value: Any) -> tuple[int, Any]:
    return 200, {"jsonrpc": "2.0", "id": "1", "result": value}


def error(code: int, message: str) -> tuple[int, Any]:
    return 200, {"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": message}}


def stream(*events: Any, broken: bool = False) -> bytes:
    """Server-sent events; `broken`: more was promised than comes."""
    told = [json.dumps({"jsonrpc": "2.0", "id": "1", "result": event}) for event in events]
    body = "".join(f"data: {each}\n\n" for each in told).encode()
    whole = http(200, "text/event-stream", body)
    return whole.replace(f"Content-Length: {len(body)}".encode(), b"Content-Length: 999999") if broken else whole


def card(url: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "rude",
        "description": "d",
        "version": "1",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["t"]}],
        **more,
    }


def task(state: str, task_id: str = "t1", text: str = "", **more: Any) -> dict[str, Any]:
    artifacts = [{"artifactId": "response", "parts": [{"text": text}]}] if text else []
    status = {"state": f"TASK_STATE_{state}", **more}
    return {"id": task_id, "contextId": "c1", "status": status, "artifacts": artifacts}
