"""The classic small demo: the watcher is stopped between the second and the third event."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

from eventbus.testing.clock import FakeClock
from examples import seed_demo
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
FIRST = "Normal Started web-0: event 1"
SECOND = "Normal Started web-0: event 2"


def test_on_a_fake_clock_each_event_is_seen_at_its_second_and_none_after_the_stop() -> None:
    clock, shown = FakeClock(), queue.SimpleQueue[str]()
    thread = threading.Thread(target=seed_demo.run, args=(clock, shown.put), daemon=True)
    thread.start()

    expected = {1: FIRST, 3: SECOND}
    for second in range(1, 7):
        clock.wait_for_sleepers()
        clock.advance(1)
        if second in expected:
            assert shown.get(timeout=PATIENCE_S) == expected[second]
        if second < 6:
            clock.wait_for_sleepers()
        assert shown.empty(), f"something else was seen in second {second}"

    thread.join(timeout=PATIENCE_S)
    assert not thread.is_alive()
    assert shown.empty()


def test_as_a_program_it_prints_exactly_the_first_two_events_and_takes_six_seconds() -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "examples.seed_demo"], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{FIRST}\n{SECOND}\n", "")
    assert time.monotonic() - began >= 6
