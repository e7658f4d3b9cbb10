"""`python -m bench`: every system, round by round, on two cores; then the table."""

from __future__ import annotations

import argparse
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
Measured = tuple[Metrics, dict[int, str]]
"""Metrics, and digests of the final texts by turn length."""
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


async def run(systems: list[str], wanted: set[str], rounds: int, sizes: Sizes, cores: Cores) -> Report:
    """All rounds, interleaved: each round runs every system once, starting with another one each time."""
    report, texts = Report(OURS.name, PEER_ACP.name), TextCheck()
    for number in range(rounds):
        turn = number % len(systems)
        for name in systems[turn:] + systems[:turn]:
            print(f"round {number + 1} of {rounds}: {name}", flush=True)
            metrics, found = await one(name, wanted, sizes, cores)
            report.add(name, metrics)
            texts.check(name, found)
    report.rounds = {name: report.rounds[name] for name in systems}
    if texts.seen:
        report.notes.append(f"same final text: {', '.join(texts.seen)}")
    return report


class TextCheck:
    """Holds every system's answer to the same prompt against the first one heard."""

    def __init__(self) -> None:
        self._expected: dict[int, str] = {}
        self.seen: list[str] = []

    def check(self, name: str, found: dict[int, str]) -> None:
        """Raises BenchError when `name` answered with another text."""
        for length, text in found.items():
            if self._expected.setdefault(length, text) != text:
                raise BenchError(f"{name} gave another text for a turn of {length} chunks")
        if found and name not in self.seen:
            self.seen.append(name)


async def one(name: str, wanted: set[str], sizes: Sizes, cores: Cores) -> Measured:
    """One system, once: its metrics, and digests of its texts where it drives the agent."""
    gc.collect()
    if name == DIRECT:
        return await direct.measure(sizes, cores, wanted)
    system = next(system for system in SYSTEMS if system.name == name)
    return await served(system, wanted, sizes, cores)


async def served(system: System, wanted: set[str], sizes: Sizes, cores: Cores) -> Measured:
    """Each group of measurements on a fresh start of the system."""
    metrics: Metrics = {}
    texts: dict[int, str] = {}
    for group in groups_of(system, wanted):
        running = await start(system, cores)
        try:
            subject = Subject(running, sizes)
            for measure in group:
                if measure != "idle" and not subject.contexts:
                    await subject.warm()
                metrics |= await MEASURES[measure](subject)
            texts |= subject.texts if system.agent else {}
        finally:
            running.stop()
    return metrics, texts


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
        report = uvloop.run(run(systems, wanted, rounds, sizes, cores))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    report.notes[:0] = facts(arguments, cores, load, rounds)
    if chosen.quick:
        report.notes.insert(0, "quick: 8 callers, 200 turns, 40 streams, 3,000 chunks behind; not for comparison")
    (HOME / "results.json").write_text(json.dumps(report.rounds, indent=1))
    print(f"\n{report.markdown()}")
    if chosen.write:
        write(PAGE, report.markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
