"""Measures the time from `recorder.event()` to a handler, and to a watcher of the store, in other processes.

python -m benchmarks.ours.latency RATE           the part: starts a sink worker and the recording process
python -m benchmarks.ours.latency RATE publish   the recording process: open loop, a stamp in every message
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from benchmarks.meter import percentiles, report
from benchmarks.ours.bus import a_bus, a_recorder, recorded, reference, sink_workers, until
from benchmarks.sample import REASON, TYPE, message
from eventbus.broker.bus import Bus
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.model.list_watch import ListOptions
from eventbus.store.object_store import ObjectStore

SECONDS = 4.0
#: Left out of every row: the first sixth, in which everybody warms up.
WARM = 1 / 6


def main(rate: int) -> None:
    bus = a_bus()
    total = int(rate * SECONDS)
    handed_over("watcher", rate, total, group=None)
    handed_over("worker of a group", rate, total, group="bench")
    stored_and_watched(bus, rate, total)


def handed_over(to: str, rate: int, total: int, group: str | None) -> None:
    times: list[int] = []

    def handle(event: Event) -> None:
        times.append(time.time_ns() - stamp(event))

    with a_recorder() as (broadcaster, _):
        broadcaster.start_event_watcher(handle, group=group)
        publish(rate, total)
        until(lambda: len(times) >= total, within_s=60)
    row(f"recorder → {to}, {rate}/s", times)


def stored_and_watched(bus: Bus, rate: int, total: int) -> None:
    client, times = bus.client(), list[int]()
    before = client.xlen(bus.keys[0].incoming) and 2 * total
    with sink_workers(1):
        until(lambda: recorded(bus, client) >= before, within_s=120)
        events = ObjectStore(bus, client).objects(EVENT)
        watch = events.watch(ListOptions(resource_version=events.list(ListOptions(limit=1)).resource_version))

        def note() -> None:
            # The worker speaks of itself as well.
            found = (change.object for change in watch)
            times.extend(time.time_ns() - stamp(event) for event in found if event and event.reason == REASON)

        noting = threading.Thread(target=note)
        noting.start()
        publish(rate, total)
        until(lambda: recorded(bus, client) >= before + total, within_s=60)
        time.sleep(1)
        watch.stop()
        noting.join()
    assert len(times) == total, f"{len(times)} of {total}"
    row(f"recorder → stored and watched, {rate}/s", times)


def stamp(event: Event) -> int:
    return int(event.message.split(" ", 1)[0])


def publish(rate: int, total: int) -> None:
    """From a process of its own."""
    command = [sys.executable, "-m", "benchmarks.ours.latency", str(rate), "publish", str(total)]
    subprocess.run(command, check=True)


def row(way: str, times: list[int]) -> None:
    found = percentiles(times[int(len(times) * WARM) :])
    report("latency", way, p50_ms=found["p50_us"] / 1000, p99_ms=found["p99_us"] / 1000, max_ms=max(times) / 1e6)


def record_paced(rate: int, total: int) -> None:
    with a_recorder() as (_, recorder):
        objects = [(reference(number), message(number)) for number in range(total)]
        due = time.perf_counter()
        for about, text in objects:
            due += 1 / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            recorder.event(about, TYPE, REASON, f"{time.time_ns()} {text[20:]}")


if __name__ == "__main__":
    if sys.argv[2:3] == ["publish"]:
        record_paced(int(sys.argv[1]), int(sys.argv[3]))
    else:
        main(int(sys.argv[1]))
