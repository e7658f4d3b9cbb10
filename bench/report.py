"""Results as tables: medians and best values by system, ratios, and the limits that this server is to keep."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

Rounds = dict[str, list[dict[str, float]]]
"""By system: the metrics of each round."""
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
LENGTHS = (1000, 2000, 4000, 8000)


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table. `more`: more is better."""

    key: str
    title: str
    more: bool = False


METRICS = (
    Metric("first_1_ms", "first event, 1 caller, ms"),
    Metric("first_32_ms", "first event, 32 callers, ms"),
    Metric("text_1_ms", "first text, 1 caller, ms"),
    Metric("text_32_ms", "first text, 32 callers, ms"),
    Metric("turn_1_ms", "whole turn p50, 1 caller, ms"),
    Metric("turn_1_p99_ms", "whole turn p99, 1 caller, ms"),
    Metric("turn_32_ms", "whole turn p50, 32 callers, ms"),
    Metric("turn_32_p99_ms", "whole turn p99, 32 callers, ms"),
    Metric("turns_32_s", "turns a second, 32 callers", more=True),
    *(Metric(f"chunks_{length}_s", f"agent chunks a second, turn of {length:,}", more=True) for length in LENGTHS),
    Metric("get_ms", "GetTask p50, ms"),
    Metric("list_ms", "ListTasks, page of 50 of 5,000, p50, ms"),
    Metric("stream_kib", "memory of an open stream, KiB"),
    Metric("streams_open_s", "500 streams, time to open, s"),
    Metric("streams_turn_ms", "500 streams open, whole turn p50, ms"),
    Metric("streams_ended", "500 streams, share that got the end", more=True),
    Metric("streams_end_s", "500 streams, time until all ended, s"),
    Metric("slow_end", "reader 6,000 chunks behind gets the end", more=True),
    Metric("slow_text", "reader 6,000 chunks behind has the whole text", more=True),
    Metric("slow_events", "reader 6,000 chunks behind, events read"),
    Metric("slow_ms", "reader 6,000 chunks behind, time to the end, ms"),
    Metric("start_ms", "start to first served card, ms"),
    Metric("idle_mib", "resident memory idle, MiB"),
    Metric("after_mib", "resident memory after 5,000 turns, MiB"),
    Metric("added_mib", "resident memory that 5,000 turns add, MiB"),
)


@dataclass(frozen=True, slots=True)
class Limit:
    """A promise: `value(medians)` must be at most (or, with `least`, at least) `bound`.

    `over`: "/a2acode" divides by that system's value, "-direct" subtracts it, "" takes the value itself.
    """

    text: str
    key: str
    bound: float
    over: str = ""
    least: bool = False

    def value(self, medians: dict[str, dict[str, float]], ours: str) -> float | None:
        """The measured number to hold against the bound; None where something was not measured."""
        mine = medians.get(ours, {}).get(self.key)
        if mine is None or not self.over:
            return mine
        other = medians.get(self.over[1:], {}).get(self.key)
        if other is None:
            return None
        return mine / other if self.over[0] == "/" else mine - other

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.least else value <= self.bound


LIMITS = (
    Limit("whole turn, 1 caller, against a2acode", "turn_1_ms", 0.6, "/a2acode"),
    Limit("turns a second, 32 callers, against a2acode", "turns_32_s", 3, "/a2acode", least=True),
    *(
        Limit(f"chunks a second, turn of {length:,}, against a2acode", f"chunks_{length}_s", 4, "/a2acode", least=True)
        for length in LENGTHS
    ),
    Limit("chunks a second, slowest length against fastest", "chunks_flat", 0.8, least=True),
    Limit("first event, 1 caller, against a2acode", "first_1_ms", 0.3, "/a2acode"),
    Limit("first event, 32 callers, against a2acode", "first_32_ms", 0.3, "/a2acode"),
    Limit("what the host adds to the bare turn, ms", "turn_1_ms", 2, "-direct"),
    Limit("GetTask against a2acode", "get_ms", 1, "/a2acode"),
    Limit("ListTasks, page of 50 of 5,000, ms", "list_ms", 3),
    Limit("slow reader gets the end", "slow_end", 1, least=True),
    Limit("memory of an open stream, KiB", "stream_kib", 50),
    Limit("resident memory idle, MiB", "idle_mib", 110),
    Limit("memory that 5,000 turns add, MiB", "added_mib", 20),
    Limit("start to first card, ms", "start_ms", 1200),
)


