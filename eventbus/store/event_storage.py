"""Storage of events: of recorded ones in the partition of their object, of written ones in that of their own name.

A written event is replaced as a whole. A change of a recorded event is stored as an overlay: see `stored.lay_over`.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.functions import Functions, Happened, Written, decode_written
from eventbus.broker.keys import ID_CHARS, item_key, partition_of
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import InvalidEvent, PoisonBatch
from eventbus.model.encoding.event_json import as_read_back, to_core
from eventbus.model.encoding.wire import MAX_EVENT_BYTES, pack_batch, pack_event, unpack_wire
from eventbus.model.event import Event, ObjectReference
from eventbus.model.kinds import EVENT, EVENTS_V1, Kind
from eventbus.model.names import is_dns_label
from eventbus.model.validation import validate_written
from eventbus.store.calls import Call, call
from eventbus.store.scan import bounds
from eventbus.store.selection import Selection, encode_was
from eventbus.store.storage import (
    LETTERS,
    ChangeType,
    Place,
    StoredObject,
    already_exists,
    check_size,
    decode_or_none,
    invalid,
    new_version,
    with_metadata,
)
from eventbus.store.stored import COUNTED, View, decode_stored, is_written, lay_over, pack_written, remembering

#: With refreshes, which change only the shown view.
LETTERS_SHOWN: Final[Mapping[str, ChangeType]] = {**LETTERS, "R": ChangeType.MODIFIED}
#: The selectable fields of both API groups, because a watch may use either.
_SELECTABLE: Final = {**EVENTS_V1.fields, **EVENT.fields}
_CONTROLS: Final = re.compile(r"[\0-\x1f\x7f]")
#: Most members read for a name: one, and those of events that were just removed.
_MOST_OF_A_NAME = 4
#: Names looked up in one round trip.
_NAMES_A_ROUND: Final = 500


class EventStorage:
    """Implements `Storage` for events, as *view* has them.

    Args: remember: keep decoded events, some thousand in this process.
    """

    def __init__(
        self, *, kind: Kind[Event], bus: Bus, client: Client, view: View = View.SHOWN, remember: bool = False
    ) -> None:
        self.kind = kind
        self.partitions: Sequence[int] = range(bus.partitions)
        self.letters: Mapping[str, ChangeType] = LETTERS_SHOWN if view is View.SHOWN else LETTERS
        self._bus = bus
        self._client = client
        #: See `Storage.decode`.
        self.decode: Callable[[bytes], Event | None] = (
            remembering(view) if remember else partial(decode_stored, view=view)
        )

    def index(self, partition: int, selection: Selection[Event]) -> tuple[bytes, bytes]:
        """Return the index by object if one object is selected by kind and name, else that by name."""
        # Of core/v1, and of events.k8s.io/v1.
        kind, name = (
            selection.required(f"involvedObject.{field}") or selection.required(f"regarding.{field}")
            for field in ("kind", "name")
        )
        if selection.namespace and kind is not None and name is not None:
            return self.index_about(partition, selection.namespace, kind, name)
        return self._bus.keys[partition].index_name, selection.name_prefix()

    def index_about(self, partition: int, namespace: str, kind: str, name: str) -> tuple[bytes, bytes]:
        """Return the index of the events about one object, its kind in any case, and the prefix of its members."""
        prefix = f"{namespace}/{kind.lower()}/{name}\0".encode("utf-8", "replace")
        return self._bus.keys[partition].index_object, prefix

    def find(self, namespace: str, name: str) -> StoredObject[Event] | None:
        """Find the event written under that name, else one recorded.

        Redis: GET and ZRANGE on all partitions, then GET."""
        written = self.written_place(namespace, name)
        low, high = bounds(f"{namespace}/{name}\0".encode("utf-8", "replace"))
        pipe: Any = self._client.pipeline(transaction=False)
        pipe.get(self._bus.keys[written.partition].object + written.key)
        for keys in self._bus.keys:
            pipe.execute_command("ZRANGE", keys.index_name, low, high, "BYLEX", "LIMIT", 0, _MOST_OF_A_NAME)
        with redis_errors():
            packed, *named = pipe.execute()
        if stored := self._stored(written, packed):
            return stored
        for partition, members in enumerate(named):
            for member in members:
                place = Place(partition, member[-ID_CHARS:])
                with redis_errors():
                    packed = self._client.get(self._bus.keys[partition].object + place.key)
                if stored := self._stored(place, packed):
                    return stored
        return None

    def find_written(self, names: Sequence[tuple[str, str]]) -> list[StoredObject[Event] | None]:
        """Find the events that are written under these namespaces and names. Redis: GET of each in one round trip."""
        places = [self.written_place(namespace, name) for namespace, name in names]
        pipe: Any = self._client.pipeline(transaction=False)
        for place in places:
            pipe.get(self._bus.keys[place.partition].object + place.key)
        with redis_errors():
            found = pipe.execute() if places else []
        return [self._stored(place, packed) for place, packed in zip(places, found, strict=True)]

    def uids(self, partition: int, names: Sequence[tuple[str, str]]) -> set[str]:
        """Return the uids of all events of *partition* with one of these namespaces and names.

        Redis: ZRANGE and GET, in two round trips for 500 of them.
        """
        keys, uids = self._bus.keys[partition], set[str]()
        for start in range(0, len(names), _NAMES_A_ROUND):
            pipe: Any = self._client.pipeline(transaction=False)
            for namespace, name in names[start : start + _NAMES_A_ROUND]:
                low, high = bounds(f"{namespace}/{name}\0".encode("utf-8", "replace"))
                pipe.execute_command("ZRANGE", keys.index_name, low, high, "BYLEX", "LIMIT", 0, _MOST_OF_A_NAME)
            with redis_errors():
                members = [member for members in pipe.execute() for member in members]
            pipe = self._client.pipeline(transaction=False)
            for member in members:
                pipe.get(keys.object + member[-ID_CHARS:])
            with redis_errors():
                stored = pipe.execute() if members else []
            for member, packed in zip(members, stored, strict=True):
                if stored_event := self._stored(Place(partition, member[-ID_CHARS:]), packed):
                    uids.add(stored_event.object.metadata.uid)
        return uids

    def check(self, event: Event) -> None:
        """Check name, namespace, fields and packed size. Raises: InvalidObject."""
        name, namespace = event.metadata.name, event.metadata.namespace
        field, problem = "", ""
        if name in (".", "..") or "/" in name or "%" in name:
            field, problem = "metadata.name", f'Invalid value: "{name}": may not be "." or ".." nor contain "/" or "%"'
        elif _CONTROLS.search(name):
            field, problem = "metadata.name", "Invalid value: may not contain control characters"
        elif not namespace:
            field, problem = "metadata.namespace", "Required value"
        elif not is_dns_label(namespace):
            field, problem = "metadata.namespace", f'Invalid value: "{namespace}"'
        try:
            validate_written(event)
            copied = pack_event(event)
            unpack_wire(copied)
        except InvalidEvent as error:
            if not problem:
                field, problem = error.field, error.problem
        except PoisonBatch:
            if not problem:
                problem = f"it is too large: a packed event has at most {MAX_EVENT_BYTES} bytes and 64 labels"
        if problem:
            raise invalid(self.kind, name, field, problem)

    def as_stored(self, event: Event) -> Event:
        try:
            return as_read_back(event)
        except InvalidEvent as error:
            raise invalid(self.kind, event.metadata.name, error.field, error.problem) from error

    def new_uid(self) -> str:
        # The form of a recorded event's uid, so that its copy has the same. It need not be secret, and reading the
        # system's random numbers would release the interpreter's lock.
        return f"{random.getrandbits(64):016x}:1"

    def create(self, event: Event) -> Event:
        """Store a new event.

        If an event of the same name is recorded at the same moment, there may be two. `find` returns this one."""
        metadata = event.metadata
        # With one partition, `put_client_event` checks the name.
        if self._bus.partitions > 1 and self.find(metadata.namespace, metadata.name) is not None:
            raise already_exists(self.kind, metadata.name)
        partition = self.written_place(metadata.namespace, metadata.name).partition
        return self.creation(event).send(self._bus, self._client, partition)

    def creation(self, event: Event) -> Call[Event]:
        """Return the call that stores a new event, for a bus of one partition. With several, use `create`."""
        place = self.written_place(event.metadata.namespace, event.metadata.name)
        return self._write(place, event, "", copy=pack_alone(event), happened=_occurrences(event, event.times_seen))

    def replace(self, former: StoredObject[Event], new: Event) -> Event:
        """Store *new* in the place of *former*: a written event whole, a recorded one as overlay. Raises: Conflict."""
        # A change of metadata alone is not copied to the stream.
        copy = pack_alone(new) if _counted(self.as_stored(former.object)) != _counted(new) else b""
        version = former.object.metadata.resource_version
        was = encode_was(_SELECTABLE, former.object, new)
        if is_written(former.packed):
            happened = _occurrences(new, max(0, new.times_seen - former.object.times_seen))
            write = self._write(former.place, new, version, copy=copy, was=was, happened=happened)
            return write.send(self._bus, self._client, former.place.partition)
        if former.object.involved_object != new.involved_object:
            problem = "Invalid value: field is immutable in an event that was recorded"
            raise invalid(self.kind, new.metadata.name, "involvedObject", problem)
        over = lay_over(former.packed, new)
        copy = copy if over.once else b""
        check_size(over.lasting + over.once)
        functions, options, key = self._functions(former.place), self._bus.options, former.place.key
        written = self._call(
            former.place, lambda: functions.overlay_event(options, key, version, over.lasting, over.once, copy, was)
        )
        return with_metadata(over.event, resource_version=new_version(self.kind, new.metadata.name, written))

    def remove(self, former: StoredObject[Event], version: str) -> str:
        functions, options, key = self._functions(former.place), self._bus.options, former.place.key
        written = self._call(former.place, lambda: functions.remove_event(options, key, version))
        return new_version(self.kind, former.object.metadata.name, written)

    def _write(
        self, place: Place, event: Event, version: str, *, copy: bytes, happened: Happened, was: bytes = b""
    ) -> Call[Event]:
        packed = pack_written(event)
        check_size(packed)
        functions, options = self._functions(place), self._bus.options

        def result(reply: Any) -> Event:
            return with_metadata(
                event, resource_version=new_version(self.kind, event.metadata.name, decode_written(reply))
            )

        return Call(
            lambda: functions.put_client_event_command(
                options, place.key, version, packed, copy, was, happened=happened
            ),
            result,
        )

    def _call(self, place: Place, function: Callable[[], Written]) -> Written:
        return call(self._bus, self._client, place.partition, function)

    def _functions(self, place: Place) -> Functions:
        return self._bus.functions(self._client, place.partition)

    def written_place(self, namespace: str, name: str) -> Place:
        """Return the place of a written event with that name."""
        reference = ObjectReference(kind="Event", namespace=namespace, name=name)
        return Place(partition_of(reference, self._bus.partitions), item_key(namespace, name))

    def _stored(self, place: Place, packed: bytes | None) -> StoredObject[Event] | None:
        event = decode_or_none(self, packed)
        return None if event is None or packed is None else StoredObject(place, event, packed)


def pack_alone(event: Event) -> bytes:
    """Pack a batch of this one event, under its uid, for readers of the stream and for the dead letter."""
    producer, _, sequence = event.metadata.uid.rpartition(":")
    # Aggregates and reports, which the correlator makes, have uids of another form.
    numbered = producer and sequence.isdecimal()
    return pack_batch(
        producer if numbered else event.metadata.uid, int(sequence) if numbered else 1, [pack_event(event)]
    )


def _occurrences(event: Event, times: int) -> Happened:
    """Return the occurrences to be counted: in the current minute, because a client may send any time."""
    source = event.source.component or event.reporting_component
    words = (event.metadata.namespace, event.involved_object.kind, event.type, event.reason, source)
    return Happened(times, int(time.time()) // 60, "\0".join(words))  # stored text contains no NUL


def _counted(event: Event) -> dict[str, Any]:
    """Return the fields of an event that a repeat changes."""
    return {key: value for key, value in to_core(event).items() if key in COUNTED and value is not None}
