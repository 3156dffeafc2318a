"""Lists, then watches from the list's version, and relists after lost changes. Nothing is shown twice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from eventbus.cli.printers.object_printer import PrintedChange
from eventbus.errors import BusUnavailable, Expired
from eventbus.model.list_watch import HasMetadata, ObjectList, Watch, WatchEventType

#: A pause between two attempts, seconds.
PAUSE_S = 1.0


class ObjectFollower:
    """Follows objects, and remembers the versions that were shown.

    Args: list_all: everything that is asked for.  watch: the same, from a version.  wanted: whether to show it.
          tells_lost: keep the objects, to report as DELETED those that vanished while changes were lost.
    """

    def __init__(
        self,
        *,
        list_all: Callable[[], ObjectList[Any]],
        watch: Callable[[str], Watch[Any]],
        wanted: Callable[[Any], bool],
        tells_lost: bool = False,
    ) -> None:
        self._list_all = list_all
        self._watch = watch
        self._wanted = wanted
        self._shown: dict[tuple[str, str, str], int] = {}
        self._tells_lost = tells_lost
        self._objects: dict[tuple[str, str, str], Any] = {}
        self._version = ""

    def fetch(self) -> list[Any]:
        """Return all that is wanted and new since the last list or change, in the store's order."""
        found = self._list_all()
        self._version = found.resource_version
        fresh = [one for one in found.items if self._is_new(one)]
        self._shown = {_identity(one): _version(one) for one in found.items}
        if self._tells_lost:
            self._objects = {_identity(one): one for one in found.items if self._wanted(one)}
        return [one for one in fresh if self._wanted(one)]

    def follow(self) -> Iterator[Sequence[PrintedChange]]:
        """Yield changes and deletions, in order for each object; never ends. Waits while Redis is unreachable.

        Call `fetch` first. With *tells_lost* this includes objects that vanished while changes were lost.
        """
        while True:
            try:
                yield from self._follow_once()
            except Expired:
                yield self._list_again()
            except BusUnavailable:
                _pause()

    def _follow_once(self) -> Iterator[Sequence[PrintedChange]]:
        watch = self._watch(self._version)
        try:
            for event in watch:
                self._version = event.resource_version
                found = event.object
                if found is None or not self._is_new(found):
                    continue
                if event.type is WatchEventType.DELETED:
                    self._shown.pop(_identity(found), None)
                    self._objects.pop(_identity(found), None)
                else:
                    self._shown[_identity(found)] = _version(found)
                    if self._tells_lost and self._wanted(found):
                        self._objects[_identity(found)] = found
                if self._wanted(found):
                    yield [PrintedChange(event.type, found)]
        finally:
            watch.stop()

    def _list_again(self) -> list[PrintedChange]:
        while True:
            try:
                before = self._objects
                fresh = self.fetch()
                gone = [found for identity, found in before.items() if identity not in self._shown]
                return [
                    *(PrintedChange(WatchEventType.DELETED, found) for found in gone),
                    *(PrintedChange(WatchEventType.ADDED, found) for found in fresh),
                ]
            except BusUnavailable:
                _pause()

    def _is_new(self, found: HasMetadata) -> bool:
        return _version(found) > self._shown.get(_identity(found), -1)


def _pause() -> None:
    time.sleep(PAUSE_S * random.uniform(0.5, 1.5))


def _identity(found: HasMetadata) -> tuple[str, str, str]:
    # With several partitions two events may have one name; their uids differ.
    return found.metadata.namespace, found.metadata.name, found.metadata.uid


def _version(found: HasMetadata) -> int:
    return int(found.metadata.resource_version or 0)
