"""Carries TCP connections on the container's loopback to the server's unix socket: the agent's only door.

Two threads a connection: an agent has few of them, and a thread that waits in `sendall` is all the back-pressure
there needs to be.
"""

import socket
import threading

BLOCK = 65536
STACK = 256 << 10
BACKLOG = 128


def listen(port: int) -> socket.socket:
    """The listening socket. Separate from `serve`, so that the door is there before the agent is started."""
    return socket.create_server(("127.0.0.1", port), backlog=BACKLOG)


def serve(listener: socket.socket, path: str) -> None:
    """Connect every caller to the unix socket `path`, in threads of this process. Returns at once."""
    threading.stack_size(STACK)
    _spawn(_accept, listener, path)


def _spawn(work, *args) -> None:
    threading.Thread(target=work, args=args, daemon=True).start()


def _accept(listener: socket.socket, path: str) -> None:
    while True:
        caller, _ = listener.accept()
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(path)
            _spawn(_carry, caller, server)
            _spawn(_carry, server, caller)
        except (OSError, RuntimeError):  # the server is away, or no more threads: the caller sees a closed connection
            _end(caller, server)


def _carry(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(BLOCK):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        _end(source, sink)


def _end(*sides: socket.socket) -> None:
    """Wake whoever waits on them; the descriptors go when the last thread lets go of the sockets."""
    for side in sides:
        try:
            side.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
