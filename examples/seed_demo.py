"""The classic small demo: one recorder, one watcher in the same process, no Redis.

    python -m examples.seed_demo

Events are recorded after 1, 3 and 6 seconds, and the watcher is stopped after 4: it prints the first two.
"""

from __future__ import annotations

from collections.abc import Callable

from eventbus import EventBroadcaster, ObjectReference
from eventbus.util.clock import Clock, SystemClock

POD = ObjectReference(kind="Pod", namespace="default", name="web-0", api_version="v1")


def run(clock: Clock, show: Callable[[str], object]) -> None:
    """Play the demo on *clock*; *show* gets one line for each event that the watcher sees."""
    with EventBroadcaster("none", clock=clock) as broadcaster:  # no bus: what is recorded stays in this process
        recorder = broadcaster.new_recorder("demo")
        watcher = broadcaster.start_event_watcher(
            lambda event: show(f"{event.type} {event.reason} {event.involved_object.name}: {event.message}"),
            scope="local",
            queue_length=1,
        )
        clock.sleep(1)
        recorder.event(POD, "Normal", "Started", "event 1")
        clock.sleep(2)
        recorder.event(POD, "Normal", "Started", "event 2")
        clock.sleep(1)
        watcher.stop()
        clock.sleep(2)
        recorder.event(POD, "Normal", "Started", "event 3")


if __name__ == "__main__":
    run(SystemClock(), print)
