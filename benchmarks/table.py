"""One table: a line for each (case, who, way), median (min–max) of the rounds, and ratios to ours."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.parts import Figures

OURS = "eventbus"


class Key(NamedTuple):
    case: str
    who: str
    way: str


class Collected:
    """The figures of all rounds."""

    def __init__(self) -> None:
        self.rows: dict[Key, dict[str, list[float]]] = {}
        self._others: list[float] = []

    def add(self, found: Iterable[Figures]) -> None:
        for one in found:
            row = self.rows.setdefault(Key(one.case, one.who, one.way), {})
            self._others.append(one.others)
            for name, value in one.values.items():
                row.setdefault(name, []).append(value)

    def others(self) -> tuple[float, float]:
        """Cores that other processes used: median and worst of the parts."""
        return (statistics.median(self._others), max(self._others)) if self._others else (0.0, 0.0)

    def median(self, case: str, who: str, figure: str, way: str = "") -> float | None:
        """Return the median of rows whose way begins with *way*; the largest of several. None: not measured."""
        found = [
            statistics.median(row[figure])
            for key, row in self.rows.items()
            if key.case == case and key.who == who and key.way.startswith(way) and figure in row
        ]
        return max(found) if found else None

    def plain(self) -> list[dict[str, object]]:
        return [{**key._asdict(), "figures": row} for key, row in self.rows.items()]


#: figure, heading, digits
COLUMNS = (
    ("rate", "events/s", 0),
    ("p50_us", "p50 µs", 2),
    ("p99_us", "p99 µs", 2),
    ("p999_us", "p99.9 µs", 1),
    ("client_us", "client CPU µs/event", 2),
    ("server_us", "server CPU µs/event", 2),
)
#: Case, heading, which figures; cases without a rate have columns of their own.
CASES: tuple[tuple[str, str, tuple[tuple[str, str, int], ...]], ...] = (
    ("caller", "The caller's cost of `recorder.event()`", COLUMNS[1:4]),
    ("call", "One publish at a time, as the caller of a peer sees it", COLUMNS),
    ("threads", "`recorder.event()` from many threads, until Redis has all", COLUMNS),
    ("publish", "Publish, one process, until the server has them", (COLUMNS[0], *COLUMNS[4:])),
    ("consume", "Consume, decoded and acknowledged, one worker process", (COLUMNS[0], *COLUMNS[4:])),
    ("fan-out", "Fan-out: a worker of a named group", (COLUMNS[0], *COLUMNS[4:])),
    ("bare", "The bare commands, by hand: the floor of Redis's CPU", (COLUMNS[0], *COLUMNS[4:])),
    (
        "sink",
        "The sink path: correlated and stored, from a backlog",
        (COLUMNS[0], *COLUMNS[4:], ("call_ms", "ms a call", 2), ("call_p99_ms", "p99 ms", 2)),
    ),
    (
        "latency",
        "Latency between processes",
        (("p50_ms", "p50 ms", 2), ("p99_ms", "p99 ms", 2), ("max_ms", "max ms", 1)),
    ),
    ("memory", "Memory in Redis", (("bytes", "bytes", 0),)),
    (
        "growth",
        "How cost grows",
        (
            COLUMNS[0],
            *COLUMNS[4:],
            ("call_ms", "ms a call", 2),
            ("stop_s", "stop s", 1),
            ("start_s", "s", 2),
            ("mib", "MiB", 0),
        ),
    ),
    ("start", "Start-up", (("ms", "ms", 0),)),
    (
        "after fault",
        "400 events recorded after a fault",
        (("handled", "handled", 0), ("stored", "stored", 0), ("alive", "workers alive", 0)),
    ),
)


def render(collected: Collected) -> str:
    """All lines as one Markdown table a case."""
    return "\n".join(_case(collected, *case) for case in CASES)


def _case(collected: Collected, case: str, heading: str, columns: tuple[tuple[str, str, int], ...]) -> str:
    rows = {key: row for key, row in collected.rows.items() if key.case == case}
    if not rows:
        return ""
    ours = {"consume": "fan-out", "call": "caller"}.get(case, case)
    mine = collected.median(ours, OURS, "rate") if case in ("publish", "consume") else None
    ratio = " ours is |" if mine else ""
    lines = [f"\n### {heading}\n", f"| system | way |{'|'.join(f' {name} ' for _, name, _ in columns)}|{ratio}"]
    lines.append("|---|---|" + "--:|" * (len(columns) + bool(mine)))
    for key, row in rows.items():
        cells = "|".join(f" {_cell(row.get(figure), digits)} " for figure, _, digits in columns)
        times = f" {mine / statistics.median(row['rate']):.1f} × |" if mine else ""
        lines.append(f"| {key.who} | {key.way} |{cells}|{times}")
    return "\n".join(lines)


def _cell(values: list[float] | None, digits: int) -> str:
    if not values:
        return "–"
    middle = f"{statistics.median(values):,.{digits}f}"
    low, high = f"{min(values):,.{digits}f}", f"{max(values):,.{digits}f}"
    return middle if low == high else f"{middle} ({low}–{high})"
