"""Events a second that one worker of a named group is handed as Event, and acknowledges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import cycle, islice

from benchmarks.meter import Meter, report
from benchmarks.ours.bus import a_bus, a_recorder, fill, until
from benchmarks.sample import POOL
from eventbus.model.event import Event

EVENTS = 200_000
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def main() -> None:
    a_bus()
    fill(islice(cycle(range(POOL)), EVENTS))
    measure("no-op handler", lambda _event: None)
    measure("handler reads every field", read_every_field)


def measure(way: str, handler: Callable[[Event], object]) -> None:
    """The clock runs from the first event to the acknowledgement of the last."""
    bus = a_bus()
    client, group, meter, done, seen = bus.client(), way.split()[1], Meter(), threading.Event(), 0

    def handle(event: Event) -> None:
        nonlocal seen
        if not seen:
            meter.start()
        seen += 1
        handler(event)
        if seen == EVENTS:
            done.set()

    with a_recorder() as (broadcaster, _):
        broadcaster.start_event_watcher(handle, group=group, since=LONG_AGO)
        done.wait(600)
        until(lambda: not client.xpending(bus.keys[0].incoming, group)["pending"], every_s=0.001)
        report("fan-out", way, **meter.stop(EVENTS))
        time.sleep(0.1)


def read_every_field(event: Event) -> None:
    meta, about, source = event.metadata, event.involved_object, event.source
    _ = (meta.name, meta.namespace, meta.uid, meta.labels, meta.annotations, meta.resource_version)
    _ = (about.kind, about.namespace, about.name, about.uid, about.api_version, about.field_path)
    _ = (event.reason, event.message, event.type, event.count, event.action, event.series, event.related)
    _ = (source.component, source.host, event.reporting_component, event.reporting_instance)
    _ = (event.first_timestamp, event.last_timestamp, event.event_time)


if __name__ == "__main__":
    main()
