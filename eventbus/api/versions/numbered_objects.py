"""Events of a bus of several partitions, with one growing number as version: see `checkpoint_line`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from eventbus.api.versions.numbering import Numbering, read_again
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.model.event import Event
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata, ListOptions, ObjectList
from eventbus.store.change_hub import Hub
from eventbus.store.changes import Versions
from eventbus.store.event_storage import EventStorage
from eventbus.store.list_options import Continue
from eventbus.store.selection import Selection
from eventbus.store.storage import ChangeType, Storage, StoredObject, with_metadata
from eventbus.store.writer import ObjectWriter

T = TypeVar("T", bound=HasMetadata)


class _NumberedStorage:
    """Implements `Storage` over the event storage. Objects that are read or written have a number as version."""

    def __init__(self, storage: EventStorage, numbering: Numbering) -> None:
        self._storage = storage
        self._numbering = numbering
        self.kind = storage.kind
        self.partitions: Sequence[int] = storage.partitions
        self.letters: Mapping[str, ChangeType] = storage.letters

    def decode(self, packed: bytes) -> Event | None:
        """Decode with the partition's own version."""
        return self._storage.decode(packed)

    def index(self, partition: int, selection: Selection[Event]) -> tuple[bytes, bytes]:
        return self._storage.index(partition, selection)

    def find(self, namespace: str, name: str) -> StoredObject[Event] | None:
        return read_again(lambda: self._find(namespace, name))

    def _find(self, namespace: str, name: str) -> StoredObject[Event] | None:
        stored = self._storage.find(namespace, name)
        if stored is None:
            return None
        return StoredObject(stored.place, self._numbered(stored.object, stored.place.partition), stored.packed)

    def check(self, found: Event) -> None:
        self._storage.check(found)

    def as_stored(self, found: Event) -> Event:
        return self._storage.as_stored(found)

    def new_uid(self) -> str:
        return self._storage.new_uid()

    def create(self, event: Event) -> Event:
        created = self._storage.create(event)
        place = self._storage.written_place(created.metadata.namespace, created.metadata.name)
        return self._numbered(created, place.partition)

    def replace(self, former: StoredObject[Event], new: Event) -> Event:
        return self._numbered(self._storage.replace(self._own(former), new), former.place.partition)

    def remove(self, former: StoredObject[Event], version: str) -> str:
        own = self._own(former)
        # A version in the request was already compared with the number that was found.
        removed = self._storage.remove(own, version and own.object.metadata.resource_version)
        return str(self._numbering.number(former.place.partition, int(removed)))

    def _own(self, stored: StoredObject[Event]) -> StoredObject[Event]:
        event = self._storage.decode(stored.packed)
        return StoredObject(stored.place, event if event is not None else stored.object, stored.packed)

    def _numbered(self, found: Event, partition: int) -> Event:
        number = self._numbering.number(partition, int(found.metadata.resource_version))
        return with_metadata(found, resource_version=str(number))


class _NumberedObjects(ObjectWriter[T]):
    """Reads and writes like `ObjectWriter`. In lists and watches only the items have numbers."""

    def __init__(
        self, *, bus: Bus, client: Client, hub: Hub, kind: Kind[T], numbering: Numbering, remember: bool
    ) -> None:
        super().__init__(bus=bus, client=client, hub=hub, kind=kind, remember=remember)
        self._numbering = numbering
        numbered = _NumberedStorage(cast("EventStorage", self._storage), numbering)
        self._storage = cast("Storage[T]", numbered)

    def newest(self) -> Versions:
        """Return the newest checkpoint, after it covers all changes. Redis: GET on version, FCALL checkpoint."""
        return Versions(read_again(lambda: self._numbering.newest(self._client)))

    def list(self, options: ListOptions | None = None) -> ObjectList[T]:
        return read_again(lambda: self._list(options))

    def _list(self, options: ListOptions | None) -> ObjectList[T]:
        listed = super().list(options)
        items = (numbered for numbered, _ in self._numbered(listed.items))
        return ObjectList(tuple(items), listed.resource_version, listed.continue_, listed.remaining)

    def versioned(self, found: Iterable[tuple[int, T]]) -> Sequence[T]:
        return [numbered for numbered, _ in self._numbered(_tagged(partition, one) for partition, one in found)]

    def _list_first(self, options: ListOptions) -> tuple[tuple[T, ...], tuple[int, ...], str]:
        return read_again(lambda: self._read_first(options))

    def _read_first(self, options: ListOptions) -> tuple[tuple[T, ...], tuple[int, ...], str]:
        listed = super().list(options)
        pairs = sorted(self._numbered(listed.items), key=lambda pair: int(pair[0].metadata.resource_version))
        return tuple(item for item, _ in pairs), tuple(own for _, own in pairs), listed.resource_version

    def _path(self, after: Sequence[int], until: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return positions along the checkpoints, so that later changes are read in the order of their numbers."""
        with self._numbering.line() as line:
            path: Any = []
            for checkpoint in line.behind(after):
                if any(there > last for there, last in zip(checkpoint, until, strict=True)):
                    break
                path.append(checkpoint)
        return [*path, until]

    def _scan(
        self, selection: Selection[T], start: Continue, limit: int
    ) -> Iterator[tuple[int, Sequence[tuple[bytes, T]]]]:
        """Tag each version with its partition. `_numbered` makes a number of both."""
        for partition, page in super()._scan(selection, start, limit):
            yield partition, [(member, _tagged(partition, found)) for member, found in page]

    def _numbered(self, items: Iterable[T]) -> Sequence[tuple[T, int]]:
        """Return each item with its number, and its partition's version."""
        tags: Any = []
        highest = [0] * self.partitions
        for item in items:
            version, _, partition = item.metadata.resource_version.partition("@")
            tags.append((item, int(partition), int(version)))
            highest[int(partition)] = max(highest[int(partition)], int(version))
        self._numbering.cover(highest)  # covers writes during the list
        with self._numbering.line() as line:
            return [
                (with_metadata(item, resource_version=str(line.number(partition, version))), version)
                for item, partition, version in tags
            ]


def _tagged(partition: int, found: T) -> T:
    return with_metadata(found, resource_version=f"{found.metadata.resource_version}@{partition}")


def open_objects(
    *, bus: Bus, client: Client, hub: Hub, kind: Kind[Any], numbering: Numbering | None
) -> ObjectWriter[Any]:
    """Return the objects of *kind* for a server. With *numbering*, their versions are numbers."""
    if numbering is None:
        return ObjectWriter(bus=bus, client=client, hub=hub, kind=kind, remember=True)
    return _NumberedObjects(bus=bus, client=client, hub=hub, kind=kind, numbering=numbering, remember=True)
