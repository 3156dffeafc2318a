"""Measures how a recording process grows: one event a batch, each about another object, until all caches are full."""

from __future__ import annotations

from pathlib import Path

from benchmarks.meter import report
from benchmarks.ours.bus import a_bus, a_recorder, reference
from benchmarks.sample import REASON, TYPE, message
from eventbus.settings import MIB

#: More than fit into the ring, and many more than the objects whose templates stay.
EVENTS = 40_000
WARM = 100


def main() -> None:
    a_bus()
    with a_recorder() as (broadcaster, recorder):
        for number in range(WARM + EVENTS):
            if number == WARM:
                before = resident_bytes()
            recorder.event(reference(number), TYPE, REASON, message(number))
            assert broadcaster.flush(600)
        report("growth", f"a process that has recorded {EVENTS:,} events", mib=(resident_bytes() - before) / MIB)


def resident_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
