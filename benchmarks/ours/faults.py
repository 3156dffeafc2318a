"""400 events recorded after a fault of Redis: how many reach a handler and the store, and whether all are alive.

Sees to its own servers, since it stops them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import redis

from benchmarks.meter import report
from benchmarks.ours import bus as shared
from benchmarks.sample import REASON, TYPE
from benchmarks.servers import Server, a_server
from eventbus.broker.bus import Bus
from eventbus.model.event import Event
from eventbus.store.object_store import ObjectStore

EVENTS = 400


def flush_all(server: Server) -> None:
    redis.Redis.from_url(server.url).flushall()


def restart(server: Server) -> None:
    server.stop()
    server.start()


def restart_empty(server: Server) -> None:
    server.stop()
    server.wipe()
    server.start()


FAULTS: dict[str, Callable[[Server], None]] = {
    "FLUSHALL": flush_all,
    "restart with AOF": restart,
    "restart empty": restart_empty,
}


def main() -> None:
    for name, fault in FAULTS.items():
        with a_server() as server:
            shared.URL = server.url
            handled, stored, alive = after(server, fault)
        report("after fault", name, handled=handled, stored=stored, alive=alive)


def after(server: Server, fault: Callable[[Server], None]) -> tuple[int, int, int]:
    """Count, of 400 events recorded after *fault*, those a group's handler had, those stored, and the workers alive."""
    bus, seen, lock = shared.a_bus(), set[str](), threading.Lock()

    def handle(event: Event) -> None:
        with lock:
            seen.add(event.involved_object.name)

    with shared.sink_workers(1) as (worker,), shared.a_recorder() as (broadcaster, recorder):
        broadcaster.start_event_watcher(handle, group="bench")
        shared.record(recorder, range(1_000, 1_100))
        shared.until(lambda: len(seen) == 100)
        fault(server)
        for number in range(EVENTS):
            recorder.event(shared.reference(number), TYPE, REASON, "after the fault")
        broadcaster.flush(60)
        late = {shared.reference(number).name for number in range(EVENTS)}
        with suppress(TimeoutError):
            shared.until(lambda: late <= seen, within_s=60)
            shared.until(lambda: late <= stored(bus), within_s=60, every_s=0.2)
        return len(late & seen), len(late & stored(bus)), int(worker.poll() is None)


def stored(bus: Bus) -> set[str]:
    with bus.client() as client:
        return {event.involved_object.name for event in ObjectStore(bus, client).list().items}


if __name__ == "__main__":
    main()
