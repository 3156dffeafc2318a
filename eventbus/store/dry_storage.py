"""Storage that checks and answers every write without making it, for `dryRun=All`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from eventbus.model.list_watch import HasMetadata
from eventbus.store.selection import Selection
from eventbus.store.storage import ChangeType, Found, Storage, already_exists, conflict, with_metadata

T = TypeVar("T", bound=HasMetadata)


class DryStorage(Generic[T]):
    """Implements `Storage`: reads as *storage* does."""

    def __init__(self, storage: Storage[T]) -> None:
        self._storage = storage
        self.kind = storage.kind
        self.partitions: Sequence[int] = storage.partitions
        self.letters: Mapping[str, ChangeType] = storage.letters

    def decode(self, packed: bytes) -> T | None:
        return self._storage.decode(packed)

    def index(self, partition: int, selection: Selection[T]) -> tuple[bytes, bytes]:
        return self._storage.index(partition, selection)

    def find(self, namespace: str, name: str) -> Found[T] | None:
        return self._storage.find(namespace, name)

    def check(self, found: T) -> None:
        self._storage.check(found)

    def as_stored(self, found: T) -> T:
        return self._storage.as_stored(found)

    def new_uid(self) -> str:
        return self._storage.new_uid()

    def create(self, found: T) -> T:
        """Return the object without a version. Raises: AlreadyExists."""
        if self.find(found.metadata.namespace, found.metadata.name) is not None:
            raise already_exists(self.kind, found.metadata.name)
        return found

    def replace(self, former: Found[T], new: T) -> T:
        """Return the object with the stored version."""
        return with_metadata(new, resource_version=former.object.metadata.resource_version)

    def remove(self, former: Found[T], version: str) -> str:
        """Return the stored version. Raises: Conflict."""
        if version not in ("", former.object.metadata.resource_version):
            raise conflict(self.kind, former.object.metadata.name)
        return former.object.metadata.resource_version
