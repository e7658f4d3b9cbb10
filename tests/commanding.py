"""Runs `a2a-serve` commands: in the test's own process, as processes, and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

COMMAND = (sys.executable, "-m", "a2a_serve.cli")
WAIT = 30.0
"""Seconds after which a test that waits for a thing has failed."""


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


def run_process(*words: object, environment: Mapping[str, str], text: str | None = None) -> Ran:
    """Run a command to its end, without a terminal."""
    command = [*COMMAND, *(str(word) for word in words)]
    done = subprocess.run(
        command, env=environment, input=text or "", capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


class Terminal:
    """A command on a pseudo-terminal of its own, and somebody who reads and types there."""

    def __init__(self, *words: object, environment: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        command = [*COMMAND, *(str(word) for word in words)]
        self._process = subprocess.Popen(
            command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.seen = ""
        self._read = 0

    def until(self, text: str) -> str:
        """Read until `text` has come after what was read before; gives what came up to it."""
        deadline = time.monotonic() + WAIT
        while text not in self.seen[self._read :]:
            assert self._more(deadline), f"{text!r} did not come; seen:\n{self.seen}"
        end = self.seen.index(text, self._read) + len(text)
        part, self._read = self.seen[self._read : end], end
        return part

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Read to the end; gives the exit code."""
        deadline = time.monotonic() + WAIT
        while self._more(deadline):
            pass
        return self._process.wait(WAIT)

    def _more(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
        try:
            data = os.read(self._ours, 65536) if ready else b""
        except OSError:  # Linux's way to say that the other side is closed
            data = b""
        self.seen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._ours)
