"""Storage of every kind except events: an object's JSON under the hash of its namespace and name, in partition 0."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgpack
import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.functions import Item
from eventbus.broker.keys import item_key
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import DeadCause, PoisonBatch
from eventbus.model.decodable import decodable
from eventbus.model.frozen import decode_frozen
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata
from eventbus.model.names import is_dns_label, is_dns_subdomain
from eventbus.settings import Options
from eventbus.store.calls import call
from eventbus.store.selection import Selection, encode_was
from eventbus.store.storage import (
    LETTERS,
    Place,
    StoredObject,
    check_size,
    decode_or_none,
    invalid,
    new_version,
    with_metadata,
)

T = TypeVar("T", bound=HasMetadata)

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
