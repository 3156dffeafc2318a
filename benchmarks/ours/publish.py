"""Events a second through `recorder.event()` until Redis has them; and what one of them takes there while queued."""

from __future__ import annotations

from itertools import cycle, islice

from benchmarks.meter import Meter, report
from benchmarks.ours.bus import a_bus, a_recorder, record
from benchmarks.sample import POOL

EVENTS = 300_000


def main() -> None:
    bus = a_bus()
    client = bus.client()
    with a_recorder() as (broadcaster, recorder):
        record(recorder, range(POOL))
        broadcaster.flush()
        before = client.info("memory")["used_memory_dataset"]
        meter = Meter()
        meter.start()
        record(recorder, islice(cycle(range(POOL)), EVENTS))
        assert broadcaster.flush(600)
        figures = meter.stop(EVENTS)
        bytes_each = (client.info("memory")["used_memory_dataset"] - before) / EVENTS
        entries = client.xlen(bus.keys[0].incoming)
    report("publish", "recorder.event(), flush", **figures, batch=(EVENTS + POOL) / entries)
    report("memory", "a queued event", bytes=bytes_each)


if __name__ == "__main__":
    main()
