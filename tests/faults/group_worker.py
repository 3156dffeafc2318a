"""A worker of a group of one's own, as a process: it writes down each event that it has handled, and dies of one."""

from __future__ import annotations

import argparse
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

from eventbus.consume.group_runner import GroupRunner
from eventbus.model.event import Event
from eventbus.record.broadcaster import EventBroadcaster
from tests.faults.breakages import apply
from tests.faults.producer import TAG

EXIT = 9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("group")
    parser.add_argument("handled", type=Path)
    parser.add_argument("--mark", default="")
    parser.add_argument("--take-over-s", type=float, required=True)
    parser.add_argument("--breakage", action="append", default=[])
    given = parser.parse_args()
    apply(given.breakage)
    (GroupRunner.__init__.__kwdefaults__ or {})["take_over_s"] = given.take_over_s
    handled = os.open(given.handled, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(event: Event) -> None:
        if event.message == given.mark:
            os._exit(EXIT)
        os.write(handled, f"{event.metadata.annotations[TAG]}\n".encode())

    broadcaster = EventBroadcaster()
    broadcaster.start_event_watcher(handle, group=given.group, since=datetime(2020, 1, 1, tzinfo=UTC))
    print("works", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
