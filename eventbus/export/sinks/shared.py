"""Shares one sink object between the exporters of a bus's partitions: a sink serves one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime

from eventbus.export.sinks.contract import (
    BatchSink,
    DeletingSink,
    EventPatch,
    EventSink,
    OpeningSink,
    OrderedSink,
    SinkAnswer,
    SinkMode,
    SinkWrite,
)
from eventbus.model.event import Event


class _SharedSink:
    """Calls *sink* for one thread at a time, and closes it when the last of *users* has closed this."""

    def __init__(self, sink: EventSink, users: int) -> None:
        self._sink = sink
        self._users = users
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._sink.name

    @property
    def mode(self) -> SinkMode:
        return self._sink.mode

    def open(self) -> None:
        if isinstance(self._sink, OpeningSink):
            with self._lock:
                self._sink.open()

    def create(self, event: Event) -> Event:
        with self._lock:
            return self._sink.create(event)

    def update(self, event: Event) -> Event:
        with self._lock:
            return self._sink.update(event)

    def patch(self, event: Event, patch: EventPatch) -> Event:
        with self._lock:
            return self._sink.patch(event, patch)

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._sink.close()


class _SharedBatchSink(_SharedSink):
    """A `_SharedSink` for a sink that writes many at once."""

    def __init__(self, sink: BatchSink, users: int) -> None:
        super().__init__(sink, users)
        self._batch = sink

    @property
    def ordered(self) -> bool:
        return isinstance(self._batch, OrderedSink) and self._batch.ordered

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        with self._lock:
            return self._batch.write(writes)


class _SharedDeletingSink(_SharedBatchSink):
    """A `_SharedBatchSink` for a sink that can remove events that Redis has lost."""

    def __init__(self, sink: DeletingSink, users: int) -> None:
        super().__init__(sink, users)
        self._deleting = sink

    def held(self, origin: str, *, after: int, until: int, since: datetime, most: int) -> Sequence[Event]:
        with self._lock:
            return self._deleting.held(origin, after=after, until=until, since=since, most=most)

    def delete(self, events: Sequence[Event]) -> int:
        with self._lock:
            return self._deleting.delete(events)


def share(sink: EventSink, users: int) -> EventSink:
    """Return *sink* itself for one user, else an object that *users* threads may call and close."""
    if users == 1:
        return sink
    if isinstance(sink, DeletingSink):
        return _SharedDeletingSink(sink, users)
    return _SharedBatchSink(sink, users) if isinstance(sink, BatchSink) else _SharedSink(sink, users)
