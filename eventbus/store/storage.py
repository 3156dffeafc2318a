"""The protocol of the storage of a kind: places of objects, their packed form, and their writes; errors of writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, assert_never

import msgspec

from eventbus.broker.functions import WriteStatus, Written
from eventbus.errors import AlreadyExists, BusFull, Conflict, InvalidObject, NotFound, PoisonBatch
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata
from eventbus.store.selection import Selection

T = TypeVar("T", bound=HasMetadata)

#: Bytes of an object's JSON; Kubernetes' own limit is 1.5 MiB, but ours shares a server with the streams.
MAX_BYTES = 256 * 1024


class ChangeType(StrEnum):
    """The kind of a change to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


#: The meaning of the letters in a stream of changes.
LETTERS: Final[Mapping[str, ChangeType]] = {
    "A": ChangeType.ADDED,
    "M": ChangeType.MODIFIED,
    "D": ChangeType.DELETED,
}


class Place(NamedTuple):
    """The place of an object: its partition, and its id, the end of its key after `Keys.object_of`."""

    partition: int
    key: bytes


class StoredObject(msgspec.Struct, Generic[T], frozen=True):
    """An object with its place and its packed form there."""

    place: Place
    object: T
    packed: bytes


class Storage(Protocol[T]):
    """The objects of one kind in Redis. Uses one client: one thread at a time, except for `decode`."""

    kind: Kind[T]
    #: The partitions that hold objects of this kind; its resource version has a counter for each.
    partitions: Sequence[int]
    #: The change types that its readers get, by letter; changes with other letters are skipped.
    letters: Mapping[str, ChangeType]

    def decode(self, packed: bytes) -> T | None:
        """Unpack an object with its version; None: only an event's counts are left. Thread-safe.

        Raises: PoisonBatch: the value is not ours.
        """
        ...

    def index(self, partition: int, selection: Selection[T]) -> tuple[bytes, bytes]:
        """Return the smallest index with all selected objects, and the prefix of their members."""
        ...

    def find(self, namespace: str, name: str) -> StoredObject[T] | None:
        """Find the object of that name. Raises: BusUnavailable."""
        ...

    def check(self, obj: T) -> None:
        """Check that the object may be stored. Raises: InvalidObject: with the API server's message."""
        ...

    def as_stored(self, obj: T) -> T:
        """Return the object as it will be read back. Raises: InvalidObject."""
        ...

    def new_uid(self) -> str:
        """Return a new uid."""
        ...

    def create(self, obj: T) -> T:
        """Store a new object; return it with its version.

        Raises: AlreadyExists.  BusFull: nothing was stored.  InvalidObject: it is too large.
        """
        ...

    def replace(self, former: StoredObject[T], new: T) -> T:
        """Store *new* in place of *former*, if *former* has not changed; return it with its version.

        Raises: Conflict, NotFound: it has changed.  BusFull: nothing was stored.  InvalidObject: it is too large.
        """
        ...

    def remove(self, former: StoredObject[T], version: str) -> str:
        """Remove an object that has *version* ("": any); return the version of the change.

        Raises: Conflict, NotFound.
        """
        ...


def decode_or_none(storage: Storage[T], packed: bytes | None) -> T | None:
    """Unpack a value as `Storage.decode`; None also if there is none, or a corrupt one."""
    try:
        return None if packed is None else storage.decode(packed)
    except PoisonBatch:
        return None


def new_version(kind: Kind[T], name: str, written: Written) -> str:
    """Return the new version. Raises: AlreadyExists, Conflict, NotFound, BusFull."""
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
            raise BusFull("the bus is full: let the workers drain it, or raise the server's maxmemory; then try again")
    assert_never(written.status)


def already_exists(kind: Kind[T], name: str) -> AlreadyExists:
    """Make the error for a name that is taken, with the API server's message."""
    return AlreadyExists(f'{kind.resource} "{name}" already exists', resource=kind.resource, name=name)


def conflict(kind: Kind[T], name: str) -> Conflict:
    """Make the error for a version that is not the newest, with the API server's message."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again",
        resource=kind.resource,
        name=name,
    )


def not_found(kind: Kind[T], name: str) -> NotFound:
    """Make the error for an object that does not exist, with the API server's message."""
    return NotFound(f'{kind.resource} "{name}" not found', resource=kind.resource, name=name)


def invalid(kind: Kind[T], name: str, field: str, problem: str) -> InvalidObject:
    """Make the error for an invalid field of an object, with the API server's message."""
    group = kind.api_version.rpartition("/")[0]
    label = f"{kind.name}.{group}" if group else kind.name
    message = f'{label} "{name}" is invalid: {f"{field}: " if field else ""}{problem}'
    return InvalidObject(message, kind=kind.name, group=group, name=name, field=field, problem=problem)


def check_size(body: bytes) -> None:
    """Check that the object is not too large. Raises: InvalidObject."""
    if len(body) > MAX_BYTES:
        raise InvalidObject(f"Request entity too large: limit is {MAX_BYTES} bytes")


def with_metadata(obj: T, **changes: object) -> T:
    """Return *obj* with other metadata."""
    return replaced(obj, metadata=msgspec.structs.replace(obj.metadata, **changes))


def replaced(obj: T, **changes: object) -> T:
    """Return *obj* with other fields."""
    struct: Any = obj
    return msgspec.structs.replace(struct, **changes)  # type: ignore[no-any-return]
