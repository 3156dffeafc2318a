"""What a spool costs: the caller of `recorder.event()`, and the process, without one, with an idle one, with `always`.

python -m benchmarks spool
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.servers import a_server
from eventbus.broker.transport import PublishReply, PublishStatus
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS
from eventbus.record.losses import Losses
from eventbus.record.resend import Producer
from eventbus.record.sender import LATE_S
from eventbus.record.spool.spool import BusName, Spool
from eventbus.util.clock import SystemClock

WAYS: dict[str, dict[str, str] | None] = {
    "no spool": None,
    "late": {"EVENTBUS_SPOOL_WHEN": "late"},
    "always": {"EVENTBUS_SPOOL_WHEN": "always"},
}
#: events of a run flat out, and of one at 2 000 a second; runs of each way, in turn, of which the best is shown
FLAT_OUT, PACED, RATE, RUNS = 100_000, 4_000, 2_000, 5


def main() -> int:
    """Print one line a way. Returns: 0."""
    if "--run" in sys.argv:
        return _measure()
    print("| spool | flat out: events/s | CPU µs an event | caller, median µs | p99 µs | at 2 000/s: CPU µs an event |")
    print("|---|--:|--:|--:|--:|--:|")
    turns = [{way: _run(environ) for way, environ in WAYS.items()} for _ in range(RUNS)]
    for way in WAYS:
        best = {name: min(turn[way][name] for turn in turns) for name in turns[0][way]}
        print(
            f"| {way} | {1e6 / best['flat_out_us']:,.0f} | {best['cpu_us']:.2f} | {best['median_us']:.2f} "
            f"| {best['p99_us']:.2f} | {best['paced_cpu_us']:.1f} |",
            flush=True,
        )
    print(
        "\n| spool | events of a round | flusher's time for the spool, a round: median µs | best |\n|---|--:|--:|--:|"
    )
    for always in (False, True):
        for events in (1, MAX_BATCH_EVENTS):
            times = _rounds(always, events)
            name = "always" if always else "late"
            print(f"| {name} | {events} | {times[len(times) // 2] * 1e6:.1f} | {times[0] * 1e6:.1f} |", flush=True)
    return 0


def _rounds(always: bool, events: int) -> list[float]:
    """Seconds that the flusher spends on the spool in rounds that Redis acknowledges at once, sorted."""
    clock, times = SystemClock(), []
    losses = Losses(clock)
    with tempfile.TemporaryDirectory() as folder:
        bus = BusName("redis://h", "eb", "bus", 1)
        root = Path(folder) / "spool"
        spool = Spool(root=root, bus=bus, limit_bytes=10**8, always=always, clock=clock, losses=losses)
        producer = Producer(clock=clock, losses=losses, ring_bytes=10**6)
        for _ in range(3_000):
            for _ in range(events):
                producer.add(b"x" * 150)
            producer.seal()
            begun = time.perf_counter()
            spool.keep([producer], sealed_before=clock.monotonic() - LATE_S)
            between = time.perf_counter()
            producer.settle(PublishReply(PublishStatus.OK, generation="g"))
            settled = time.perf_counter()
            spool.settle([producer])
            times.append(time.perf_counter() - settled + between - begun)
        spool.release()
    return sorted(times)


def _run(environ: dict[str, str] | None) -> dict[str, float]:
    with a_server() as server, tempfile.TemporaryDirectory() as folder:
        spool = {} if environ is None else {"EVENTBUS_SPOOL": str(Path(folder) / "spool")} | environ
        env = os.environ | {"EVENTBUS_REDIS_URL": server.url, "EVENTBUS_BUFFER_FULL": "wait"} | spool
        command = [sys.executable, "-m", "benchmarks.spool", "--run"]
        found: dict[str, float] = json.loads(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
        return found


def _measure() -> int:
    from eventbus.model.event import ObjectReference
    from eventbus.record.broadcaster import EventBroadcaster

    about = [ObjectReference("Pod", "d", f"web-{n}", "u", "v1") for n in range(50)]
    broadcaster = EventBroadcaster()
    recorder = broadcaster.new_recorder("bench", "here")
    recorder.event(about[0], "Normal", "Started", "first")
    broadcaster.flush(10)
    gc.disable()
    begun, cpu = time.perf_counter(), time.process_time()
    for i in range(FLAT_OUT):
        recorder.event(about[i % 50], "Normal", "Started", "Started container web")
    broadcaster.flush(60)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    paced, paced_cpu = [], time.process_time()
    begun = time.perf_counter()
    for i in range(PACED):
        while (wait := begun + i / RATE - time.perf_counter()) > 0:
            time.sleep(wait)
        before = time.perf_counter_ns()
        recorder.event(about[i % 50], "Normal", "Started", "Started container web")
        paced.append(time.perf_counter_ns() - before)
    broadcaster.flush(60)
    paced_cpu = time.process_time() - paced_cpu
    broadcaster.shutdown()
    paced.sort()
    found = {
        "flat_out_us": seconds / FLAT_OUT * 1e6,
        "cpu_us": cpu / FLAT_OUT * 1e6,
        "median_us": paced[PACED // 2] / 1e3,
        "p99_us": paced[PACED * 99 // 100] / 1e3,
        "paced_cpu_us": paced_cpu / PACED * 1e6,
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
