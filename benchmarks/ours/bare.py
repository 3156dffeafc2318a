"""Measures the bare commands that the work cannot do without: the same bytes, written by hand, without any Lua.

Queue: XADD, XREADGROUP and XACK of the same batches. Store: MSET of the same strings, ZADD to three indexes, XADD of
the change, for each batch of 64 events. The server's CPU per event is the floor for `publish`, `fan_out` and `sink`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Any

from benchmarks.meter import Meter, report
from benchmarks.ours.bus import a_bus, fill, recorded, sink_workers, until
from benchmarks.sample import POOL, numbers
from eventbus.broker.bus import Bus
from eventbus.broker.stream_reader import READ_COUNT

QUEUED = 200_000
STORED = 30_000
#: Events in one call of `correlate_and_store` from a backlog of distinct events.
CALL = 64
#: Batches in one round trip, about as many as the recorder and the group reader have.
PIPELINED = 8


def main() -> None:
    bus = a_bus()
    client = bus.client()
    store(bus, client)
    queue(bus, client)


def queue(bus: Bus, client: Any) -> None:
    """Write the entries that a recorder has written once more, and read and acknowledge them as a group."""
    client.delete(bus.keys[0].incoming)
    fill(islice(cycle(range(POOL)), QUEUED))
    entries = [fields for _, fields in client.xrange(bus.keys[0].incoming)]
    events = sum(int(fields[b"n"]) for fields in entries)
    client.xgroup_create("bare:queue", "group", mkstream=True)
    meter = Meter()
    meter.start()
    for some in chunks(entries, PIPELINED):
        pipe = client.pipeline(transaction=False)
        for fields in some:
            pipe.execute_command("XADD", "bare:queue", "*", *(part for pair in fields.items() for part in pair))
        pipe.execute()
    report("bare", "XADD of the batches", **meter.stop(events))
    meter.start()
    command = ("XREADGROUP", "GROUP", "group", "one", "COUNT", READ_COUNT, "STREAMS", "bare:queue", ">")
    while found := client.execute_command(*command):
        client.xack("bare:queue", "group", *(id_ for id_, _ in found[0][1]))
    report("bare", "XREADGROUP and XACK of the batches", **meter.stop(events))
    client.delete("bare:queue")


def store(bus: Bus, client: Any) -> None:
    """Write everything that distinct events have in the store once more, with one MSET a batch."""
    keys = bus.keys[0]
    fill(numbers("distinct", STORED))
    with sink_workers(1):
        until(lambda: recorded(bus, client) >= STORED)
    strings = [
        [(b"bare:" + key, client.get(key)) for key in client.scan_iter(match=prefix + b"*", count=1000)][:STORED]
        for prefix in (keys.object, keys.correlation)
    ]
    indexes = [
        client.zrange(index, 0, STORED - 1, withscores=True)
        for index in (keys.index_name, keys.index_object, keys.index_expiry)
    ]
    changes = [fields for _, fields in client.xrevrange(keys.changes_of("events"), count=STORED)]
    meter = Meter()
    meter.start()
    for start in range(0, STORED, CALL):
        pipe = client.pipeline(transaction=False)
        pipe.mset({key: value for each in strings for key, value in each[start : start + CALL]})
        for number, members in enumerate(indexes):
            pipe.zadd(f"bare:index:{number}", dict(members[start : start + CALL]))
        for fields in changes[start : start + CALL]:
            pipe.execute_command("XADD", "bare:changes", "*", *(part for pair in fields.items() for part in pair))
        pipe.execute()
    report("bare", "MSET, 3 ZADD, XADD of distinct events", **meter.stop(STORED))


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


if __name__ == "__main__":
    main()
