"""Writing the objects of one kind, with optimistic versions."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import msgspec

from eventbus.broker import functions
from eventbus.broker.functions import Item
from eventbus.broker.keys import EVENTS
from eventbus.errors import AlreadyExists, BusUnavailable, Conflict, FunctionsMissing, InvalidObject, NotFound
from eventbus.list_watch import HasMetadata
from eventbus.names import is_dns_label, is_dns_subdomain
from eventbus.store.items import encode_body, encode_was, replaced, with_metadata
from eventbus.store.objects import StoredObjects

T = TypeVar("T", bound=HasMetadata)

#: Bytes of an object's JSON; Kubernetes' own limit is 1.5 MiB, but ours shares a server with the streams.
MAX_BYTES = 256 * 1024
#: So often a write is made again over somebody else's, where the caller named no version. The API server: 5.
ATTEMPTS = 10
#: Tries of a generated name, and the characters behind it, as the API server has them.
NAME_ATTEMPTS, _NAME_CHARS, _NAME_LENGTH = 8, "bcdfghjklmnpqrstvwxz2456789", 5
_BAD_NAME = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)


class Objects(StoredObjects[T]):
    """Reads and writes one kind. One thread at a time.

    Every write returns the object as it is stored, with its version. A write of what has a version is refused with
    Conflict if the object has another; without one it goes over whatever is there. What changes nothing is not written.

    Raises: BusUnavailable: it may or may not have been done: read, and decide.
            InvalidObject: fix the caller; events too, which are recorded and not written.
    """

    def create(self, found: T) -> T:
        """Store a new object; it gets uid, creation time and, behind *generate_name*, five characters.

        Raises: AlreadyExists.
        Redis:  FCALL eb1_put.
        """
        metadata = found.metadata
        if metadata.resource_version:
            raise InvalidObject("resourceVersion should not be set on objects to be created")
        made = with_metadata(
            found,
            uid=str(uuid.uuid4()),
            creation_timestamp=datetime.fromtimestamp(self._clock.time_ns() // 1_000_000_000, UTC),
        )
        if metadata.name or not metadata.generate_name:
            return self._create(made)
        for _ in range(NAME_ATTEMPTS):
            name = metadata.generate_name + "".join(random.choices(_NAME_CHARS, k=_NAME_LENGTH))
            try:
                return self._create(with_metadata(made, name=name))
            except AlreadyExists:
                continue
        problem = "already exists, the server was not able to generate a unique name for the object"
        raise AlreadyExists(f'{self.kind.resource} "{metadata.generate_name}" {problem}')

    def update(self, found: T) -> T:
        """Replace an object; uid and creation time stay, and so does the status of a kind that has one.

        Raises: NotFound, Conflict.
        Redis:  GET, FCALL eb1_put.
        """

        def change(former: T) -> T:
            return replaced(found, status=_status(former)) if self.kind.has_status else found

        return self._change(found, change)

    def update_status(self, found: T) -> T:
        """Replace the status of an object, and nothing else. Raises: as `update`."""
        if not self.kind.has_status:
            raise InvalidObject(f"{self.kind.resource} have no status of their own: update the object")
        return self._change(found, lambda former: replaced(former, status=_status(found)))

    def patch(self, name: str, patch: Mapping[str, Any], namespace: str = "", *, status: bool = False) -> T:
        """Apply a JSON merge patch (RFC 7386) to the object's JSON; lists are replaced whole.

        Args:   status: patch what `update_status` writes; else what `update` does.
        Raises: NotFound, Conflict: the patch names another version than the object has. InvalidObject.
        """
        if not isinstance(patch, Mapping):
            raise InvalidObject("a merge patch of an object must be an object")
        asked = patch.get("metadata")
        version = str(asked.get("resourceVersion") or "") if isinstance(asked, Mapping) else ""

        def change(former: T) -> T:
            new = self.kind.decode(merge(self.kind.encode(former), patch))
            if new.metadata.name != name or new.metadata.namespace != namespace:
                raise InvalidObject("the name of the object does not match the name of the patched one")
            if status:
                return replaced(former, status=_status(new))
            return replaced(new, status=_status(former)) if self.kind.has_status else new

        if status and not self.kind.has_status:
            raise InvalidObject(f"{self.kind.resource} have no status of their own: patch the object")
        return self._write(name, namespace, version, "", change)

    def delete(self, name: str, namespace: str = "", *, version: str = "") -> None:
        """Take an object out; of an event its running count stays.

        Raises: NotFound.  Conflict: it does not have *version*.
        Redis:  FCALL eb1_remove; of an event, ZRANGE and GET before it.
        """
        (partition, key), found = self._find(namespace, name)
        if found is None:
            self._missing(name)
        answer, _ = self._call(
            partition,
            lambda: self._functions(partition).remove(self._bus.options, key, version, self.kind.plural),
        )
        if answer == "MISSING":
            self._missing(name)
        if answer == "CONFLICT":
            raise _conflict(self.kind.resource, name)

    def _create(self, found: T) -> T:
        self._check(found)
        return self._put(found, None)

    def _change(self, found: T, change: Callable[[T], T]) -> T:
        metadata = found.metadata
        return self._write(metadata.name, metadata.namespace, metadata.resource_version, metadata.uid, change)

    def _write(self, name: str, namespace: str, version: str, uid: str, change: Callable[[T], T]) -> T:
        """Put what *change* makes of the stored object, until nobody else wrote meanwhile."""
        self._refuse_events()
        for attempt in range(ATTEMPTS):
            former = self.get(name, namespace)
            held = former.metadata
            if version and version != held.resource_version:
                raise _conflict(self.kind.resource, name)
            if uid and uid != held.uid:
                raise Conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {held.uid}")
            new = with_metadata(
                change(former),
                uid=held.uid,
                creation_timestamp=held.creation_timestamp,
                resource_version=held.resource_version,
                generate_name=held.generate_name,
            )
            if new == former:
                return former
            self._check(new)
            try:
                return self._put(new, former)
            except Conflict:
                if version or attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _put(self, found: T, former: T | None) -> T:
        name, namespace = found.metadata.name, found.metadata.namespace
        partition, key = self._place(namespace, name)
        item = Item(plural=self.kind.plural, namespace=namespace, name=name, key=key, body=self._body(found))
        held = "" if former is None else former.metadata.resource_version
        was = b"" if former is None else encode_was(self.kind, former, found)
        answer, version = self._call(partition, lambda: self._functions(partition).put(item, held, was))
        match answer:
            case "OK":
                return with_metadata(found, resource_version=version)
            case "EXISTS":
                raise AlreadyExists(f'{self.kind.resource} "{name}" already exists')
            case "CONFLICT":
                raise _conflict(self.kind.resource, name)
            case "FULL":
                raise BusUnavailable("the server is out of memory: raise its maxmemory, or let the workers drain it")
        self._missing(name)

    def _call(self, partition: int, call: Callable[[], tuple[str, str]]) -> tuple[str, str]:
        try:
            return call()
        except FunctionsMissing:  # it had no effect
            functions.load(self._client)
            return call()

    def _body(self, found: T) -> bytes:
        body = encode_body(found)
        if len(body) > MAX_BYTES:
            raise InvalidObject(f"Request entity too large: limit is {MAX_BYTES} bytes")
        return body

    def _check(self, found: T) -> None:
        """Raises: InvalidObject: worded as the API server does."""
        self._refuse_events()
        if not isinstance(found, self.kind.type):
            raise InvalidObject(f"a {self.kind.name} must be a {self.kind.type.__name__}, is {type(found).__name__}")
        name, namespace = found.metadata.name, found.metadata.namespace
        problem = ""
        if not name:
            problem = "metadata.name: Required value: name or generateName is required"
        elif not is_dns_subdomain(name):
            problem = f'metadata.name: Invalid value: "{name}": {_BAD_NAME}'
        elif self.kind.namespaced and not namespace:
            problem = "metadata.namespace: Required value"
        elif namespace and not self.kind.namespaced:
            problem = "metadata.namespace: Forbidden: not allowed on this type"
        elif namespace and not is_dns_label(namespace):
            problem = f'metadata.namespace: Invalid value: "{namespace}"'
        if problem:
            raise InvalidObject(f'{self.kind.name} "{name}" is invalid: {problem}')

    def _refuse_events(self) -> None:
        if self.kind.plural == EVENTS:
            raise InvalidObject("events are not written but recorded: see EventRecorder")

    def _missing(self, name: str) -> NoReturn:
        raise NotFound(f'{self.kind.resource} "{name}" not found')


def merge(target: Any, patch: Any) -> Any:
    """*target* with *patch* applied: null takes a key out, what is no mapping replaces. Source: RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def _conflict(resource: str, name: str) -> Conflict:
    return Conflict(
        f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def _status(found: Any) -> msgspec.Struct:
    status: msgspec.Struct = found.status
    return status


__all__ = ["MAX_BYTES", "Objects", "merge"]
