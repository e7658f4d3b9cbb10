"""The agent driven directly over ACP, without any host: what a turn costs before a server is put around it."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import psutil

from bench.client import READ_BYTES, BenchError
from bench.load import PROMPT, Sizes, digest, percentile
from bench.systems import Cores, agent_command, environment_at, fresh_directory


@dataclass(slots=True)
class DirectTurn:
    """Times in seconds since the prompt was written, and what the agent said."""

    started: float
    first: float = 0.0
    total: float = 0.0
    chunks: list[str] = field(default_factory=list)


class DirectAgent:
    """One ACP agent on stdio; several sessions at once."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._turns: dict[str, DirectTurn] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: list[str], directory: Path, environment: dict[str, str]) -> DirectAgent:
        """Start the agent and shake hands."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, cwd=directory, env=environment
        )
        agent = cls(process)
        await agent._ask("initialize", protocolVersion=1, clientCapabilities={})
        return agent

    @property
    def pid(self) -> int:
        return self._process.pid

    async def open(self, directory: Path) -> str:
        """A new session's id."""
        session: str = (await self._ask("session/new", cwd=str(directory), mcpServers=[]))["sessionId"]
        return session

    async def turn(self, session: str, text: str) -> DirectTurn:
        """One prompt, to its end."""
        turn = self._turns[session] = DirectTurn(time.perf_counter())
        answer = await self._ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])
        turn.total = time.perf_counter() - turn.started
        if answer.get("stopReason") != "end_turn":
            raise BenchError(f"the agent stopped with {answer!r}")
        return turn

    async def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 5)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        assert self._process.stdin
        number = len(self._asked) + 1
        self._asked[number] = asyncio.get_running_loop().create_future()
        said = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._process.stdin.write(orjson.dumps(said) + b"\n")
        return await self._asked[number]

    async def _read(self) -> None:
        assert self._process.stdout
        rest = b""
        while data := await self._process.stdout.read(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._hear(orjson.loads(line))
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(BenchError("the agent went away"))

    def _hear(self, said: dict[str, Any]) -> None:
        if said.get("method") == "session/update":
            self._update(said["params"])
        elif "error" in said:
            self._asked[said["id"]].set_exception(BenchError(f"the agent answered {said['error']!r}"))
        elif "result" in said:
            self._asked[said["id"]].set_result(said["result"] or {})

    def _update(self, params: dict[str, Any]) -> None:
        turn, update = self._turns.get(params["sessionId"]), params["update"]
        if turn is None or update["sessionUpdate"] != "agent_message_chunk":
            return
        if not turn.first:
            turn.first = time.perf_counter() - turn.started
        turn.chunks.append(update["content"]["text"])


async def measure(sizes: Sizes, cores: Cores, wanted: set[str]) -> tuple[dict[str, float], dict[int, str]]:
    """Metrics and text digests of the bare agent: this process takes the server's place, on the server's core."""
    directory = fresh_directory("direct")
    os.sched_setaffinity(0, {cores.server})
    agent = await DirectAgent.start(agent_command(), directory, environment_at(directory))
    psutil.Process(agent.pid).cpu_affinity([cores.client])
    metrics: dict[str, float] = {}
    texts: dict[int, str] = {}
    try:
        sessions = [await agent.open(directory) for _ in range(sizes.callers)]
        if "one" in wanted:
            metrics |= await _turns(agent, sessions[:1], sizes.turns, 1)
        if "many" in wanted:
            metrics |= await _turns(agent, sessions, sizes.loaded_turns, 32)
        for length in sizes.lengths if "chunks" in wanted else ():
            took = [await agent.turn(sessions[0], f"chunks {length}") for _ in range(3)]
            metrics[f"chunks_{length}_s"] = length / statistics.median(turn.total for turn in took)
            texts[length] = digest("".join(took[-1].chunks))
    finally:
        await agent.close()
        os.sched_setaffinity(0, {cores.client})
    return metrics, texts


async def _turns(agent: DirectAgent, sessions: list[str], count: int, callers: int) -> dict[str, float]:
    turns: list[DirectTurn] = []
    left = count

    async def caller(session: str) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            turns.append(await agent.turn(session, PROMPT))

    begun = time.perf_counter()
    await asyncio.gather(*(caller(session) for session in sessions))
    seconds = time.perf_counter() - begun
    totals = [turn.total * 1000 for turn in turns]
    found = {
        f"turn_{callers}_ms": percentile(totals, 0.5),
        f"turn_{callers}_p99_ms": percentile(totals, 0.99),
        f"text_{callers}_ms": percentile((turn.first * 1000 for turn in turns), 0.5),
    }
    return found | ({"turns_32_s": count / seconds} if callers > 1 else {})
