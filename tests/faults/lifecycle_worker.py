"""`eventbus worker lifecycle` without parts of its protection: `python -m tests.faults.lifecycle_worker NAMES …`.

Names, with commas between them: `everyone-leads` (no election), `slow-to-write` (a pause between look and write),
`unconditional` (writes go over whatever is there, and an event is one more for each who records it).
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from eventbus.lifecycle.election import Election
from eventbus.lifecycle.node_monitor import NodeMonitor
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.store.storage import with_metadata

#: Longer than any two workers are apart with their looks.
PAUSE_S = 2.0


def everyone_leads() -> None:
    Election.leads = property(lambda self: True)  # type: ignore[assignment, method-assign]


def slow_to_write() -> None:
    write: Any = NodeMonitor._write

    def slowly(self: NodeMonitor, before: Any, status: Any) -> None:
        time.sleep(PAUSE_S)
        write(self, before, status)

    NodeMonitor._write = slowly  # type: ignore[method-assign]


def unconditional() -> None:
    write: Any = NodeMonitor._write
    record: Any = OccurrenceRecorder.record

    def over_anything(self: NodeMonitor, before: Any, status: Any) -> None:
        write(self, with_metadata(before, resource_version=""), status)

    def once_more(self: OccurrenceRecorder, identity: str, *rest: str) -> None:
        record(self, identity + os.urandom(8).hex(), *rest)

    NodeMonitor._write = over_anything  # type: ignore[method-assign]
    OccurrenceRecorder.record = once_more  # type: ignore[method-assign, assignment]


BREAKAGES = {"everyone-leads": everyone_leads, "slow-to-write": slow_to_write, "unconditional": unconditional}

if __name__ == "__main__":
    from eventbus.workers.cli import main

    for name in filter(None, sys.argv[1].split(",")):
        BREAKAGES[name]()
    main(["worker", "lifecycle", *sys.argv[2:]])
