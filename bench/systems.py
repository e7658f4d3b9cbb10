"""The systems under test: how each is installed, started, found and stopped."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.client import Address, BenchError, Connection

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"
"""Everything the harness installs and writes; it ignores itself for git."""
BIN = Path(sys.executable).parent
AGENT = ROOT / "a2a_serve" / "agents" / "demo.py"
PEER = "a2acode"
PEER_VERSION = "0.9.*"
STARTED_SECONDS, STOPPED_SECONDS = 30.0, 15.0


@dataclass(frozen=True, slots=True)
class Cores:
    """The server has one core for itself; the client, and with it the agent, have the other."""

    server: int
    client: int

    @classmethod
    def pick(cls) -> Cores:
        """The first two cores that this process may use. Raises BenchError when there is only one."""
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            raise BenchError("two cores are needed: one for the server, one for the client and the agent")
        return cls(usable[0], usable[1])


@dataclass(frozen=True, slots=True)
class System:
    """One way to serve. `command(port, directory)` is its user's own command line.

    `agent`: it drives the demo agent, so prompts are the demo's lines; others echo the prompt.
    `tasks`: it keeps tasks that can be read and listed later.
    """

    name: str
    path: str
    command: Callable[[int, Path], list[str]]
    agent: bool = False
    tasks: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    token: Callable[[int, dict[str, str]], str] | None = None

    def chunks(self, count: int) -> str:
        """The prompt that is answered with `count` chunks."""
        return f"chunks {count}" if self.agent else " ".join(f"chunk{number}" for number in range(count))


def our_token(port: int, environment: dict[str, str]) -> str:
    """The owner's token, as a person or script gets it."""
    command = [str(BIN / "a2a-serve"), "credential", "get", f"http://127.0.0.1:{port}"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def _ours(port: int, directory: Path) -> list[str]:
    flags = f"--agent demo --sandbox local --port {port} --grpc-port off --output json"
    return [str(BIN / "a2a-serve"), "start", str(directory), *flags.split()]


def _peer(port: int, directory: Path, *more: str) -> list[str]:
    program = str(HOME / PEER / "bin" / PEER)
    return [program, "serve", "--port", str(port), "--cwd", str(directory), *more]


def agent_command() -> list[str]:
    """The demo agent as a local process."""
    return [sys.executable, str(AGENT)]


def _peer_with_agent(port: int, directory: Path) -> list[str]:
    return _peer(port, directory, "--backend", "acp", "--agent-command", shlex.join(agent_command()))


OURS = System(
    "a2a-serve",
    "/a2a/jsonrpc",
    _ours,
    agent=True,
    token=our_token,
    environment={"A2A_SERVE_LIMITS__CONNECTIONS": "1024"},  # 500 streams are more than the default lets in
)
PEER_ACP = System("a2acode", "/", _peer_with_agent, agent=True)
PEER_ECHO = System("a2acode-echo", "/", lambda port, at: _peer(port, at, "--backend", "echo"))
FLOOR = System("floor", "/", lambda port, at: [sys.executable, "-m", "bench.floor", str(port)], tasks=False)
DIRECT = "direct"
SYSTEMS = (OURS, PEER_ACP, PEER_ECHO, FLOOR)


def install_peer() -> None:
    """Put the peer into its own venv under .bench/, once."""
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    venv = HOME / PEER
    if (venv / "bin" / PEER).exists():
        return
    print(f"installing {PEER} {PEER_VERSION} into {venv} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    subprocess.run([str(venv / "bin" / "pip"), "install", "-q", f"{PEER}=={PEER_VERSION}"], check=True)


def fresh_directory(name: str) -> Path:
    """An empty project folder for one run of a system, on the checkout's disk."""
    directory = HOME / "run" / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def environment_at(directory: Path) -> dict[str, str]:
    """The environment of a run: its own home and XDG folders, so that nothing of the person who runs it is touched."""
    home = directory.with_name(directory.name + "-home")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    own = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config")}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "A2A_SERVE_"))}
    return {**kept, **own, "PYTHONPATH": str(ROOT)}


@dataclass(slots=True)
class Running:
    """A started system: its process, where it answers, and how long it took to serve its card (seconds)."""

    system: System
    process: subprocess.Popen[bytes]
    address: Address
    started: float
    cores: Cores

    def resident(self) -> float:
        """Resident memory of the server process alone, in MiB; agents do not count."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 2**20

    async def connect(self, receive_buffer: int = 0) -> Connection:
        return await Connection.open(self.address, receive_buffer)

    def pin_agents(self) -> None:
        """Move the agents that the server has started to the client's core."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            child.cpu_affinity([self.cores.client])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOPPED_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


async def start(system: System, cores: Cores) -> Running:
    """Start `system` on the server's core and wait for its card. Raises BenchError with the log's end."""
    directory, port = fresh_directory(system.name), _free_port()
    environment = {**environment_at(directory), **system.environment}
    log = HOME / "run" / f"{system.name}.log"
    command = ["taskset", "-c", str(cores.server), *system.command(port, directory)]
    begun = time.perf_counter()
    process = _launch(command, directory, environment, log)
    try:
        await _card_served(process, port, begun)
        seconds = time.perf_counter() - begun
        token = system.token(port, environment) if system.token else ""
    except BaseException as error:
        process.kill()
        process.wait()
        raise BenchError(f"{system.name} did not start: {error}\n{log.read_text()[-2000:]}") from error
    return Running(system, process, Address(port, system.path, token), seconds, cores)


def _launch(command: list[str], directory: Path, environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(command, env=environment, cwd=directory, stdout=out, stderr=subprocess.STDOUT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _card_served(process: subprocess.Popen[bytes], port: int, begun: float) -> None:
    """Ask for the card until it is there. Polls, because a server under test tells nobody when it is ready."""
    ask = f"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    while time.perf_counter() - begun < STARTED_SECONDS:
        if process.poll() is not None:
            raise BenchError(f"it ended with status {process.returncode}")
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(ask.encode())
            answer = await reader.read()
            writer.close()
            if answer.startswith(b"HTTP/1.1 200"):
                return
        except OSError:
            pass
        await asyncio.sleep(0.002)
    raise BenchError(f"no card after {STARTED_SECONDS:.0f} s")
