"""`python -m bench`: every system, round by round, on two cores; then the table."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import resource
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version

import psutil
import uvloop

from bench import direct
from bench.client import BenchError
from bench.load import Sizes, Subject
from bench.measures import MEASURES, Metrics, groups_of
from bench.report import Report, write
from bench.systems import DIRECT, HOME, OURS, PEER_ACP, ROOT, SYSTEMS, Cores, System, install_peer, start

PAGE = ROOT / "docs" / "performance.md"
NAMES = [system.name for system in SYSTEMS] + [DIRECT]


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small round, to see that all of it works")
    parser.add_argument("--rounds", type=int, help="rounds over all systems (default 3)")
    known = ", ".join([*NAMES, *MEASURES])
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        choices=[*NAMES, *MEASURES],
        help=f"only this system or measurement; may be given several times: {known}",
    )
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}")
    return parser.parse_args(arguments)


class Bench:
    """A run: every system in every round, results and failures in `report`."""

    def __init__(self, systems: list[str], wanted: set[str], sizes: Sizes, cores: Cores) -> None:
        self._systems, self._wanted, self._sizes, self._cores = systems, wanted, sizes, cores
        self._texts: dict[int, tuple[str, str]] = {}
        """By turn length: the digest of the text first heard, and from whom."""
        self._heard: set[str] = set()
        self.report = Report(OURS.name, PEER_ACP.name)

    async def run(self, rounds: int) -> None:
        """Interleaved: each round runs every system once, starting with another one each time."""
        for number in range(rounds):
            turn = number % len(self._systems)
            for name in self._systems[turn:] + self._systems[:turn]:
                print(f"round {number + 1} of {rounds}: {name}", flush=True)
                gc.collect()
                self.report.add(name, await self._one(name))
        self.report.rounds = {name: self.report.rounds[name] for name in self._systems}
        if len(self._heard) > 1 and not any("another text" in failure for failure in self.report.failures):
            self.report.notes.append(f"same final text from {', '.join(sorted(self._heard))}")

    async def _one(self, name: str) -> Metrics:
        if name == DIRECT:
            metrics, texts = await direct.measure(self._sizes, self._cores, self._wanted)
            self._check_texts(name, texts)
            return metrics
        system = next(system for system in SYSTEMS if system.name == name)
        metrics = {}
        for group in groups_of(system, self._wanted):
            metrics |= await self._group(system, group)
        return metrics

    async def _group(self, system: System, group: list[str]) -> Metrics:
        """One group of measurements on a fresh start of the system. One that fails is reported and the rest go on."""
        metrics: Metrics = {}
        running = await start(system, self._cores)
        subject = Subject(running, self._sizes)
        try:
            for measure in group:
                try:
                    if measure != "idle" and not subject.contexts:
                        await subject.warm()
                    metrics |= await MEASURES[measure](subject)
                except (BenchError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                    self.report.failures.append(f"{system.name}, {measure}: {error}")
        finally:
            running.stop()
        if system.agent:
            self._check_texts(system.name, subject.texts)
        return metrics

    def _check_texts(self, name: str, texts: dict[int, str]) -> None:
        """Every system that drives the agent must give the same text for the same turn."""
        for length, text in texts.items():
            expected, first = self._texts.setdefault(length, (text, name))
            self._heard.add(name)
            if text != expected:
                self.report.failures.append(f"{name}: another text than {first} for a turn of {length} chunks")


def facts(arguments: list[str], cores: Cores, load: tuple[float, float, float], rounds: int) -> list[str]:
    """What someone needs to judge or repeat the numbers."""
    site = HOME / PEER_ACP.name / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    peer = next((path.name for path in site.glob("a2acode-*.dist-info")), "").removesuffix(".dist-info")
    memory = psutil.virtual_memory().total / 2**30
    return [
        f"command: `{shlex.join(['python', '-m', 'bench', *arguments])}`, {rounds} interleaved rounds, "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"machine: {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}; load average before the run {load[0]:.2f}",
        f"server on core {cores.server}; client and agent on core {cores.client}",
        f"a2a-sdk {version('a2a-sdk')}, uvicorn {version('uvicorn')}; "
        f"peer {peer}, as shipped: tasks in memory, no token, no uvloop",
    ]


def main(arguments: list[str]) -> int:
    chosen = options(arguments)
    systems = [name for name in NAMES if name in chosen.only] or NAMES
    wanted = {name for name in MEASURES if name in chosen.only} or set(MEASURES)
    rounds = chosen.rounds or (1 if chosen.quick else 3)
    load = os.getloadavg()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        install_peer()
        cores = Cores.pick()
        os.sched_setaffinity(0, {cores.client})
        sizes = Sizes.quick() if chosen.quick else Sizes()
        bench = Bench(systems, wanted, sizes, cores)
        uvloop.run(bench.run(rounds))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    report = bench.report
    report.notes[:0] = facts(arguments, cores, load, rounds)
    if chosen.quick:
        report.notes.insert(0, "quick: 8 callers, 200 turns, 40 streams, 3,000 chunks behind; not for comparison")
    (HOME / "results.json").write_text(json.dumps(report.rounds, indent=1))
    print(f"\n{report.markdown()}")
    if chosen.write:
        write(PAGE, report.markdown())
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
