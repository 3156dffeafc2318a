"""All objects of one kind as of the last poll, without threads."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from eventbus.errors import Expired
from eventbus.model.list_watch import HasMetadata, ListOptions, list_all
from eventbus.store.changes import Change, Versions
from eventbus.store.reader import ObjectReader
from eventbus.store.storage import ChangeType
from eventbus.store.watch import CatchUp

T = TypeVar("T", bound=HasMetadata)

#: Objects in a page of a list.
PAGE_SIZE = 500


class Polled(NamedTuple):
    """The changes since the last poll: names of objects that were added or changed, and of deleted objects."""

    written: set[str]
    gone: set[str]


class PolledCache(Generic[T]):
    """The objects of one kind in one namespace, by name. One thread.

    A poll without changes is one GET. If changes were lost, it lists all objects.
    """

    def __init__(self, objects: ObjectReader[T], namespace: str = "") -> None:
        self.items: dict[str, T] = {}
        self.lists = 0
        self._objects = objects
        self._namespace = namespace
        self._version: int | None = None

    def poll(self) -> Polled:
        """Bring `items` up to now.

        Raises: BusUnavailable: `items` are those of the last poll, or between the two; call again.
        """
        newest = self._objects.newest().counters[0]
        if self._version is None or newest < self._version:
            return self._list()
        polled = Polled(set(), set())
        try:
            while self._version < newest:
                changes, self._version = self._objects.read_changes(CatchUp(0, self._version, newest))
                for change in changes:
                    self._apply(change, polled)
        except Expired:
            return self._list()
        return polled

    def _apply(self, change: Change[T], polled: Polled) -> None:
        metadata = change.object.metadata
        if metadata.namespace != self._namespace:
            return
        if change.type is ChangeType.DELETED:
            self.items.pop(metadata.name, None)
            polled.written.discard(metadata.name)
            polled.gone.add(metadata.name)
        else:
            self.items[metadata.name] = change.object
            polled.gone.discard(metadata.name)
            polled.written.add(metadata.name)

    def _list(self) -> Polled:
        page, _ = list_all(self._objects, ListOptions(namespace=self._namespace, limit=PAGE_SIZE))
        self.lists += 1
        before, self.items = self.items, {item.metadata.name: item for item in page.items}
        self._version = Versions.parse(page.resource_version, 1).counters[0]
        written = {name for name, item in self.items.items() if _version(before.get(name)) != _version(item)}
        return Polled(written, before.keys() - self.items.keys())


def _version(item: HasMetadata | None) -> str:
    return item.metadata.resource_version if item is not None else ""
