"""Measures the time from `recorder.event()` to a handler, and to a watcher of the store, in other processes.

Also of the bare commands with the same wake-ups: how much longer the slow ones take there is the machine's doing.

python -m benchmarks.ours.latency RATE           the part: starts a sink worker and the other processes
python -m benchmarks.ours.latency RATE publish   the recording process: open loop, a stamp in every message
python -m benchmarks.ours.latency RATE add       the same with XADD
python -m benchmarks.ours.latency RATE pass      the worker of the bare commands: from one stream to another
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import redis

from benchmarks.meter import percentiles, report
from benchmarks.ours.bus import URL, a_bus, a_recorder, recorded, reference, sink_workers, until
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
    bare(rate, total)


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


def bare(rate: int, total: int) -> None:
    """One process adds entries, the worker of a group passes each batch on, and this process reads them."""
    times: list[int] = []
    with redis.Redis.from_url(URL) as client:
        client.xgroup_create(ENTERING, "group", mkstream=True)
        worker = subprocess.Popen(command(rate, "pass", total))
        after = b"0"
        publishing = subprocess.Popen(command(rate, "add", total))
        while len(times) < total:
            for entry, fields in client.xread({PASSED: after}, count=64, block=60_000)[0][1]:
                now = time.time_ns()
                times += [now - int(each) for each in fields[b"stamps"].split()]
                after = entry
        assert not publishing.wait(60)
        assert not worker.wait(60)
    row(f"bare: XADD → XREADGROUP, XADD, XACK → XREAD, {rate}/s", times)


ENTERING, PASSED = "bare:entering", "bare:passed"


def add_paced(rate: int, total: int) -> None:
    with redis.Redis.from_url(URL) as client:
        due = time.perf_counter()
        for _ in range(total):
            due += 1 / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            client.xadd(ENTERING, {"stamp": time.time_ns()})


def pass_on(total: int) -> None:
    with redis.Redis.from_url(URL) as client:
        passed = 0
        while passed < total:
            entries = client.xreadgroup("group", "one", {ENTERING: ">"}, count=64, block=60_000)[0][1]
            pipe = client.pipeline(transaction=False)
            pipe.xadd(PASSED, {"stamps": b" ".join(fields[b"stamp"] for _, fields in entries)})
            pipe.xack(ENTERING, "group", *(entry for entry, _ in entries))
            pipe.execute()
            passed += len(entries)


def stamp(event: Event) -> int:
    return int(event.message.split(" ", 1)[0])


def publish(rate: int, total: int) -> None:
    """From a process of its own."""
    subprocess.run(command(rate, "publish", total), check=True)


def command(rate: int, what: str, total: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.ours.latency", str(rate), what, str(total)]


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
    match sys.argv[2:]:
        case ["publish", total]:
            record_paced(int(sys.argv[1]), int(total))
        case ["add", total]:
            add_paced(int(sys.argv[1]), int(total))
        case ["pass", total]:
            pass_on(int(total))
        case _:
            main(int(sys.argv[1]))
