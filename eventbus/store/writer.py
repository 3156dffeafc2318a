"""Writes the objects of one kind, with optimistic versions, and deletes objects with finalizers in two steps.

A Pod has a grace period for its end. With a grace period of 0 it is removed at once, without waiting for its agent.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, cast

from eventbus.broker.keys import EVENTS, item_key
from eventbus.errors import AlreadyExists, Conflict, InvalidObject, NotFound
from eventbus.model.encoding.object_json import merge
from eventbus.model.event import Event
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata
from eventbus.model.objects.pod import RUNNING_FINALIZER, Pod
from eventbus.store.calls import Call
from eventbus.store.event_storage import EventStorage
from eventbus.store.reader import ObjectReader
from eventbus.store.storage import (
    PARTITION,
    Place,
    StoredObject,
    already_exists,
    conflict,
    invalid,
    not_found,
    replaced,
    with_metadata,
)

T = TypeVar("T", bound=HasMetadata)

#: Attempts of a write without a version while other clients write the same object. The API server: 5.
ATTEMPTS = 10
#: Attempts of a generated name, and the characters and length of its suffix, as in the API server.
NAME_ATTEMPTS, _NAME_CHARS, _NAME_LENGTH = 8, "bcdfghjklmnpqrstvwxz2456789", 5


class ObjectWriter(ObjectReader[T]):
    """Reads and writes one kind. One thread at a time.

    Every write returns the object as it is stored, with its version. A write with a version raises Conflict if the
    stored object has another one; a write without a version replaces any. A write that changes nothing is not stored.
    Recorded events can be changed, too, and programs can write their own events: see `event_storage`.

    Raises: BusFull: nothing was written; wait, and call again.
            BusUnavailable: the write may or may not have been done: read, and decide.
            InvalidObject: correct the object.
    """

    _is_dry = False

    def create(self, obj: T) -> T:
        """Store a new object; it gets uid, creation time, generation and, after *generate_name*, five characters.

        Raises: AlreadyExists.
        Redis:  FCALL put, of an event put_client_event.
        """
        created = self._new(obj)
        if obj.metadata.name or not obj.metadata.generate_name:
            return self._create(self._checked(created))
        for _ in range(NAME_ATTEMPTS):
            with suppress(AlreadyExists):
                return self._create(self._checked(_with_generated_name(created)))
        problem = "already exists, the server was not able to generate a unique name for the object"
        name = obj.metadata.generate_name
        raise AlreadyExists(f'{self.kind.resource} "{name}" {problem}', resource=self.kind.resource, name=name)

    def creation(self, obj: T) -> Call[T]:
        """Return the call that stores a new event, for a bus of one partition. Raises: as `create`."""
        created = self._new(obj)
        if obj.metadata.name or not obj.metadata.generate_name:
            return self._creation(created)
        call = self._creation(_with_generated_name(created))

        def result(reply: Any) -> T:
            try:
                return call.result(reply)
            except AlreadyExists:
                return self.create(obj)  # with another generated name

        return Call(call.command, result)

    def _creation(self, created: T) -> Call[T]:
        storage = cast("EventStorage", self._storage)
        return cast("Call[T]", storage.creation(cast("Event", self._checked(created))))

    def _new(self, obj: T) -> T:
        """Return the object to create. Raises: InvalidObject."""
        if obj.metadata.resource_version:
            raise InvalidObject("resourceVersion should not be set on objects to be created")
        uid, name = self._storage.new_uid(), obj.metadata.name
        return with_metadata(
            obj,
            uid=uid,
            name=name or (uid if self.kind.named_by_uid else ""),
            creation_timestamp=self._now(),
            generation=int(bool(self.kind.has_generation)),
            deletion_timestamp=None,
            deletion_grace_period_seconds=None,
        )

    def update(self, obj: T) -> T:
        """Replace an object; uid and creation time stay, and so does the status of a kind that has one.

        An update that removes the last finalizer of a deleted object removes the object, and returns its last state.

        Raises: NotFound, Conflict.
        Redis:  GET, FCALL put, of an event put_client_event or overlay_event.
        """

        def change(former: T) -> T:
            return replaced(obj, status=_part(former, "status")) if self.kind.has_status else obj

        return self._change(obj, change)

    def replace(self, former: T, new: T) -> T:
        """Replace *former*, the object as it was last read or written, by *new* in one call.

        It reads nothing first, and writes the status as well. Not for events.

        Raises: NotFound, Conflict: the stored object is not *former* any more; read it again.
        Redis:  FCALL put.
        """
        if self.kind.plural == EVENTS:
            raise InvalidObject("events are updated, not replaced")
        metadata = former.metadata
        changed = self._with_fixed_fields(new, former)
        self._check(changed)
        place = Place(PARTITION, item_key(metadata.namespace, metadata.name))
        return self._replace(StoredObject(place, former, b""), changed)

    def update_status(self, obj: T) -> T:
        """Replace the status of an object, and nothing else. Raises: as `update`."""
        if not self.kind.has_status:
            raise InvalidObject(f"{self.kind.resource} have no status of their own: update the object")
        return self._change(obj, lambda former: replaced(former, status=_part(obj, "status")))

    def patch(self, name: str, patch: Mapping[str, Any], namespace: str = "", *, status: bool = False) -> T:
        """Apply a JSON merge patch (RFC 7386) to the object's JSON; lists are replaced whole.

        Args:   status: patch the status, as `update_status` does; otherwise the rest, as `update` does.
        Raises: NotFound, Conflict: the patch names another version than the object has. InvalidObject.
        """
        if not isinstance(patch, Mapping):
            raise InvalidObject("a merge patch of an object must be an object")
        metadata = patch.get("metadata")
        version = str(metadata.get("resourceVersion") or "") if isinstance(metadata, Mapping) else ""

        def change(former: T) -> T:
            new = self.kind.decode(merge(self.kind.encode(former), patch))
            if new.metadata.name != name or new.metadata.namespace != namespace:
                raise InvalidObject("the name of the object does not match the name of the patched one")
            if status:
                return replaced(former, status=_part(new, "status"))
            return replaced(new, status=_part(former, "status")) if self.kind.has_status else new

        if status and not self.kind.has_status:
            raise InvalidObject(f"{self.kind.resource} have no status of their own: patch the object")
        return self._write(name, namespace, version, "", change)

    def modify(
        self, name: str, change: Callable[[T], T], namespace: str = "", *, version: str = "", uid: str = ""
    ) -> T:
        """Replace the object by the result of *change*, which is called again if another client wrote meanwhile.

        The uid, creation time and generation stay. *change* has to keep the status.

        Raises: NotFound.  Conflict: it does not have *version*, or not *uid*.  Any error of *change*.
        """
        return self._write(name, namespace, version, uid, change)

    def dry_run(self) -> ObjectWriter[T]:
        """Return a writer that checks every write and returns its result, but stores nothing (`dryRun=All`)."""
        dry = copy.copy(self)
        dry._is_dry = True
        return dry

    def delete(self, name: str, namespace: str = "", *, version: str = "", grace_s: int | None = None) -> None:
        """Delete an object; the running count of a recorded event stays.

        An object with finalizers gets a deletionTimestamp, and is removed by the update or patch that removes its last
        finalizer. A second call has no effect, except for a shorter grace period.

        Args:   grace_s: seconds that a Pod has to end, None: its own grace period. 0: the object is removed at
                once; the agent, if there is one, then ends its processes.
        Raises: NotFound.  Conflict: it does not have *version*.
        Redis:  those of `get`, then FCALL remove; for an object with finalizers those of `update`.
        """
        marked_uid = ""  # uid of the marked object: another client that sees the mark may remove it first
        for attempt in range(ATTEMPTS):
            try:
                stored = self._find(name, namespace, "" if marked_uid else version)
                if marked_uid and stored.object.metadata.uid != marked_uid:
                    return
                stored = self._mark(stored, grace_s)
                marked_uid = stored.object.metadata.uid if stored.object.metadata.deletion_timestamp else ""
                if not has_finalizer(stored.object):
                    self._remove(stored, stored.object.metadata.resource_version)
                return
            except Conflict:  # it may have got a finalizer in between
                if (version and not marked_uid) or attempt == ATTEMPTS - 1:
                    raise
            except NotFound:
                if not marked_uid:
                    raise
                return

    def _create(self, obj: T) -> T:
        if not self._is_dry:
            return self._storage.create(obj)
        if self._storage.find(obj.metadata.namespace, obj.metadata.name) is not None:
            raise already_exists(self.kind, obj.metadata.name)
        return obj

    def _replace(self, former: StoredObject[T], new: T) -> T:
        if not self._is_dry:
            return self._storage.replace(former, new)
        return with_metadata(new, resource_version=former.object.metadata.resource_version)

    def _remove(self, former: StoredObject[T], version: str) -> str:
        if not self._is_dry:
            return self._storage.remove(former, version)
        if version not in ("", former.object.metadata.resource_version):
            raise conflict(self.kind, former.object.metadata.name)
        return former.object.metadata.resource_version

    def _mark(self, stored: StoredObject[T], grace_s: int | None) -> StoredObject[T]:
        """Mark an object with finalizers as deleted. Watchers see why it is then removed."""
        obj = stored.object
        if not obj.metadata.finalizers:
            return stored
        new = marked(obj, self._now(), grace_s)
        if new == obj:
            return stored
        return StoredObject(stored.place, self._replace(stored, self._storage.as_stored(new)), stored.packed)

    def _checked(self, obj: T) -> T:
        """Return the object as it will be read back. Raises: InvalidObject."""
        self._check(obj)
        return self._storage.as_stored(obj)

    def _change(self, obj: T, change: Callable[[T], T]) -> T:
        metadata = obj.metadata
        return self._write(metadata.name, metadata.namespace, metadata.resource_version, metadata.uid, change)

    def _write(self, name: str, namespace: str, version: str, uid: str, change: Callable[[T], T]) -> T:
        """Store the result of *change*, and try again while other clients write the object in between."""
        for attempt in range(ATTEMPTS):
            former = self._find(name, namespace, version)
            current = former.object.metadata
            if uid and uid != current.uid:
                problem = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current.uid}"
                message = f'Operation cannot be fulfilled on {self.kind.resource} "{name}": {problem}'
                raise Conflict(message, resource=self.kind.resource, name=name)
            changed = self._with_fixed_fields(change(former.object), former.object)
            if changed == former.object:
                return changed
            self._check(changed)
            check_finalizers(self.kind, changed, former.object)
            new = self._storage.as_stored(changed)
            if new == self._storage.as_stored(former.object):
                return former.object
            try:
                if is_removable(new):
                    return with_metadata(new, resource_version=self._remove(former, current.resource_version))
                return self._replace(former, new)
            except Conflict:
                if version or attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _find(self, name: str, namespace: str, version: str) -> StoredObject[T]:
        """Find the object. Raises: NotFound.  Conflict: it does not have *version*; "": any version."""
        stored = self._storage.find(namespace, name)
        if stored is None:
            raise not_found(self.kind, name)
        if version and version != stored.object.metadata.resource_version:
            raise conflict(self.kind, name)
        return stored

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.time_ns() // 1_000_000_000, UTC)

    def _with_fixed_fields(self, new: T, former: T) -> T:
        """Return *new* with the fields of the former object that clients cannot change."""
        current = former.metadata
        spec_changed = self.kind.has_generation and _part(new, "spec") != _part(former, "spec")
        return with_metadata(
            new,
            uid=current.uid,
            creation_timestamp=current.creation_timestamp,
            resource_version=current.resource_version,
            generate_name=current.generate_name,
            generation=current.generation + bool(spec_changed),
            deletion_timestamp=current.deletion_timestamp,
            deletion_grace_period_seconds=current.deletion_grace_period_seconds,
        )

    def _check(self, obj: T) -> None:
        """Check the object. Raises: InvalidObject: with the API server's message."""
        if not isinstance(obj, self.kind.type):
            raise InvalidObject(f"a {self.kind.name} must be a {self.kind.type.__name__}, is {type(obj).__name__}")
        if not obj.metadata.name:
            problem = "Required value: name or generateName is required"
            raise invalid(self.kind, "", "metadata.name", problem)
        self._storage.check(obj)


