"""Gives the test kits a token: they know of none. Whatever they call the server with gets it added on the way out."""

from __future__ import annotations

import functools
import os
import subprocess
from importlib import import_module
from typing import Any

import grpc
import httpx

PROGRAM = "A2A_SERVE_PROGRAM"
"""Environment variable with the path of `a2a-serve`, which tells the token of a server on this machine."""


class Signer:
    """Adds the token to calls of `url` while `enabled`."""

    def __init__(self, url: str) -> None:
        done = subprocess.run(
            [os.environ[PROGRAM], "credential", "get", url], check=True, capture_output=True, text=True
        )
        self._credential = f"Bearer {done.stdout.strip()}"
        self._origin = str(httpx.URL(url).copy_with(path="/"))
        self.enabled = True

    def install(self) -> None:
        """From now on, in this process: httpx and gRPC."""
        self._sign(httpx.Client, "send")
        self._sign(httpx.AsyncClient, "send")
        dial = grpc.insecure_channel

        @functools.wraps(dial)
        def signed(*target: Any, **options: Any) -> grpc.Channel:
            return grpc.intercept_channel(dial(*target, **options), _Interceptor(self))

        grpc.insecure_channel = signed

    def install_requests(self) -> None:
        """The library `requests` too, where the kit uses it."""
        self._sign(import_module("requests").Session, "send")

    def _sign(self, client: Any, method: str) -> None:
        send = getattr(client, method)

        @functools.wraps(send)
        def signed(client: Any, request: Any, **options: Any) -> Any:
            if self.enabled and str(request.url).startswith(self._origin):
                request.headers.setdefault("Authorization", self._credential)
            return send(client, request, **options)

        setattr(client, method, signed)

    def metadata(self) -> list[tuple[str, str]]:
        return [("authorization", self._credential)] if self.enabled else []


class _Interceptor(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._signed(details), request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._signed(details), request)

    def _signed(self, details: Any) -> Any:
        return details._replace(metadata=[*(details.metadata or ()), *self._signer.metadata()])
