"""Writes events of a cluster into the store, with their names, uids, counts and times: no correlation.

An event that is stored already changes only if it has happened more often, or later in its series. So each event may be
written any number of times, by any number of workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.errors import AlreadyExists, Conflict, EventBusError, InvalidEvent, InvalidObject, NotFound
from eventbus.model.bus_path import PATH_ANNOTATION, extend_path, find_loop
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.model.matchers import Matchers, labels_of
from eventbus.store.calls import Call, call_together
from eventbus.store.event_storage import EventStorage
from eventbus.store.storage import StoredObject
from eventbus.util.log import log

#: Tries of an event that other writers change at the same time.
TRIES: Final = 5


class EventWriter:
    """One thread at a time. *counts*: events by their result.

    `written` and `repeated` were stored, as new and as changed ones; `known` were stored before; *matchers* exclude
    `unmatched`; `own` and `too-many-buses` have come back; `invalid` break a rule; `taken` have the name of an event
    that was recorded on this bus.

    Args: source: the bus that the events come from; "": a cluster.
    """

    def __init__(self, bus: Bus, client: Client, matchers: Matchers) -> None:
        self.source = ""
        self.counts: Counter[str] = Counter()
        self._bus = bus
        self._client = client
        self._matchers = matchers
        self._storage = EventStorage(kind=EVENT, bus=bus, client=client)

    def write(self, events: Sequence[Event | InvalidEvent]) -> None:
        """Store *events*, the later ones last. Raises: Redis errors; call again with all of them."""
        waiting: dict[tuple[str, str], Event] = {}
        for found in events:
            if (event := self._accepted(found)) is not None:
                key = event.metadata.namespace, event.metadata.name
                if key in waiting and not is_newer(event, waiting[key]):
                    self.counts["known"] += 1
                else:
                    waiting[key] = event
        for _ in range(TRIES):
            waiting = self._write_once(waiting)
            if not waiting:
                return
        self.counts["taken"] += len(waiting)
        log.warning("%d events are not imported: this bus has recorded events with their names", len(waiting))

    def _accepted(self, found: Event | InvalidEvent) -> Event | None:
        """Return the event as it is to be stored; None: it is not, which is counted."""
        try:
            if isinstance(found, InvalidEvent):
                raise found
            path = extend_path(found.metadata.annotations.get(PATH_ANNOTATION, ""), self.source)
            if (loop := find_loop(PATH_ANNOTATION, path, self._bus.id)) is not None:
                self.counts[loop.word] += 1
                return None
            annotations = {**found.metadata.annotations, **({PATH_ANNOTATION: path} if path else {})}
            metadata = msgspec.structs.replace(
                found.metadata, resource_version="", managed_fields=(), annotations=annotations
            )
            event = self._storage.as_stored(msgspec.structs.replace(found, metadata=metadata))
            self._storage.check(event)
        except (InvalidEvent, InvalidObject) as error:
            self.counts["invalid"] += 1
            log.debug("not imported: %s", error)
            return None
        if not self._matchers.match(labels_of(event)):
            self.counts["unmatched"] += 1
            return None
        return event

    def _write_once(self, events: dict[tuple[str, str], Event]) -> dict[tuple[str, str], Event]:
        """Return the events that another writer has written at the same time."""
        again: dict[tuple[str, str], Event] = {}
        created: dict[int, list[tuple[Event, Call[Event]]]] = {}
        for event, former in zip(events.values(), self._storage.find_written(list(events)), strict=True):
            if former is None:
                partition = self._storage.written_place(event.metadata.namespace, event.metadata.name).partition
                created.setdefault(partition, []).append((event, self._storage.creation(event)))
            elif not is_newer(event, former.object):
                self.counts["known"] += 1
            elif self._replace(former, event):
                self.counts["repeated"] += 1
            else:
                again[event.metadata.namespace, event.metadata.name] = event
        for partition, calls in created.items():
            replies = call_together(self._bus, self._client, partition, [call.command for _, call in calls])
            for (event, call), reply in zip(calls, replies, strict=True):
                try:
                    _result(call, reply)
                    self.counts["written"] += 1
                except AlreadyExists:
                    again[event.metadata.namespace, event.metadata.name] = event
        return again

    def _replace(self, former: StoredObject[Event], event: Event) -> bool:
        try:
            self._storage.replace(former, event)
        except (Conflict, NotFound):
            return False
        return True


def is_newer(event: Event, former: Event) -> bool:
    """Return True if *event* is to replace *former*, of the same name: it has happened again, or is another one."""
    if event.metadata.uid != former.metadata.uid:
        return _time(event.metadata.creation_timestamp) >= _time(former.metadata.creation_timestamp)
    if event.occurrences != former.occurrences:
        return event.occurrences > former.occurrences
    return _series_time(event) > _series_time(former)


def _series_time(event: Event) -> float:
    return _time(event.series.last_observed_time if event.series is not None else None)


def _time(at: datetime | None) -> float:
    return at.timestamp() if at is not None else 0.0


def _result(call: Call[Event], reply: Any) -> None:
    if isinstance(reply, EventBusError):
        raise reply
    call.result(reply)