@dataclass(slots=True)
class Report:
    """All results of a run. `ours` is the system the limits are about, `peer` the one it is divided by."""

    ours: str
    peer: str
    rounds: Rounds = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, system: str, metrics: dict[str, float]) -> None:
        rates = [metrics[key] for length in LENGTHS if (key := f"chunks_{length}_s") in metrics]
        if len(rates) > 1:
            metrics = {**metrics, "chunks_flat": min(rates) / max(rates)}
        self.rounds.setdefault(system, []).append(metrics)

    def medians(self) -> dict[str, dict[str, float]]:
        return {
            system: {key: statistics.median(values_of(key, rounds)) for key in sorted(set().union(*rounds))}
            for system, rounds in self.rounds.items()
        }

    def markdown(self) -> str:
        """The notes, what failed, the table of results and the table of limits."""
        failures = (f"**failed**: {failure}" for failure in self.failures)
        notes = "\n".join(f"- {note}" for note in [*self.notes, *failures])
        return "\n\n".join([notes, self._results(), self._limits()]) + "\n"

    def _results(self) -> str:
        systems, medians = list(self.rounds), self.medians()
        header = ["median (best)", *systems, f"{self.ours} / {self.peer}"]
        rows = []
        for metric in METRICS:
            cells = [cell(values_of(metric.key, self.rounds[system]), metric.more) for system in systems]
            if any(cells):
                rows.append([metric.title, *cells, self._ratio(metric.key, medians)])
        return table(header, rows)

    def _ratio(self, key: str, medians: dict[str, dict[str, float]]) -> str:
        mine, other = medians.get(self.ours, {}).get(key), medians.get(self.peer, {}).get(key)
        return f"{mine / other:.2f}" if mine is not None and other else ""

    def _limits(self) -> str:
        medians, rows = self.medians(), []
        for limit in LIMITS:
            value = limit.value(medians, self.ours)
            if value is not None:
                bound = f"{'at least' if limit.least else 'at most'} {number(limit.bound)}"
                rows.append([limit.text, bound, number(value), "yes" if limit.holds(value) else "**no**"])
        return table(["limit", "bound", "measured", "kept"], rows) if rows else ""


def values_of(key: str, rounds: Iterable[dict[str, float]]) -> list[float]:
    """The values of one metric over all rounds that have it."""
    return [metrics[key] for metrics in rounds if key in metrics]


def cell(values: list[float], more: bool) -> str:
    """`median (best)`; empty for no values."""
    if not values:
        return ""
    best = max(values) if more else min(values)
    return f"{number(statistics.median(values))} ({number(best)})"


def number(value: float) -> str:
    """Three digits that matter, thousands with commas."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with padded columns, readable as plain text too."""
    widths = [max(len(row[at]) for row in [header, *rows]) for at in range(len(header))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in [header, *rows]
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def write(page: Path, text: str) -> None:
    """Put `text` between the page's markers; a page without them gets them at its end."""
    before = page.read_text() if page.exists() else "# Performance\n"
    block = f"{BEGIN}\n{text}{END}"
    if BEGIN in before and END in before:
        start, rest = before.split(BEGIN, 1)
        after = f"{start}{block}{rest.split(END, 1)[1]}"
    else:
        after = f"{before.rstrip()}\n\n{block}\n"
    page.parent.mkdir(exist_ok=True)
    page.write_text(after)
