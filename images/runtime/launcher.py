"""The entry point of every sandbox image: starts the agent's command and lives exactly as long as it.

Before the agent it seals itself (seal.py) and opens the door: `http://a2a/` on the loopback leads to the server's
socket (forward.py). It ends when the agent ends, with the agent's exit code (128 + n after signal n), and when the
server has gone: the server holds the lease, a FIFO, open for writing, and its end of file is the server's death.
Its own end ends the container, and so everything that the agent started.

usage: launcher.py COMMAND [ARGUMENT...]
"""

import os
import signal
import sys

sys.path[:0] = ["/opt/a2a-serve", "/usr/lib/python3/dist-packages"]

import forward  # noqa: E402
import seal  # noqa: E402

DOOR = "/run/a2a"
PORT = 80
GRACE = 2.0
FORWARDED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
NOT_FOUND, NOT_EXECUTABLE, SERVER_GONE = 127, 126, 143


def main(command: list[str]) -> int:
    if not command:
        return _complain("there is no command to start", NOT_FOUND)
    seal.seal()
    door, lease = _open_door(), _take_lease()
    signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    agent = _start(command)
    _let_go_of_stdio()
    if door:
        forward.serve(door, f"{DOOR}/a2a.sock")
    if lease is not None:
        forward.threading.Thread(target=_watch_lease, args=(lease, agent), daemon=True).start()
    return _wait(agent)


def _open_door():
    if not os.path.isdir(DOOR):
        return None
    try:
        return forward.listen(PORT)
    except OSError as error:
        _complain(f"http://a2a/ is not there: {error}", 0)
        return None


def _start(command: list[str]) -> int:
    """The agent, leader of its own process group, with the signals as a program expects them."""
    agent = os.fork()
    if agent:
        return agent
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(command[0], command)
    except FileNotFoundError:
        os._exit(_complain(f"{command[0]}: there is no such command in this image", NOT_FOUND))
    except OSError as error:
        os._exit(_complain(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE))
    finally:
        os._exit(NOT_EXECUTABLE)


def _let_go_of_stdio() -> None:
    """Only the agent may hold its stdin and stdout, or their end would not be seen."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(nothing, fd)


def _wait(agent: int) -> int:
    while True:
        arrived = signal.sigwait({*FORWARDED, signal.SIGCHLD})
        if arrived != signal.SIGCHLD:
            _signal(agent, arrived)
            continue
        pid, status = os.waitpid(agent, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _take_lease():
    """Before the agent starts, so that no death of the server is missed. None where nobody holds it: it was given
    up before we came, or this engine's folders do not carry FIFOs (a virtual machine's)."""
    try:
        lease = os.open(f"{DOOR}/lease", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        os.read(lease, 1)
    except BlockingIOError:
        os.set_blocking(lease, True)
        return lease
    os.close(lease)
    return None


def _watch_lease(lease: int, agent: int) -> None:
    while os.read(lease, 1):
        continue
    _signal(agent, signal.SIGTERM)
    forward.threading.Event().wait(GRACE)
    os._exit(SERVER_GONE)


def _signal(agent: int, number: int) -> None:
    try:
        os.killpg(agent, number)
    except ProcessLookupError:
        pass


def _complain(sentence: str, status: int) -> int:
    os.write(2, f"a2a-serve: {sentence}\n".encode())
    return status


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