def _part(obj: Any, name: str) -> Any:
    return getattr(obj, name)


def _with_generated_name(created: T) -> T:
    return with_metadata(created, name=generated_name(created.metadata.generate_name))


def generated_name(begin: str) -> str:
    """Return *begin* with five random characters appended."""
    return begin + "".join(random.choices(_NAME_CHARS, k=_NAME_LENGTH))


#: Phases of pods that have ended.
_ENDED: Final = ("Succeeded", "Failed")
#: A longer grace period would exceed the largest date, seconds.
_MOST_S: Final = 2**31 - 1


def marked(obj: T, now: datetime, requested_s: int | None = None) -> T:
    """Return *obj* with its deletion marked, as it stays until its last finalizer is removed.

    An object that is marked already may only get a shorter grace period. With a grace period of 0 the agent's finalizer
    is removed, unless it is the only one (`has_finalizer` then ignores it); the others stay.

    Args: requested_s: the grace period of a Pod, seconds; None: its own.
    """
    metadata, grace_s = obj.metadata, _grace_s(obj, requested_s)
    since, former_grace_s = metadata.deletion_timestamp, metadata.deletion_grace_period_seconds or 0
    if since is None:
        since = now
    elif requested_s is None or grace_s >= former_grace_s:
        grace_s, since = former_grace_s, since - timedelta(seconds=former_grace_s)
    else:
        since -= timedelta(seconds=former_grace_s)
    return with_metadata(
        obj,
        deletion_timestamp=since + timedelta(seconds=grace_s),
        deletion_grace_period_seconds=grace_s,
        finalizers=(_without_agent(metadata.finalizers) if grace_s == 0 else ()) or metadata.finalizers,
    )


