"""Measures the memory that two million objects leave behind, next to the bound that the options promise.

python -m benchmarks.record_calls --bounds [OBJECTS]; takes minutes, so that `python -m benchmarks` leaves it out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from benchmarks.loads import all_distinct, event
from benchmarks.sink_worker import Worker, an_embedded_bus, chunks
from eventbus.broker.bus import Bus
from eventbus.consume.housekeeper import Housekeeper
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS
from eventbus.settings import MIB, Options
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock

#: A key's place in a table of keys, or of keys that expire, when the table has just grown to twice its size.
SLOT_BYTES = 32
#: `changes` is bounded by the bytes of its objects; this is the whole stream, with ids, fields and half empty nodes.
STREAM_OVERHEAD = 1.5
#: An empty server with the function library, and the buffers of a few clients.
SERVER_BYTES = 16 * MIB


def measure_bounds(objects: int) -> int:
    """Flood a bus with *objects* that are heard of once, and one hot one; compare memory with the computed bound.

    Returns: 1 if memory stays above the bound, or the hot object's count is not exact.
    """
    with an_embedded_bus(Options(exempt_reasons=("Hot",))) as bus:
        housekeeper = Housekeeper(bus=bus, clock=SystemClock())
        # As a sink worker does: it sweeps before it goes on, once it is a tenth beyond a bound.
        worker = Worker(bus, housekeeper)
        start, peak, hot = time.monotonic(), 0, 0
        housekeeper.start()
        for part in chunks(all_distinct(), objects, 64 * MAX_BATCH_EVENTS):
            worker.append([*part, event("hot", "Still hot", reason="Hot")])
            worker.drain()
            hot += 1
            peak = max(peak, used_bytes(worker.client))
        flood_s = time.monotonic() - start
        while beyond_bounds(bus, worker.client):
            time.sleep(0.1)
        settled_s = time.monotonic() - start - flood_s
        housekeeper.stop()
        (kept,) = ObjectStore(bus, worker.client).list(name="hot").items
        left = used_bytes(worker.client)
        total = print_bound(bus.options, bytes_each(worker.client, bus))
        evicted = int(worker.client.hget(bus.keys[0].meta, "evicted") or 0)
    print(f"\n{objects:,} objects in {flood_s:.0f} s; {settled_s:.0f} s later all counts are within their bounds.")
    print(f"Memory: {mib(peak)} at the peak, {mib(left)} left; computed bound {mib(total)}.")
    print(f"Evicted events: {evicted:,}. The hot object counts {kept.count} of {hot}.")
    return int(left > total or kept.count != hot)


def print_bound(options: Options, each: Mapping[str, float]) -> float:
    """Print and return the most bytes that a partition may hold, what is queued left out, by the options and *each*."""
    counts = {
        "stored events, with their indexes": (options.max_stored, each["event"]),
        "remembered counts": (options.max_records - options.max_stored, each["count"]),
        "states of sources": (options.max_records, each["subject"]),
        "changes": (options.changes_bytes, STREAM_OVERHEAD),
        "server, functions": (1, SERVER_BYTES),
    }
    print("| part | at most | bytes each | MiB |\n|---|--:|--:|--:|")
    for part, (number, size) in counts.items():
        print(f"| {part} | {number:,} | {size:,.1f} | {number * size / MIB:.0f} |")
    return sum(number * size for number, size in counts.values())


def bytes_each(client: Any, bus: Bus) -> dict[str, float]:
    """Bytes of one of each, from a sample: the keys as the server counts them, a table's slot, the index members."""
    keys = bus.keys[0]
    expiry, forget = client.zrandmember(keys.index_expiry, 1_000), client.zrandmember(keys.index_forget, 1_000)
    event_size = mean_usage(client, [keys.object + member for member in expiry])
    count_size = mean_usage(client, [keys.object + member for member in forget])
    state = mean_usage(client, islice(client.scan_iter(match=keys.correlation + b"*", count=10_000), 1_000))
    indexes = sum(per_member(client, index) for index in (keys.index_expiry, keys.index_name, keys.index_object))
    return {
        "event": event_size + SLOT_BYTES + indexes,
        "count": count_size + SLOT_BYTES + per_member(client, keys.index_forget),
        "subject": state + 2 * SLOT_BYTES,
    }


def mean_usage(client: Any, keys: Iterable[bytes]) -> float:
    """MEMORY USAGE of a key, on average."""
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.memory_usage(key)
    return statistics.fmean(size for size in pipe.execute() if size)


def per_member(client: Any, index: bytes) -> float:
    """Bytes of a sorted set for each of its members; 0 if there is none."""
    members: int = client.zcard(index)
    return client.memory_usage(index, samples=0) / members if members else 0.0


def beyond_bounds(bus: Bus, client: Any) -> bool:
    """Return True if housekeeping still has something to let go of."""
    keys, options = bus.keys[0], bus.options
    stored, counts = client.zcard(keys.index_expiry), client.zcard(keys.index_forget)
    return bool(stored > options.max_stored or stored + counts > options.max_records)


def used_bytes(client: Any) -> int:
    found: int = client.info("memory")["used_memory"]
    return found


def mib(size: float) -> str:
    return f"{size / MIB:.0f} MiB"
