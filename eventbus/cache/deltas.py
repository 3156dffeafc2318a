"""Deltas, the changes of an object, and the key of an object."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

import msgspec

from eventbus.model.list_watch import HasMetadata

T = TypeVar("T", bound=HasMetadata)

#: Returns the key of an object, unique in one cache.
KeyFunc: TypeAlias = Callable[[HasMetadata], str]


class DeltaType(StrEnum):
    """The reason for a delta."""

    ADDED = "Added"
    UPDATED = "Updated"
    DELETED = "Deleted"
    REPLACED = "Replaced"  #: it was in a list
    SYNC = "Sync"  #: it has not changed; it is sent to the handlers again


class DeletedFinalStateUnknown(msgspec.Struct, Generic[T], frozen=True):
    """The object was deleted while the watch was down: *object* is the last known state, perhaps not the final one."""

    key: str
    object: T


class Delta(msgspec.Struct, Generic[T], frozen=True):
    """One change. *object* is a tombstone only if the type is DELETED."""

    type: DeltaType
    object: T | DeletedFinalStateUnknown[T]


def object_key(found: HasMetadata) -> str:
    """Return `namespace/name`, or `name` without a namespace."""
    metadata = found.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def last_state(found: T | DeletedFinalStateUnknown[T]) -> T:
    """Return the object itself, also of a tombstone, for an `on_delete` handler."""
    return found.object if isinstance(found, DeletedFinalStateUnknown) else found


def key_of(found: T | DeletedFinalStateUnknown[T] | tuple[Delta[T], ...], key_func: KeyFunc = object_key) -> str:
    """Return the key of an object, of a tombstone, or of their deltas.

    Raises: ValueError: no deltas, no key.
    """
    if isinstance(found, tuple):
        if not found:
            raise ValueError("no deltas, so there is no key")
        return key_of(found[-1].object, key_func)
    if isinstance(found, DeletedFinalStateUnknown):
        return found.key
    return key_func(found)
