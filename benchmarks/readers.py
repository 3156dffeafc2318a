"""Measures readers: 100 000 stored events listed, mirrored, and their changes sent to 100 watchers of one process.

python -m benchmarks readers                         all of it, about a minute
python -m benchmarks.readers [--events N] [--watchers N] [--changes N]
"""

from __future__ import annotations

import argparse
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.sink_worker import Worker, an_embedded_bus
from eventbus.broker.bus import Bus
from eventbus.cache.factory import SharedInformerFactory
from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.model.kinds import EVENT
from eventbus.model.list_watch import ListOptions
from eventbus.store.object_store import ObjectStore
from eventbus.store.reader import StoreWatch

CHUNK = 4_096
#: What readers send. In the last measurement the writer's functions use all but XREAD as well, so that only is counted.
READS = frozenset({"zrange", "mget", "get", "hget", "xread"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000, help="stored events (default 100000)")
    parser.add_argument("--watchers", type=int, default=100, help="watchers of one process (default 100)")
    parser.add_argument("--changes", type=int, default=5_000, help="changes they are told (default 5000)")
    given = parser.parse_args()
    print("| what | seconds | a second | memory, MB more | Redis commands | commands a unit |")
    print("|---|--:|--:|--:|--:|--:|")
    with an_embedded_bus() as bus, bus.client() as client:
        worker = Worker(bus)
        fill(worker, given.events)
        with ObjectStore(bus, client) as store:
            measure_lists(store, client, given.events)
            measure_mirror(store, worker, client, given.events)
            measure_fan_out(bus, worker, client, given.watchers, given.changes)
    return 0


def fill(worker: Worker, events: int) -> None:
    """Store *events* events, each about a pod of its own."""
    for first in range(0, events, CHUNK):
        worker.append([make_event(i) for i in range(first, min(events, first + CHUNK))])
        worker.drain()


def make_event(i: int) -> Event:
    about = ObjectReference("Pod", f"team-{i % 50}", f"web-{i}", f"uid-{i}", "v1")
    return Event(
        metadata=ObjectMeta(name=f"web-{i}.17a6101701650000", namespace=about.namespace),
        involved_object=about,
        reason="BackOff",
        message="Back-off restarting failed container web",
        source=EventSource("kubelet", "node-1"),
        count=1,
        type="Warning",
    )


@contextmanager
def measured(what: str, client: Any, units: int, counted: frozenset[str] = READS) -> Iterator[None]:
    """Print the line of what the block does to *units* things, with the commands that are *counted*."""
    client.config_resetstat()
    memory, start = resident_mb(), time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    stats: dict[str, Any] = client.info("commandstats")
    calls = sum(one["calls"] for name, one in stats.items() if name.removeprefix("cmdstat_") in counted)
    more = resident_mb() - memory
    print(
        f"| {what} | {seconds:.2f} | {units / seconds:,.0f} | {more:.0f} | {calls} | {calls / units:.4f} |", flush=True
    )


def resident_mb() -> float:
    """Return the memory that this process holds now; if the system does not say, the most it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 1e6


def measure_lists(store: ObjectStore, client: Any, events: int) -> None:
    objects = store.objects(EVENT)
    with measured("list all", client, events):
        found = objects.list()
    assert len(found.items) == events
    del found
    about = "involvedObject.kind=Pod,involvedObject.name=web-7"
    with measured("list one of 100 objects, by index", client, 100):
        for _ in range(100):
            assert len(objects.list(ListOptions(namespace="team-7", field_selector=about)).items) == 1


def measure_mirror(store: ObjectStore, worker: Worker, client: Any, events: int) -> None:
    """The first list of an informer, in pages, with its cache; and a second one over it, as after a loss."""
    with SharedInformerFactory(store) as factory:
        informer = factory.events()
        with measured("mirror all", client, events):
            factory.start()
            assert factory.wait_for_cache_sync(300) == {"events": True}
        before = informer.last_sync_resource_version
        with measured("relist all, after a loss", client, events):
            # As after a restart that lost the newest version: the next one is no neighbour, so the watch is expired.
            key = store._bus.keys[0].version_of("events")
            version, _, added = client.get(key).decode().partition(" ")
            client.set(key, f"{int(version) + 1} {added}")
            worker.append([make_event(0)])
            worker.drain()
            wait_for(lambda: informer.last_sync_resource_version != before)
            wait_for(lambda: not len(informer._fifo))


def measure_fan_out(bus: Bus, worker: Worker, client: Any, watchers: int, changes: int) -> None:
    with bus.client() as own, ObjectStore(bus, own) as store:
        objects = store.objects(EVENT)
        at = objects.list(ListOptions(limit=1)).resource_version
        watches = [objects.watch(ListOptions(resource_version=at)) for _ in range(watchers)]
        threads = [threading.Thread(target=read, args=(watch, changes)) for watch in watches]
        with measured(f"tell {changes} changes to {watchers} watchers", client, changes, frozenset({"xread"})):
            for thread in threads:
                thread.start()
            for first in range(0, changes, 500):
                worker.append([make_event(i) for i in range(first, min(changes, first + 500))])
                worker.drain()
            for thread in threads:
                thread.join()
        print(f"\n{store.hub.reads} XREADs told {changes} changes {watchers} times: {changes * watchers:,} deliveries")
        for watch in watches:
            watch.stop()


def read(watch: StoreWatch[Event], n: int) -> None:
    for _ in watch:
        n -= 1
        if not n:
            return


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.005)


if __name__ == "__main__":
    raise SystemExit(main())
