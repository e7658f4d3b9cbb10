"""A TCP proxy that can cut every connection, or let nobody in: a network that fails when a test says so."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """Listens on `port` and forwards to `target` (a port of this machine) while `open`."""

    def __init__(self) -> None:
        self.target = 0
        self.open = True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection there is."""
        connections, self._connections = self._connections, []
        for each in connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.open = False
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            if not self.open:
                caller.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                caller.close()
                continue
            self._connections += [caller, server]
            for one, other in ((caller, server), (server, caller)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        one.close()
