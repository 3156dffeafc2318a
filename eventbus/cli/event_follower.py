"""List, then watch from the list's version, and list again where changes were lost; nothing is shown twice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence

from eventbus.cli.event_table import by_last_seen
from eventbus.errors import BusUnavailable, Expired
from eventbus.event import Event
from eventbus.store.changes import ChangeType
from eventbus.store.object_store import EventList, ObjectStore

#: A pause between two attempts to list anew, seconds.
RELIST_PAUSE_S = 1.0


class Follower:
    """What has been shown, and the events that have not.

    Args: list_all: lists all that is asked for, whatever *wanted* says of it.  wanted: whether an event is to be shown.
    """

    def __init__(
        self, store: ObjectStore, *, list_all: Callable[[], EventList], wanted: Callable[[Event], bool]
    ) -> None:
        self._store = store
        self._list_all = list_all
        self._wanted = wanted
        self._shown: dict[tuple[str, str, str], int] = {}
        self._version = ""

    def fetch(self) -> list[Event]:
        """All wanted events that are new since the last list or change, the latest last."""
        found = self._list_all()
        self._version = found.resource_version
        fresh = [event for event in found.items if self._is_new(event)]
        self._shown = {_identity(event): _version(event) for event in found.items}
        return by_last_seen(event for event in fresh if self._wanted(event))

    def follow(self) -> Iterator[Sequence[Event]]:
        """Wanted events as they are written, in order for each object; never ends. A deleted one is not told.

        Waits through an absent Redis. Call `fetch` first.
        """
        while True:
            watch = self._store.watch(self._version)
            try:
                for change in watch:
                    if change.type is ChangeType.DELETED:
                        self._shown.pop(_identity(change.object), None)
                    elif self._is_new(change.object):
                        self._shown[_identity(change.object)] = _version(change.object)
                        if self._wanted(change.object):
                            yield [change.object]
            except Expired:
                watch.stop()
                yield self._list_again()

    def _list_again(self) -> list[Event]:
        while True:
            try:
                return self.fetch()
            except BusUnavailable:
                time.sleep(RELIST_PAUSE_S * random.uniform(0.5, 1.5))

    def _is_new(self, event: Event) -> bool:
        return _version(event) > self._shown.get(_identity(event), -1)


def _identity(event: Event) -> tuple[str, str, str]:
    # With several partitions two events may have one name; their uids differ.
    return event.metadata.namespace, event.metadata.name, event.metadata.uid


def _version(event: Event) -> int:
    return int(event.metadata.resource_version or 0)
