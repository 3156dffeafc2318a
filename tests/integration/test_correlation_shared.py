"""One state for all workers: a scenario split over four worker processes ends as with one."""

from __future__ import annotations

import multiprocessing
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing.synchronize import Event as Signal
from typing import Any

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.keys import SINK_GROUP, partition_of
from eventbus.correlate.keys import Correlator
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.model.encoding.wire import pack_batch, pack_event, unpack_wire
from eventbus.model.event import Event
from eventbus.settings import Options, Settings
from eventbus.util.clock import SystemClock
from tests.builders import make_event, make_reference
from tests.stored_layout import decode_counts
from tests.thin import one
from tests.waiting import eventually

PODS = 12
OWN_MESSAGES, REPEATS = 9, 6
FOLDED = 40
OPTIONS = Options(burst=200, report_suppressed=False)

#: Nine messages of every pod keep counters of their own; which nine that is, is settled before the rest comes.
OPENING = [(pod, f"message {n}") for n in range(OWN_MESSAGES) for pod in range(PODS)]
#: Then repeats of those, and new ones, which fold; more than 200 of a pod are held back, and count all the same.
REST = [(pod, f"message {n}") for _ in range(REPEATS) for n in range(OWN_MESSAGES) for pod in range(PODS)]
REST += [(0, "message 0")] * 200
REST += [(pod, f"new message {n}") for n in range(FOLDED) for pod in range(PODS)]


def expected_counts() -> Counter[bytes]:
    """Correlation key → running count."""
    correlator, counts = Correlator(OPTIONS), Counter[bytes]()
    for row in OPENING + REST:
        packed = pack_event(event_of(row))
        keyed = correlator.keyed("", unpack_wire(packed), packed)
        counts[keyed.subject.aggregate_object if row[1].startswith("new") else keyed.key] += 1
    return counts


def event_of(row: tuple[int, str]) -> Event:
    return make_event(involved_object=make_reference(name=f"pod-{row[0]}"), message=row[1])


@pytest.mark.parametrize("partitions", one([4, 1]))
@pytest.mark.parametrize("workers", one([2, 4, 1]))
def test_running_counts_do_not_depend_on_how_many_workers_share_the_work(
    embedded_url: str, partitions: int, workers: int
) -> None:
    bus = open_bus(embedded_url, Settings(prefix=f"sh-{secrets.token_hex(6)}", partitions=partitions), options=OPTIONS)
    with closing(bus.client()) as client, worker_processes(bus, client, workers):
        publish(bus, client, OPENING, size=64)
        wait_until_recorded(bus, client, len(OPENING))
        publish(bus, client, REST, size=4)
        wait_until_recorded(bus, client, len(OPENING) + len(REST))
        assert busy_workers(bus, client) == workers, "every worker had a part in it"

        assert running_counts(bus, client) == expected_counts()
        total = totals(bus, client)
        held_back = OWN_MESSAGES * (1 + REPEATS) + 200 + FOLDED - OPTIONS.burst
        assert total["suppressed"] == held_back
        assert total["created"] + total["patched"] == len(OPENING) + len(REST) - held_back


@contextmanager
def worker_processes(bus: Bus, client: Any, number: int) -> Iterator[None]:
    """*number* processes of the group `sink`, all reading; they are stopped, and the bus is removed, at the end."""
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    processes = [spawn.Process(target=work, args=(bus.url, bus.prefix, stop), daemon=True) for _ in range(number)]
    try:
        for process in processes:
            process.start()
        eventually(lambda: are_shared_out(bus, client, number))
        yield
        stop.set()
        for process in processes:
            process.join(30)
        assert [process.exitcode for process in processes] == [0] * number
    finally:
        for process in processes:
            process.kill()
        for key in client.scan_iter(match=f"{bus.prefix}:*", count=1000):
            client.delete(key)


def are_shared_out(bus: Bus, client: Any, workers: int) -> bool:
    """All of them work somewhere, and no partition has two where there are enough for all."""
    found = [consumers(bus, client, partition).keys() for partition in range(bus.partitions)]
    each = -(-workers // bus.partitions)
    return len(set().union(*found)) == workers and all(0 < len(names) <= each for names in found)


def work(url: str, prefix: str, stop: Signal) -> None:
    """Run a sink worker until *stop*: the body of each worker process."""
    runner = sink_worker(bus=open_bus(url, Settings(prefix=prefix)), clock=SystemClock(), block_ms=100)
    runner.start()
    stop.wait()
    runner.stop()


def publish(bus: Bus, client: Any, rows: Sequence[tuple[int, str]], *, size: int) -> None:
    """Batches of *size*, every event in the partition of its object."""
    events = [event_of(row) for row in rows]
    for partition, keys in enumerate(bus.keys):
        mine = [pack_event(e) for e in events if partition_of(e.involved_object, bus.partitions) == partition]
        for start in range(0, len(mine), size):
            part = mine[start : start + size]
            client.xadd(keys.incoming, {"n": len(part), "to": 0, "at": 0, "b": pack_batch("p", start + 1, part)})


def wait_until_recorded(bus: Bus, client: Any, events: int) -> None:
    eventually(lambda: totals(bus, client)["events"] >= events)
    assert totals(bus, client)["events"] == events


def consumers(bus: Bus, client: Any, partition: int) -> dict[bytes, int]:
    """Consumer → ms since it was last given something; -1 if it never was (Redis 7.0 does not tell)."""
    found = client.xinfo_consumers(bus.keys[partition].incoming, SINK_GROUP)
    return {info["name"]: info.get("inactive", 0) for info in found}


def busy_workers(bus: Bus, client: Any) -> int:
    """Workers that were given something, in whatever partition; a worker has one name in all of them."""
    found = [consumers(bus, client, partition) for partition in range(bus.partitions)]
    return len({name for partition in found for name, inactive in partition.items() if inactive >= 0})


def totals(bus: Bus, client: Any) -> Counter[str]:
    """The counters of all partitions."""
    total = Counter[str]()
    for keys in bus.keys:
        for name in ("events", "created", "patched", "suppressed"):
            total[name] += int(client.hget(keys.meta, name) or 0)
    return total


def running_counts(bus: Bus, client: Any) -> Counter[bytes]:
    """Return counts as `expected_counts` does, of what the correlator remembers, held back or not."""
    counts = Counter[bytes]()
    for keys in bus.keys:
        for key in client.scan_iter(match=keys.object + b"*", count=1000):
            counts[key.removeprefix(keys.object)] += decode_counts(client.get(key)).count
    return counts
