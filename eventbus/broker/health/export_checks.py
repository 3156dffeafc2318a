"""The doctor's checks of exports: paused, behind, without workers, never used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventbus.broker.health.export_status import SinkPart, SinkStatus
from eventbus.broker.health.findings import Finding, error, ok, warning
from eventbus.util.text import printable

#: A pause is told after so long, and is no passing outage any more after so long, ms.
PAUSED_MS, PAUSED_LONG_MS = 60_000, 600_000


def check_exports(sinks: Sequence[SinkStatus], now_ms: int) -> Iterator[Finding]:
    """Find sinks that do not get what they should. *now_ms*: since 1970."""
    well = waiting = 0
    for sink in sinks:
        found = [*_paused(sink, now_ms), *_without_worker(sink)]
        waiting += not found and bool(sink.paused_since_ms)
        well += not found and not sink.paused_since_ms
        yield from found
    if well:
        yield ok("exports", f"{well} sink{'s' * (well != 1)} being written to")
    if waiting:
        yield ok("exports", f"{waiting} sink{'s' * (waiting != 1)} that did not answer just now; each is tried again")


def _paused(sink: SinkStatus, now_ms: int) -> Iterator[Finding]:
    paused_ms = now_ms - sink.paused_since_ms
    if not sink.paused_since_ms or paused_ms < PAUSED_MS or len(sink.orphans) == len(sink.parts):
        return
    why = f": {printable(sink.error)}" if sink.error else ""
    text = f"{sink.name} has been paused for {paused_ms // 60_000} min, {sink.lag} changes behind{why}"
    cure = "mend what it says; the worker goes on by itself, and loses nothing while the events live (eventTtlS)"
    yield (error if paused_ms >= PAUSED_LONG_MS else warning)("exports", text, cure)


def _without_worker(sink: SinkStatus) -> Iterator[Finding]:
    if not sink.orphans:
        return
    parts = [part for part in sink.parts if part.partition in sink.orphans]
    where = "" if len(parts) == len(sink.parts) else f" on partition {', '.join(map(str, sink.orphans))}"
    yield warning(
        "exports",
        f"{sink.name} has no worker{where}{_silent(parts)}, and is {sum(part.lag for part in parts)} changes behind",
        f"start it again (eventbus worker export --to …), or if it was only tried: eventbus group delete "
        f"export:{sink.name}",
    )


def _silent(parts: Sequence[SinkPart]) -> str:
    """Say since when nobody has held them."""
    seen_s = min(part.seen_s for part in parts)
    hours = seen_s / 3600
    return f" since {int(hours)} h" if hours >= 1 else f" since {int(seen_s // 60)} min" if seen_s >= 60 else ""


__all__ = ["PAUSED_LONG_MS", "PAUSED_MS", "check_exports"]
