"""A person's terminal: a command runs on a pty of its own; the test reads what stands there, and types."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

WAIT = 20.0
"""Seconds after which a test that waits for a thing has failed."""
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
CTRL_C = "\x03"


class Terminal:
    """`text` is all that was shown so far, without its colours; `raw` with them."""

    def __init__(self, master: int, process: asyncio.subprocess.Process) -> None:
        self._master, self._process = master, process
        self._shown = b""
        self._more = asyncio.Event()
        self._seen = 0
        asyncio.get_running_loop().add_reader(master, self._read)

    @property
    def raw(self) -> bytes:
        """All that was shown so far, as it came."""
        return self._shown

    @property
    def text(self) -> str:
        return _STYLES.sub("", self._shown.decode("utf-8", "replace"))

    async def until(self, words: str) -> str:
        """What came since the last `until`, up to and with `words`; waits for them."""
        while (at := self.text.find(words, self._seen)) < 0:
            await self._wait(lambda: words in self.text[self._seen :], f"{words!r} was not shown")
        found = self.text[self._seen : at + len(words)]
        self._seen = at + len(words)
        return found

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    async def ended(self) -> int:
        """The command's exit code; waits for its end."""
        async with asyncio.timeout(WAIT):
            code = await self._process.wait()
        self._read()
        return code

    async def _wait(self, done: Callable[[], bool], failure: str) -> None:
        try:
            async with asyncio.timeout(WAIT):
                while not done():
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"{failure}; the terminal shows:\n{self.text}") from None

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 65536):
                self._shown += data
        except BlockingIOError:
            pass
        except OSError:  # the last process has left the terminal
            asyncio.get_running_loop().remove_reader(self._master)
        self._more.set()

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)


@asynccontextmanager
async def on_terminal(command: list[str], cwd: Path, environment: Mapping[str, str]) -> AsyncIterator[Terminal]:
    """Run `command` as the foreground process of a new terminal; it is killed at the end if it still runs."""
    master, slave = os.openpty()
    os.set_blocking(master, False)
    try:
        process = await asyncio.create_subprocess_exec(
            *("setsid", "--ctty", "--wait"),
            *command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**environment, "TERM": "xterm-256color", "COLUMNS": "200"},
        )
    finally:
        os.close(slave)
    terminal = Terminal(master, process)
    try:
        yield terminal
    finally:
        await terminal.close()
