"""Measures how long an import of stored events takes, over HTTP from an API worker of another bus.

python -m benchmarks.import_events [--events N] [--partitions N]

First a new import: all events are listed, and each is written. Then a comparison, as after 410: the same list, and
nothing is written. Last, a repeat of each event through a watch, beside the writes of the repeats themselves. The API
worker and the importer are two processes; both buses are on one embedded server.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from benchmarks.api import worker
from benchmarks.sink_worker import an_embedded_bus
from eventbus.broker.bus import Bus, open_bus
from eventbus.imports.importer import Importer
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT, LEASE
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from tests.builders import make_event, make_reference
from tests.support.importing import importing
from tests.support.kubeconfig import write_kubeconfig

EVENTS = 10_000
#: The target, in seconds.
GOAL_S = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--partitions", type=int, default=1, help="of the bus that imports")
    given = parser.parse_args()
    with an_embedded_bus() as cluster, tempfile.TemporaryDirectory(prefix="eb") as folder:
        bus = open_bus(cluster.url, Settings(prefix="imports", partitions=given.partitions))
        events = create(cluster, given.events)
        with worker(cluster.url, folder, prefix=cluster.prefix) as api:
            kubeconfig = write_kubeconfig(Path(folder) / "kubeconfig", f"http://{api.where}")
            print(f"{given.events:,} stored events, {given.partitions} partitions (target: {GOAL_S} s)")
            measure(bus, kubeconfig, "new", lambda importer: count(importer, "written") == given.events)
            delete_lease(bus)
            measure(bus, kubeconfig, "compared", lambda importer: count(importer, "known") == given.events)
            with importing(bus, kubeconfig, lease_s=8) as importer:
                began = time.monotonic()
                repeat(cluster, events)
                wrote_s = time.monotonic() - began
                wait(lambda: count(importer, "written") == given.events)
                print(f"repeats  {time.monotonic() - began:6.2f} s, of which the cluster needed {wrote_s:.2f} s")


def measure(bus: Bus, kubeconfig: Path, name: str, is_done: Callable[[Importer], bool]) -> None:
    """Run an importer until *is_done*, and print the time."""
    began = time.monotonic()
    with importing(bus, kubeconfig, lease_s=8) as importer:
        wait(lambda: is_done(importer))
        print(f"{name:8} {time.monotonic() - began:6.2f} s")


def wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def count(importer: Importer, name: str) -> float:
    return importer.loop_health()[0].counts[name]


def create(cluster: Bus, events: int) -> list[Event]:
    """Store *events* about as many pods. Returns them as they are stored."""
    with ObjectStore.of(cluster) as store:
        objects = store.objects(EVENT)
        return [objects.create(event_about(number)) for number in range(events)]


def event_about(number: int) -> Event:
    event = make_event(involved_object=make_reference(name=f"web-{number}"), message=f"Started container {number}")
    return replace(event, metadata=replace(event.metadata, name=f"web-{number}.17a6101701650000"))


def repeat(cluster: Bus, events: list[Event]) -> None:
    with ObjectStore.of(cluster) as store:
        objects = store.objects(EVENT)
        for event in events:
            objects.update(replace(event, count=2))


def delete_lease(bus: Bus) -> None:
    """Let the next importer list all events."""
    with ObjectStore.of(bus) as store:
        leases = store.objects(LEASE)
        for lease in leases.list().items:
            leases.delete(lease.metadata.name, lease.metadata.namespace)


if __name__ == "__main__":
    main()
