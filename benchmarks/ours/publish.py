"""Events a second through `recorder.event()` until Redis has them; and what one of them takes there while queued."""

from __future__ import annotations

import random
from itertools import cycle, islice

from benchmarks.meter import Meter, report
from benchmarks.ours.bus import a_bus, a_recorder, record, reference
from benchmarks.sample import POOL, REASON, TYPE, message

EVENTS = 300_000
#: Events whose messages have nothing in common.
RANDOM_EVENTS = 20_000


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

        before = client.info("memory")["used_memory_dataset"]
        chance, length = random.Random(1), len(message(0))
        for number in range(RANDOM_EVENTS):
            recorder.event(reference(number % POOL), TYPE, REASON, chance.randbytes(length).hex()[:length])
        assert broadcaster.flush(600)
        random_bytes_each = (client.info("memory")["used_memory_dataset"] - before) / RANDOM_EVENTS
    report("publish", "recorder.event(), flush", **figures, batch=(EVENTS + POOL) / entries)
    report("memory", "a queued event", bytes=bytes_each)
    report("memory", "queued, with a message of random characters", bytes=random_bytes_each)


if __name__ == "__main__":
    main()
