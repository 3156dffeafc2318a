"""What differs between the kinds of stored objects: where they lie, how they are packed, how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, assert_never, cast

import msgspec

from eventbus.broker.functions import WriteStatus, Written
from eventbus.errors import AlreadyExists, BusFull, Conflict, InvalidObject, NotFound
from eventbus.kinds import Kind
from eventbus.list_watch import HasMetadata
from eventbus.store.selection import Selection

T = TypeVar("T", bound=HasMetadata)

#: Bytes of an object's JSON; Kubernetes' own limit is 1.5 MiB, but ours shares a server with the streams.
MAX_BYTES = 256 * 1024


class ChangeType(StrEnum):
    """What happened to the object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


#: What the letters of a stream of changes mean.
LETTERS: Final[Mapping[str, ChangeType]] = {
    "A": ChangeType.ADDED,
    "M": ChangeType.MODIFIED,
    "D": ChangeType.DELETED,
}


class Place(NamedTuple):
    """Where an object lies: a partition, and 32 hex behind `Keys.object_of` its kind."""

    partition: int
    key: bytes


class Found(msgspec.Struct, Generic[T], frozen=True):
    """An object, where it lies, and as it is packed there."""

    place: Place
    object: T
    packed: bytes


class Storage(Protocol[T]):
    """The objects of one kind in Redis. Over one client: one thread at a time, but for `decode`."""

    kind: Kind[T]
    #: The partitions that hold objects of this kind; its resource version has a counter for each.
    partitions: Sequence[int]
    #: What its readers are told of changes; those of other letters they pass over.
    letters: Mapping[str, ChangeType]

    def decode(self, packed: bytes) -> T | None:
        """The object with its version; None: only an event's counts are left. Thread-safe.

        Raises: PoisonBatch: the value is not ours.
        """
        ...

    def index(self, partition: int, selection: Selection[T]) -> tuple[bytes, bytes]:
        """The index with the fewest members that has all that is selected, and how these begin."""
        ...

    def find(self, namespace: str, name: str) -> Found[T] | None:
        """The object of that name. Raises: BusUnavailable."""
        ...

    def check(self, found: T) -> None:
        """Raise unless the object may be stored. Raises: InvalidObject: worded as the API server does."""
        ...

    def as_stored(self, found: T) -> T:
        """The object as it will be read back. Raises: InvalidObject."""
        ...

    def create(self, found: T) -> T:
        """Store a new object; returns it with its version.

        Raises: AlreadyExists.  BusFull: nothing was stored.  InvalidObject: it is too large.
        """
        ...

    def replace(self, former: Found[T], new: T) -> T:
        """Store *new* for *former*, if that is still as it was found; returns it with its version.

        Raises: Conflict, NotFound: it is not.  BusFull: nothing was stored.  InvalidObject: it is too large.
        """
        ...

    def remove(self, former: Found[T], version: str) -> None:
        """Take an object out, "": whatever its version. Raises: Conflict, NotFound."""
        ...


def settle(kind: Kind[T], name: str, written: Written) -> str:
    """The new version. Raises: AlreadyExists, Conflict, NotFound, BusFull."""
    match written.status:
        case WriteStatus.OK:
            return written.version
        case WriteStatus.EXISTS:
            raise already_exists(kind, name)
        case WriteStatus.CONFLICT:
            raise conflict(kind, name)
        case WriteStatus.MISSING:
            raise not_found(kind, name)
        case WriteStatus.FULL:
            raise BusFull("the bus takes no more: let the workers drain it, or raise the server's maxmemory; try again")
    assert_never(written.status)


def already_exists(kind: Kind[T], name: str) -> AlreadyExists:
    """As the API server words it."""
    return AlreadyExists(f'{kind.resource} "{name}" already exists')


def conflict(kind: Kind[T], name: str) -> Conflict:
    """As the API server words it."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def not_found(kind: Kind[T], name: str) -> NotFound:
    """As the API server words it."""
    return NotFound(f'{kind.resource} "{name}" not found')


def check_size(body: bytes) -> None:
    """Raises: InvalidObject."""
    if len(body) > MAX_BYTES:
        raise InvalidObject(f"Request entity too large: limit is {MAX_BYTES} bytes")


def with_metadata(found: T, **changes: object) -> T:
    """*found* with other metadata."""
    return replaced(found, metadata=msgspec.structs.replace(found.metadata, **changes))


def replaced(found: T, **changes: object) -> T:
    """*found* with other fields."""
    changed = msgspec.structs.replace(cast("msgspec.Struct", found), **changes)
    return cast("T", changed)


__all__ = [
    "LETTERS",
    "MAX_BYTES",
    "ChangeType",
    "Found",
    "Place",
    "Storage",
    "already_exists",
    "check_size",
    "conflict",
    "not_found",
    "replaced",
    "settle",
    "with_metadata",
]
