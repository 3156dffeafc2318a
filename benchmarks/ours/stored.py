"""Measures the memory of a stored event in Redis, with all its keys and indexes, after the queue was trimmed."""

from __future__ import annotations

from benchmarks.meter import report
from benchmarks.ours.bus import a_bus, fill, recorded, sink_workers, until
from benchmarks.sample import numbers

EVENTS = 30_000


def main() -> None:
    bus = a_bus()
    client, keys = bus.client(), bus.keys[0]
    before = client.info("memory")["used_memory_dataset"]
    fill(numbers("distinct", EVENTS))
    with sink_workers(1):
        until(lambda: recorded(bus, client) >= EVENTS)
        until(lambda: not client.xlen(keys.incoming), every_s=0.1)
    # `changes` is bounded by its bytes and dead for readers that keep up, so it is no cost of an event that stays.
    changes = client.memory_usage(keys.changes_of("events"), samples=0)
    each = (client.info("memory")["used_memory_dataset"] - before - changes) / EVENTS
    object_key = keys.object + client.zrandmember(keys.index_expiry)
    report("memory", "a stored event, with indexes and correlation state", bytes=each)
    report("memory", "of it the object itself", bytes=client.memory_usage(object_key))


if __name__ == "__main__":
    main()
