"""Measures how cost grows: objects in the store, groups on the stream, events queued at a restart, a list of all.

python -m benchmarks.ours.growth objects|groups|restart|relist NUMBER
"""

from __future__ import annotations

import random
import sys
import time
from itertools import cycle, islice

from benchmarks.meter import Meter, report
from benchmarks.ours import bus as shared
from benchmarks.ours.bus import fill, record, recorded, sink_workers, until
from benchmarks.sample import POOL, numbers
from benchmarks.servers import a_server
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.keys import SINK_GROUP
from eventbus.broker.stream_reader import GroupReader
from eventbus.settings import MIB, Options, Settings
from eventbus.store.object_store import ObjectStore

#: Bounds that hold what is measured here.
ROOMY = Options(max_stored=2_000_000, max_records=4_000_000, incoming_bytes=16_384 * MIB)
EVENTS = 30_000


def a_roomy_bus() -> Bus:
    return open_bus(shared.URL, Settings(), options=ROOMY)


def objects(number: int) -> None:
    """Measure the cost of an event when so many objects are stored: each of the events is about one of them."""
    bus = a_roomy_bus()
    store(bus, number)
    client, chance = bus.client(), random.Random(1)
    fill(chance.randrange(number) for _ in range(EVENTS))
    before = recorded(bus, client)
    with sink_workers(1) as processes:
        until(lambda: recorded(bus, client) > before, every_s=0.002)
        client.config_resetstat()
        meter, start = Meter(*(process.pid for process in processes)), recorded(bus, client)
        meter.start()
        until(lambda: recorded(bus, client) >= before + EVENTS)
        figures = meter.stop(before + EVENTS - start)
    calls = client.info("commandstats")["cmdstat_fcall"]
    report("growth", f"sink, {number:,} objects stored", **figures, call_ms=calls["usec"] / 1000 / calls["calls"])


def groups(number: int) -> None:
    """Measure what so many groups cost Redis per event, each reading all of them, undecoded, and acknowledging."""
    bus, total = a_roomy_bus(), 200_000
    fill(islice(cycle(range(POOL)), total))
    client = bus.client()
    readers = [
        GroupReader(
            bus=bus, client=client, partition=0, group=f"g{n}", consumer="c", policy=GroupPolicy.WAIT, start="0"
        )
        for n in range(number)
    ]
    for reader in readers:
        reader.open()
    meter = Meter()
    meter.start()
    for reader in readers:
        while deliveries := reader.read(0):
            reader.ack([delivery.id for delivery in deliveries])
    report("growth", f"{number} groups read each event, undecoded", **meter.stop(total))


def restart(number: int) -> None:
    """Measure how long Redis takes to come back with so many events queued, and until the first of them is read."""
    with a_server() as server:
        shared.URL = server.url
        bus = a_roomy_bus()
        with shared.a_recorder() as (broadcaster, recorder):
            record(recorder, islice(cycle(range(POOL)), number))
            assert broadcaster.flush(600)
        size = bus.client().info("memory")["used_memory"]
        start = time.perf_counter()
        server.stop()
        stopped = time.perf_counter()
        server.start()
        ready = time.perf_counter()
        reader = GroupReader(
            bus=bus,
            client=bus.client(),
            partition=0,
            group=SINK_GROUP,
            consumer="c",
            policy=GroupPolicy.WAIT,
            start="0",
        )
        assert len(reader.read(0)) > 0
    figures = {"stop_s": stopped - start, "start_s": ready - stopped, "mib": size / MIB}
    report("growth", f"restart with {number:,} events queued", **figures)


def relist(number: int) -> None:
    """Measure how long a list of so many stored events takes, the first and the second time."""
    bus = a_roomy_bus()
    store(bus, number)
    for way in ("list", "relist"):
        with bus.client() as client:
            meter = Meter()
            meter.start()
            start = time.perf_counter()
            found = ObjectStore(bus, client).list().items
            seconds = time.perf_counter() - start
            report("growth", f"{way} of {number:,}", **meter.stop(len(found)), start_s=seconds)


def store(bus: Bus, number: int) -> None:
    client, missing = bus.client(), number
    fill(numbers("distinct", missing))
    with sink_workers(1):
        until(lambda: recorded(bus, client) >= number, every_s=0.1)


if __name__ == "__main__":
    {"objects": objects, "groups": groups, "restart": restart, "relist": relist}[sys.argv[1]](int(sys.argv[2]))
