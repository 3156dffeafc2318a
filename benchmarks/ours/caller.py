"""Measures a call of `recorder.event()` for its caller: idle, busy, flat out, from many threads, with Redis stopped."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import chain

from benchmarks.meter import SERVER_PID, Meter, percentiles, report
from benchmarks.ours.bus import a_recorder, reference
from benchmarks.sample import POOL, REASON, TYPE, message
from eventbus.record.recorder import EventRecorder
from eventbus.settings import Settings

OBJECTS = [(reference(number), message(number)) for number in range(POOL)]
EVENTS = 200_000


def main() -> None:
    empty()
    idle()
    busy()
    with_local_logging()
    flat_out()
    for threads in (1, 8, 64):
        from_threads(threads)
    redis_stopped()


def empty() -> None:
    """Measure what any first call after a pause costs here: clocks are low, and caches are somebody else's."""
    report("caller", "an empty function, 1 call/ms", **percentiles(paced(_Nobody(), calls=2_000, burst=1)))


class _Nobody:
    def event(self, obj: object, event_type: str, reason: str, message: str) -> None:
        pass


def idle() -> None:
    """One call a millisecond: the flusher sleeps and is woken by each."""
    with a_recorder() as (_, recorder):
        times = paced(recorder, calls=2_000, burst=1)
        report("caller", "idle: 1 call/ms", **percentiles(times))


def busy() -> None:
    with a_recorder() as (_, recorder):
        times = paced(recorder, calls=100_000, burst=50)
        report("caller", "busy: 50 calls/ms", **percentiles(times))


def with_local_logging() -> None:
    """Busy, with the log that `make_event_recorder` begins; its lines go nowhere."""
    with a_recorder() as (broadcaster, recorder):
        broadcaster.start_logging(lambda *_words: None)
        report("caller", "with local logging: 50 calls/ms", **percentiles(paced(recorder, calls=100_000, burst=50)))


def flat_out() -> None:
    """Record as fast as possible; about every 500th call waits for room in the buffer, which its p99.9 shows."""
    with a_recorder() as (_, recorder):
        report("caller", "flat out, waits for room", **percentiles(calls(recorder, EVENTS)))


def from_threads(threads: int) -> None:
    """Events a second until Redis has them, recorded by so many threads; percentiles of all their calls."""
    with a_recorder() as (broadcaster, recorder):
        recorder.event(OBJECTS[0][0], TYPE, REASON, OBJECTS[0][1])
        broadcaster.flush()
        found: list[list[int]] = []
        each = EVENTS // threads
        running = [threading.Thread(target=lambda: found.append(calls(recorder, each))) for _ in range(threads)]
        meter = Meter()
        meter.start()
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert broadcaster.flush(600)
        figures = meter.stop(each * threads)
        report("threads", f"{threads} threads, flat out", **figures, **percentiles([*chain(*found)]))


def redis_stopped() -> None:
    """The server is frozen: it takes the bytes and does not answer. Then the buffer fills, and drops."""
    server = int(os.environ[SERVER_PID])
    with a_recorder(Settings(flush_s=10)) as (broadcaster, recorder):
        recorder.event(OBJECTS[0][0], TYPE, REASON, OBJECTS[0][1])
        broadcaster.flush()
        os.kill(server, signal.SIGSTOP)
        try:
            report("caller", "Redis stopped, 1 call/ms", **percentiles(paced(recorder, calls=2_000, burst=1)))
            calls(recorder, 12_000)
            report("caller", "Redis stopped, buffer full: dropped", **percentiles(calls(recorder, 20_000)))
        finally:
            os.kill(server, signal.SIGCONT)


def calls(recorder: EventRecorder, total: int) -> list[int]:
    """ns of each call, one after another, the clock's own 0.1 µs included."""
    event, clock, times = recorder.event, time.perf_counter_ns, []
    for number in range(total):
        reference, text = OBJECTS[number % POOL]
        start = clock()
        event(reference, TYPE, REASON, text)
        times.append(clock() - start)
    return times


def paced(recorder: EventRecorder | _Nobody, *, calls: int, burst: int) -> list[int]:
    """The same, *burst* calls a millisecond."""
    event, clock, times = recorder.event, time.perf_counter_ns, []
    due = time.perf_counter()
    for number in range(calls):
        if number % burst == 0:
            due += 0.001
            time.sleep(max(0.0, due - time.perf_counter()))
        reference, text = OBJECTS[number % POOL]
        start = clock()
        event(reference, TYPE, REASON, text)
        times.append(clock() - start)
    return times


if __name__ == "__main__":
    main()
