"""The classic small demo: the watcher is stopped between the second and the third event."""

from __future__ import annotations

import queue
import threading

from eventbus.testing.clock import FakeClock
from examples import seed_demo
from tests.waiting import PATIENCE_S

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
