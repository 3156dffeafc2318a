"""The protocol of the storage of a kind, and the storage of every kind except events; errors of writes.

An object's JSON is stored under the hash of its namespace and name, in partition 0. Events: see `event_storage`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, assert_never

import msgpack
import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.functions import Item, WriteStatus, Written
from eventbus.broker.keys import item_key
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import AlreadyExists, BusFull, Conflict, DeadCause, InvalidObject, NotFound, PoisonBatch
from eventbus.model.decodable import decodable
from eventbus.model.frozen import decode_frozen
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata
from eventbus.model.names import is_dns_label, is_dns_subdomain
from eventbus.settings import Options
from eventbus.store.calls import call
from eventbus.store.selection import Selection, encode_was

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


#: All objects lie here, so that their resource version is one counter.
PARTITION = 0
_BAD_NAME = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)


class ObjectStorage(Generic[T]):
    """Implements `Storage` for one kind. The JSON is an object's fields as msgspec writes them, without the version."""

    def __init__(self, *, kind: Kind[T], bus: Bus, client: Client) -> None:
        self.kind = kind
        self.partitions: Sequence[int] = range(PARTITION, PARTITION + 1)
        self.letters = LETTERS
        self._bus = bus
        self._client = client
        self._keys = bus.keys[PARTITION]
        bound = kind.changes_bytes
        most = bus.options.changes_bytes
        #: The options of the bus, with the bound of this kind's own changes.
        self._options = bus.options if bound is None or bound >= most else _bounded(bus.options, bound)

    def decode(self, packed: bytes) -> T | None:
        return decode_object(self.kind, packed)

    def index(self, partition: int, selection: Selection[T]) -> tuple[bytes, bytes]:
        return self._bus.keys[partition].index_name_of(self.kind.plural), selection.name_prefix()

    def find(self, namespace: str, name: str) -> StoredObject[T] | None:
        """Read one object by a GET; None if there is none, or it cannot be decoded."""
        key = item_key(namespace, name)
        with redis_errors():
            packed: Any = self._client.get(self._keys.object_of(self.kind.plural) + key)
        obj = decode_or_none(self, packed)
        return None if obj is None else StoredObject(Place(PARTITION, key), obj, packed)

    def check(self, obj: T) -> None:
        """Check name and namespace. Raises: InvalidObject."""
        name, namespace = obj.metadata.name, obj.metadata.namespace
        field, problem = "", ""
        if name and not is_dns_subdomain(name):
            field, problem = "metadata.name", f'Invalid value: "{name}": {_BAD_NAME}'
        elif self.kind.namespaced and not namespace:
            field, problem = "metadata.namespace", "Required value"
        elif namespace and not self.kind.namespaced:
            field, problem = "metadata.namespace", "Forbidden: not allowed on this type"
        elif namespace and not is_dns_label(namespace):
            field, problem = "metadata.namespace", f'Invalid value: "{namespace}"'
        elif self.kind.problems is not None and (found := next(iter(self.kind.problems(obj)), None)):
            field, problem = found.field, found.text
        if problem:
            raise invalid(self.kind, name, field, problem)

    def as_stored(self, obj: T) -> T:
        return obj

    def new_uid(self) -> str:
        return str(uuid.uuid4())

    def create(self, obj: T) -> T:
        return self._put(obj, "", b"")

    def replace(self, former: StoredObject[T], new: T) -> T:
        return self._put(new, former.object.metadata.resource_version, encode_was(self.kind.fields, former.object, new))

    def remove(self, former: StoredObject[T], version: str) -> str:
        """Remove *former* if it is still at *version* ("": at any); return the version of its removal."""
        plural, options = self.kind.plural, self._options
        functions = self._bus.functions(self._client, PARTITION)
        written = call(
            self._bus, self._client, PARTITION, lambda: functions.remove(options, plural, former.place.key, version)
        )
        return new_version(self.kind, former.object.metadata.name, written)

    def _put(self, obj: T, version: str, was: bytes) -> T:
        name, namespace = obj.metadata.name, obj.metadata.namespace
        body = encode_body(obj)
        check_size(body)
        item = Item(plural=self.kind.plural, namespace=namespace, name=name, key=item_key(namespace, name), body=body)
        functions = self._bus.functions(self._client, PARTITION)
        written = call(self._bus, self._client, PARTITION, lambda: functions.put(self._options, item, version, was))
        return with_metadata(obj, resource_version=new_version(self.kind, name, written))


def _bounded(options: Options, changes_bytes: int) -> Options:
    return msgspec.structs.replace(options, changes_bytes=changes_bytes)


def decode_object(kind: Kind[T], packed: bytes) -> T:
    """Decode the object in *packed*, with its version. Raises: PoisonBatch: the value is not ours."""
    try:
        version, _, _, body = msgpack.unpackb(packed, raw=True)
        obj = msgspec.json.decode(body, type=decodable(kind.type), dec_hook=decode_frozen)
        return with_metadata(obj, resource_version=str(int(version)))
    except (ValueError, TypeError) as error:  # msgspec's and msgpack's are ValueErrors
        raise PoisonBatch(DeadCause.UNREADABLE) from error


def encode_body(obj: HasMetadata) -> bytes:
    """Return the body that `put` stores."""
    return msgspec.json.encode(with_metadata(obj, resource_version=""))


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
