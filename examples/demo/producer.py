"""The common part of the demo's programs: a recorder that counts its calls, and a last line with their number."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import NoReturn

from eventbus import EventBroadcaster, EventRecorder, ObjectReference

NAMESPACE = "demo"


class CountingRecorder:
    """A recorder, and how often it was called: the demo compares that with what arrived. `flush`: until all has."""

    def __init__(self, recorder: EventRecorder, flush: Callable[[], bool]) -> None:
        self.flush = flush
        self._recorder = recorder
        self._lock = threading.Lock()
        self.recorded = 0

    def event(self, obj: ObjectReference, event_type: str, reason: str, message: str) -> None:
        self._count()
        self._recorder.event(obj, event_type, reason, message)

    def past_event(self, obj: ObjectReference, when: datetime, event_type: str, reason: str, message: str) -> None:
        self._count()
        self._recorder.past_eventf(obj, when, event_type, reason, "%s", message)

    def _count(self) -> None:
        with self._lock:
            self.recorded += 1


@contextmanager
def recording(component: str) -> Iterator[CountingRecorder]:
    """A recorder on the bus that the environment names; at the end everything is sent and a line of JSON printed."""
    with EventBroadcaster() as broadcaster:
        recorder = CountingRecorder(broadcaster.new_recorder(component), broadcaster.flush)
        yield recorder
    report(recorder.recorded, broadcaster.losses.counts)


def report(recorded: int, lost: Mapping[str, int]) -> None:
    """The last line of a program, for the demo."""
    print(json.dumps({"recorded": recorded, "lost": dict(lost)}))


def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """A handler of signals: end as by Ctrl-C."""
    raise KeyboardInterrupt


def named(kind: str, name: str) -> ObjectReference:
    """An object of the demo."""
    return ObjectReference(kind=kind, namespace=NAMESPACE, name=name)
