"""The targets, each judged by what this run measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from benchmarks.table import OURS, Collected

#: A target with another's figure in it: (case, who).
PEERS_OF_PUBLISH = (("FastStream", 4.0), ("redis-stream-queue", 5.0), ("NATS (nats-py)", 4.0), ("walrus", 2.5))
PEERS_OF_CONSUME = (("FastStream", 4.0), ("redis-stream-queue", 4.0), ("NATS (nats-py)", 4.0))
BY_HAND = "redis-py, by hand"


class Judged(NamedTuple):
    what: str
    target: str
    measured: str
    met: bool | None  #: None: not measured in this run


def judge(collected: Collected) -> list[str]:
    """Lines of a Markdown table: every target, what was measured, met or missed."""
    lines = ["### Targets\n", "| target | wanted | measured | |", "|---|---|---|---|"]
    words = {True: "met", False: "**missed**", None: "not measured"}
    return lines + [f"| {one.what} | {one.target} | {one.measured} | {words[one.met]} |" for one in _all(collected)]


def _all(found: Collected) -> Iterator[Judged]:
    for way in ("idle", "busy", "flat out"):
        yield _most(found, f"`recorder.event()`, {way}: median µs", 2, "caller", "p50_us", way)
        yield _most(found, f"`recorder.event()`, {way}: p99 µs", 10, "caller", "p99_us", way)
    yield _most(found, "`recorder.event()`, with local logging: median µs", 3, "caller", "p50_us", "with local logging")
    yield _quickest_call(found)
    yield from _threads(found)
    yield _least(found, "publish, events/s", 250_000, "publish", "rate")
    for who, times in (*PEERS_OF_PUBLISH, (BY_HAND, 2.0)):
        yield _ratio(found, f"publish, against {who}", times, "publish", "publish", who)
    yield _least(found, "fan-out to a no-op handler, events/s", 340_000, "fan-out", "rate", "no-op")
    for who, times in (*PEERS_OF_CONSUME, (BY_HAND, 2.5)):
        yield _ratio(found, f"fan-out, against {who}", times, "fan-out", "consume", who)
    yield _server_cpu(found)
    for load, rate in (("distinct", 32_000), ("zipf", 60_000), ("hot", 400_000)):
        yield _least(found, f"sink path, {load}, events/s", rate, "sink", "rate", f"{load}, 1 worker, 1 partition")
        yield _most(found, f"sink path, {load}: mean ms a call", 2, "sink", "call_ms", f"{load}, 1 worker, 1 partition")
    for who, way, figure, most in (
        ("handler", "recorder → watcher", "p50_ms", 0.3),
        ("handler", "recorder → watcher", "p99_ms", 0.5),
        ("stored and watched", "recorder → stored and watched", "p50_ms", 0.7),
    ):
        what = f"latency at 500/s, recorder → {who}: {figure[:3]} ms"
        yield _most(found, what, most, "latency", figure, f"{way}, 500/")
    what = "latency at 5000/s, recorder → stored and watched: p99 ms"
    yield _most(found, what, 5, "latency", "p99_ms", "recorder → stored and watched, 5000/")
    yield _memory(found)
    yield _most(found, "memory of a stored event, bytes", 1_000, "memory", "bytes", "a stored event")
    for fault in ("FLUSHALL", "restart with AOF", "restart empty"):
        yield _least(found, f"after {fault}: handled of 400", 400, "after fault", "handled", fault)
        yield _least(found, f"after {fault}: workers alive", 1, "after fault", "alive", fault)
    yield _most(found, "`import eventbus`, ms", 60, "start", "ms", "import")
    yield _most(found, "`eventbus --help`, ms", 250, "start", "ms", "eventbus --help")
    yield _most(found, "worker ready, ms", 1_000, "start", "ms", "eventbus worker")


def _most(found: Collected, what: str, limit: float, case: str, figure: str, way: str = "") -> Judged:
    return _bound(found, what, limit, case, figure, way, "≤", lambda value: value <= limit)


def _least(found: Collected, what: str, limit: float, case: str, figure: str, way: str = "") -> Judged:
    return _bound(found, what, limit, case, figure, way, "≥", lambda value: value >= limit)


def _bound(
    found: Collected,
    what: str,
    limit: float,
    case: str,
    figure: str,
    way: str,
    sign: str,
    holds: Callable[[float], bool],
) -> Judged:
    value = found.median(case, OURS, figure, way)
    return Judged(what, f"{sign} {limit:,}", _number(value), None if value is None else holds(value))


def _ratio(found: Collected, what: str, times: float, ours: str, case: str, who: str) -> Judged:
    mine, other = found.median(ours, OURS, "rate"), found.median(case, who, "rate")
    ratio = mine / other if mine and other else None
    return Judged(what, f"≥ {times:g} ×", f"{ratio:.2f} ×" if ratio else "–", None if ratio is None else ratio >= times)


def _quickest_call(found: Collected) -> Judged:
    """Ours, in the dearest of its ways that the target names, against the quickest median call of any peer."""
    calls = {key.who: found.median("call", key.who, "p50_us") or 0.0 for key in found.rows if key.case == "call"}
    mine = max((found.median("caller", OURS, "p50_us", way) or 0.0 for way in ("idle", "busy")), default=0.0)
    if not calls or not mine:
        return Judged("`recorder.event()` against the quickest peer's call", "≤ 1/40", "–", None)
    who = min(calls, key=lambda name: calls[name])
    busy = found.median("caller", OURS, "p50_us", "busy") or mine
    said = f"idle 1/{calls[who] / mine:.0f}, busy 1/{calls[who] / busy:.0f} of {who} ({calls[who]:.0f} µs)"
    return Judged("`recorder.event()` against the quickest peer's call", "≤ 1/40", said, mine <= calls[who] / 40)


def _threads(found: Collected) -> Iterator[Judged]:
    one = found.median("threads", OURS, "rate", "1 ")
    for threads in (8, 64):
        many = found.median("threads", OURS, "rate", f"{threads} ")
        share = many / one if one and many else None
        met = None if share is None else share >= 0.5
        yield Judged(f"{threads} threads, of one thread's throughput", "≥ 0.5", _number(share), met)


def _server_cpu(found: Collected) -> Judged:
    parts = [found.median("publish", OURS, "server_us"), found.median("fan-out", OURS, "server_us", "no-op")]
    total = sum(part for part in parts if part is not None) if None not in parts else None
    met = None if total is None else total <= 1.0
    return Judged("Redis CPU per event, publish + one group, µs", "≤ 1", _number(total), met)


def _memory(found: Collected) -> Judged:
    peers = {key.who: found.median("memory", key.who, "bytes") for key in found.rows if key.case == "memory"}
    mine = found.median("memory", OURS, "bytes", "a queued event")
    leanest = min((size for who, size in peers.items() if who != OURS and size), default=None)
    share = mine / leanest if mine and leanest else None
    met = None if share is None else share <= 0.15
    return Judged("memory of a queued event, of the leanest peer's", "≤ 0.15", _number(share), met)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