def has_finalizer(obj: HasMetadata) -> bool:
    """Return True if a finalizer prevents the removal of *obj*. The agent's does so only in the grace period."""
    metadata = obj.metadata
    return bool(metadata.finalizers if metadata.deletion_grace_period_seconds else _without_agent(metadata.finalizers))


def _grace_s(obj: HasMetadata, requested_s: int | None) -> int:
    """Source: `registry/core/pod/strategy.go` CheckGracefulDelete."""
    if not isinstance(obj, Pod) or not obj.spec.node_name or obj.status.phase in _ENDED:
        return 0
    grace_s = obj.spec.termination_grace_period_seconds if requested_s is None else requested_s
    return min(grace_s, _MOST_S) if grace_s >= 0 else 1


def _without_agent(finalizers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(finalizer for finalizer in finalizers if finalizer != RUNNING_FINALIZER)


def is_removable(obj: HasMetadata) -> bool:
    """Return True if the object was deleted and has no finalizers left."""
    return obj.metadata.deletion_timestamp is not None and not obj.metadata.finalizers


def check_finalizers(kind: Kind[T], new: T, former: T) -> None:
    """Refuse new finalizers of a deleted object. Raises: InvalidObject: with the API server's message."""
    added = sorted(set(new.metadata.finalizers) - set(former.metadata.finalizers))
    if former.metadata.deletion_timestamp is not None and added:
        names = ", ".join(f'"{name}"' for name in added)
        problem = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{names}}}"
        )
        raise invalid(kind, former.metadata.name, "metadata.finalizers", f"Forbidden: {problem}")
