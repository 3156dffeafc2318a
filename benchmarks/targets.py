"""The targets. Each is a ratio of two figures of the same run, a size or a count, so that any machine can judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from benchmarks.table import OURS, Collected

#: (peer, how many times its rate ours is)
PEERS_OF_PUBLISH = (("FastStream", 4.0), ("redis-stream-queue", 5.0), ("NATS (nats-py)", 4.0), ("walrus", 3.0))
PEERS_OF_CONSUME = (("FastStream", 4.0), ("redis-stream-queue", 4.0), ("NATS (nats-py)", 4.0))
BY_HAND = "redis-py, by hand"
SINK_WAY = "{}, 1 worker, 1 partition"


class Judged(NamedTuple):
    what: str
    target: str
    measured: str
    met: bool | None  #: None: not measured in this run


def judge(collected: Collected) -> list[str]:
    """Lines of a Markdown table: every target, its figure in this run, met or missed."""
    lines = ["### Targets\n", "| target | wanted | measured | |", "|---|---|---|---|"]
    words = {True: "met", False: "**missed**", None: "not measured"}
    return lines + [f"| {one.what} | {one.target} | {one.measured} | {words[one.met]} |" for one in _all(collected)]


def _all(found: Collected) -> Iterator[Judged]:
    yield _quickest_call(found)
    yield from _threads(found)
    for who, times in (*PEERS_OF_PUBLISH, (BY_HAND, 2.8)):
        yield _ratio(found, f"publish: events/s, times {who}", times, "publish", "publish", who)
    for who, times in (*PEERS_OF_CONSUME, (BY_HAND, 3.0)):
        yield _ratio(found, f"fan-out: events/s, times {who}", times, "fan-out", "consume", who)
    yield from _redis_cpu(found)
    yield from _loads(found)
    yield _latency(found)
    yield _memory(found)
    yield _most(found, "stored event: memory, bytes", 900, "memory", "bytes", "a stored event")
    yield _most(found, "a process that records: growth, MiB", 12, "growth", "mib", "a process")
    for fault in ("FLUSHALL", "restart with AOF", "restart empty"):
        yield _least(found, f"after {fault}: handled of 400", 400, "after fault", "handled", fault)
        yield _least(found, f"after {fault}: workers alive", 1, "after fault", "alive", fault)
    yield from _start_up(found)


def _redis_cpu(found: Collected) -> Iterator[Judged]:
    """Compare the server's CPU with that of the bare commands (`benchmarks/ours/bare.py`)."""
    queue = _sum(
        found.median("publish", OURS, "server_us"),
        found.median("fan-out", OURS, "server_us", "no-op"),
    )
    bare = _sum(
        found.median("bare", OURS, "server_us", "XADD"),
        found.median("bare", OURS, "server_us", "XREADGROUP"),
    )
    yield _share("publish and one group: CPU of Redis, times bare XADD, XREADGROUP, XACK", queue, bare, 1.3)
    distinct = found.median("sink", OURS, "server_us", SINK_WAY.format("distinct"))
    yield _share(
        "sink path, distinct: CPU of Redis, times bare MSET, 3 ZADD, XADD",
        distinct,
        found.median("bare", OURS, "server_us", "MSET"),
        1.1,
    )


def _loads(found: Collected) -> Iterator[Judged]:
    """Compare the sink path's rates: repeats must cost less than new events."""
    distinct = found.median("sink", OURS, "rate", SINK_WAY.format("distinct"))
    for load, times in (("zipf", 1.6), ("hot", 10.0)):
        rate = found.median("sink", OURS, "rate", SINK_WAY.format(load))
        ratio = rate / distinct if rate and distinct else None
        met = None if ratio is None else ratio >= times
        yield Judged(f"sink path, {load}: events/s, times distinct", f"≥ {times:g} ×", _times(ratio), met)


def _latency(found: Collected) -> Judged:
    way = "recorder → stored and watched, 5000/"
    ours, bare = _tail(found, way), _tail(found, "bare: XADD → XREADGROUP, XADD, XACK → XREAD, 5000/")
    said = f"{_times(ours)} (bare commands: {_times(bare)})"
    return Judged("stored and watched at 5 000/s: p99, times p50", "≤ 4 ×", said, None if ours is None else ours <= 4)


def _tail(found: Collected, way: str) -> float | None:
    p99, p50 = found.median("latency", OURS, "p99_ms", way), found.median("latency", OURS, "p50_ms", way)
    return p99 / p50 if p99 and p50 else None


def _start_up(found: Collected) -> Iterator[Judged]:
    nothing = found.median("start", OURS, "ms", "python that does nothing")
    for what, way, most in (
        ("`import eventbus`", "import", 2),
        ("`eventbus --help`", "eventbus --help", 10),
        ("worker ready", "eventbus worker", 30),
    ):
        yield _share(
            f"{what}: time, times a Python that does nothing", found.median("start", OURS, "ms", way), nothing, most
        )


def _sum(*parts: float | None) -> float | None:
    return sum(part for part in parts if part is not None) if None not in parts else None


def _share(what: str, ours: float | None, other: float | None, most: float) -> Judged:
    ratio = ours / other if ours is not None and other else None
    return Judged(what, f"≤ {most:g} ×", _times(ratio), None if ratio is None else ratio <= most)


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f} ×"


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
    return Judged(what, f"≥ {times:g} ×", _times(ratio), None if ratio is None else ratio >= times)


def _quickest_call(found: Collected) -> Judged:
    """Ours, in the dearest of its ways that the target names, against the quickest median call of any peer."""
    calls = {key.who: found.median("call", key.who, "p50_us") or 0.0 for key in found.rows if key.case == "call"}
    mine = max((found.median("caller", OURS, "p50_us", way) or 0.0 for way in ("idle", "busy")), default=0.0)
    if not calls or not mine:
        return Judged("`recorder.event()`: time, times the quickest peer's call", "≤ 1/40", "–", None)
    who = min(calls, key=lambda name: calls[name])
    busy = found.median("caller", OURS, "p50_us", "busy") or mine
    said = f"idle 1/{calls[who] / mine:.0f}, busy 1/{calls[who] / busy:.0f} of {who} ({calls[who]:.0f} µs)"
    return Judged("`recorder.event()`: time, times the quickest peer's call", "≤ 1/40", said, mine <= calls[who] / 40)


def _threads(found: Collected) -> Iterator[Judged]:
    one = found.median("threads", OURS, "rate", "1 ")
    for threads in (8, 64):
        many = found.median("threads", OURS, "rate", f"{threads} ")
        share = many / one if one and many else None
        met = None if share is None else share >= 0.5
        yield Judged(f"{threads} threads: events/s, times one thread", "≥ 0.5", _number(share), met)


def _memory(found: Collected) -> Judged:
    peers = {key.who: found.median("memory", key.who, "bytes") for key in found.rows if key.case == "memory"}
    mine = found.median("memory", OURS, "bytes", "a queued event")
    leanest = min((size for who, size in peers.items() if who != OURS and size), default=None)
    share = mine / leanest if mine and leanest else None
    met = None if share is None else share <= 0.15
    return Judged("queued event: memory, times the leanest peer", "≤ 0.15", _number(share), met)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
