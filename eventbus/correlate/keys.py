"""The correlation keys of events: events with the same key share a count, an aggregate or a token bucket.

The rules themselves are in `broker/lua/correlation.lua`, next to the state they change. This module implements
client-go's key functions (reference: tools/record/events_cache.go), with one departure: client-go joins the fields
without a separator, so that its keys collide; here every field is prefixed with its length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, Final

import msgspec

from eventbus.broker.functions import CorrelateCall, pack_argument
from eventbus.broker.keys import ID_CHARS, Keys, id_text
from eventbus.errors import PoisonBatch
from eventbus.model.encoding.wire import (
    STRIPPED_END,
    STRIPPED_HEAD,
    USUAL_HEAD,
    Batch,
    PackedUid,
    WireEvent,
    last_of_repeat,
    pack_array,
    pack_uid,
    stored_body,
    unpack_wire,
)
from eventbus.settings import AggregateKey, Options, SpamKey

#: In `correlate_and_store`, an event with a new key costs about eight times as much as one with a known key. A call
#: of this weight takes almost 2 ms: 71 distinct events, or 632 of which none equals the one before. A batch is never
#: split.
KEY_WEIGHT = 8
MAX_CALL_WEIGHT = 640

#: Bytes of the tag of a set of similar messages. A source and object have few sets.
TAG_BYTES = 8

#: `Subject.exempt` of events that form a series: neither similar events nor the spam filter matter to them.
IN_SERIES = 2

#: Longer messages are not cached.
MAX_CACHED_CHARS = 1_024
#: Longer bodies of series are not cached.
MAX_CACHED_BYTES = 2_048


class Subject(msgspec.Struct, frozen=True):
    """The key of all events with the same source, object, type and reason. Keys are ids."""

    spam: bytes  #: of the state of its source and object, which other types and reasons share
    similar: bytes  #: the tag of its set of similar messages in this state
    aggregate_object: bytes
    suppressed_object: bytes
    event_prefix: Any  #: a hash, to be updated with the message
    exempt: int  #: 1: from the spam filter; IN_SERIES
    namespace: str
    object_name: str
    about: str  #: /kind/name of its object, as in the index
    dimensions: str


class KeyedEvent(msgspec.Struct, gc=False):
    """An event, its packed bytes, and the keys it is counted under: an id, and 8 bytes among similar ones.

    *local* is empty in a series: the set of its subject names the event that counts it. With *lasts* it stands for a
    run of events that differ only in name, times and uid.
    """

    uid: PackedUid
    event: WireEvent
    body: bytes  #: as it is stored, without the fields that are stored separately
    subject: Subject
    key: bytes
    local: bytes
    lasts: list[int] | None = None  #: the last times of the events of the run, µs; they do not decrease


class OpenedBatch(msgspec.Struct, frozen=True):
    """The events of a batch, or of a part of it, with their keys."""

    events: list[KeyedEvent]
    burials: list[tuple[str, int, bytes]]  #: of each unreadable event: cause, deaths, a batch with only this event
    unfolded: Callable[[], OpenedBatch]  #: returns the same batch without runs


class Correlator:
    """Computes the keys of events by the options of the bus. Not thread-safe: each worker thread has its own."""

    def __init__(self, options: Options) -> None:
        self._by_field_path = options.aggregate_key is AggregateKey.REASON_FIELD_PATH
        self._spam_by_type = options.spam_key is not SpamKey.OBJECT
        self._spam_by_reason = options.spam_key is SpamKey.OBJECT_TYPE_REASON
        self._exempt = (options.exempt_namespaces, options.exempt_types, options.exempt_reasons)
        #: A repeat of an object saves two hashes.
        self._cached = lru_cache(maxsize=16_384)(self._make_cached)
        self._cached_series = lru_cache(maxsize=16_384)(_CachedSeries)
        self._latest = _NONE  #: the keys of the latest event that is in no series

    def open_events(self, batch: Batch, positions: Sequence[int], *, fold: bool = True) -> OpenedBatch:
        """Unpack the events at *positions*. A run of equal events becomes one, unless not *fold*."""
        events: list[KeyedEvent] = []
        burials: list[tuple[str, int, bytes]] = []
        run: KeyedEvent | None = None  # the latest event, if others may join it
        for position in positions:
            packed = batch.events[position]
            latest = self._latest
            # Compared here, because most calls would find another message.
            if run and packed[latest.place] == latest.message_bytes and _joins(run, packed, latest):
                continue
            try:
                event = unpack_wire(packed)
            except PoisonBatch as poison:
                burials.append((poison.cause, 0, batch.alone(position)))
                continue
            keyed = self.keyed(pack_uid(batch.producer, batch.first + position), event, packed)
            events.append(keyed)
            run = keyed if fold and keyed.local else None
        return OpenedBatch(events, burials, partial(self.open_events, batch, positions, fold=False))

    def keyed(self, uid: PackedUid, event: WireEvent, packed: bytes) -> KeyedEvent:
        """Return the event with its keys. Nothing is hashed if it repeats its subject's last message."""
        if event.in_series and event.event_us is not None:
            series = self._cached_series(
                event.namespace,
                event.involved_object,
                event.reason,
                event.type,
                event.reporter,
                event.action,
                event.related or (),
            )
            return KeyedEvent(uid, event, series.body_of(event), series.subject, series.subject.spam, b"")
        cached = self._cached(
            event.namespace, event.involved_object, event.reason, event.type, event.source, event.reporter
        )
        body = cached.body
        if not (packed[cached.place] == cached.message_bytes and packed[0] == USUAL_HEAD and event.count == 1):
            if cached.message != event.message:
                cached.remember(event.message)
            body = cached.remember_body(packed, event)
        self._latest = cached
        return KeyedEvent(uid, event, body, cached.subject, cached.key, cached.local)

    def _make_cached(self, *subject_fields: Any) -> _CachedKeys:
        return _CachedKeys(self._make_subject(*subject_fields))

    def _make_subject(
        self,
        namespace: str,
        reference: tuple[str, ...],
        reason: str,
        kind: str,
        source: tuple[str, str],
        reporter: tuple[str, str],
    ) -> Subject:
        object_kind, object_namespace, name, uid, api_version, _, field_path = (
            *reference,
            *("",) * (7 - len(reference)),
        )
        component, host = source
        source_object = (component, host, object_kind, object_namespace, name)
        event_prefix = blake2b(
            pack_array((*source_object, field_path, uid, api_version, kind, reason)),
            digest_size=11,
            person=b"event",
        )
        aggregate: tuple[str, ...] = (*source_object, uid, api_version, kind, reason, *reporter)
        if self._by_field_path:
            aggregate += (field_path,)
        spam: tuple[str, ...] = (*source_object, uid, api_version)
        if self._spam_by_type:
            spam += (kind,)
        if self._spam_by_reason:
            spam += (reason,)
        namespaces, types, reasons = self._exempt
        # Packed, each part has its length before it, so that no two different tuples give the same bytes.
        digest = blake2b(pack_array(aggregate), digest_size=TAG_BYTES + 11, person=b"aggregate").digest()
        both = id_text(blake2b(pack_array(spam), digest_size=21, person=b"spam").digest())
        return Subject(
            spam=both[:ID_CHARS],
            similar=digest[:TAG_BYTES],
            aggregate_object=id_text(digest[TAG_BYTES:])[:ID_CHARS],
            suppressed_object=both[ID_CHARS:],
            event_prefix=event_prefix,
            exempt=int(namespace in namespaces or kind in types or reason in reasons),
            namespace=namespace,
            object_name=name,
            about=f"/{object_kind.lower()}/{name}",
            dimensions=f"{component}\0{object_kind}\0{kind}\0{reason}",
        )


class _CachedKeys:
    """A subject, and the keys and the body of its last message: a hot object repeats it."""

    __slots__ = ("body", "key", "local", "message", "message_bytes", "namespace", "place", "subject")

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.namespace = pack_array(subject.namespace)
        self.message: str | None = None
        self.key = self.local = self.body = b""
        #: A packed event of the usual shape with these bytes at `place` repeats the last message. None: unknown.
        self.message_bytes: bytes | None = None
        self.place = slice(0, 0)

    def remember(self, message: str) -> None:
        message_bytes = message.encode("utf-8", "surrogatepass")
        digest = self.subject.event_prefix.copy()
        digest.update(message_bytes)
        self.key = id_text(digest.digest())[:ID_CHARS]
        # Similar events differ in their message.
        self.local = blake2b(message_bytes, digest_size=8).digest()
        self.message = message if len(message) <= MAX_CACHED_CHARS else None

    def remember_body(self, packed: bytes, event: WireEvent) -> bytes:
        """Return the body of *packed*, and keep it if the message is kept."""
        body = stored_body(packed, event)
        self.body, self.message_bytes = b"", None
        if body is not packed and self.message is not None:
            self.body, self.message_bytes = body, body[STRIPPED_HEAD:]
            self.place = slice(-STRIPPED_END - len(self.message_bytes), -STRIPPED_END)
        return body


def _joins(run: KeyedEvent, packed: bytes, latest: _CachedKeys) -> bool:
    """Add an event with the *latest* message to the *run* that it repeats. False: it does not repeat it."""
    last_us = last_of_repeat(packed, latest.namespace, len(packed) + latest.place.start)
    if run.lasts is None:
        first_us = run.event.last_us
        if last_us is None or first_us is None or last_us < first_us:
            return False
        run.lasts = [first_us, last_us]
        return True
    if last_us is None or last_us < run.lasts[-1]:
        return False
    run.lasts.append(last_us)
    return True


#: No event has its body.
_NONE: Final = _CachedKeys(
    Subject(
        spam=b"",
        similar=b"",
        aggregate_object=b"",
        suppressed_object=b"",
        event_prefix=None,
        exempt=0,
        namespace="",
        object_name="",
        about="",
        dimensions="",
    )
)


class _CachedSeries:
    """The subject of a series, and the body of its last message. A body has no name and time: these are stored apart.

    Source: client-go tools/events, getKey. The message, name and annotations of an event are no part of it.
    """

    __slots__ = ("_body", "_fields", "subject")

    def __init__(
        self,
        namespace: str,
        reference: tuple[str, ...],
        reason: str,
        kind: str,
        reporter: tuple[str, str],
        action: str,
        related: tuple[str, ...],
    ) -> None:
        parts = (pack_array(reference), pack_array(related), namespace, reason, kind, *reporter, action)
        key = id_text(blake2b(pack_array(parts), digest_size=11, person=b"series").digest())[:ID_CHARS]
        object_kind, _, name, *_ = (*reference, "", "", "")
        self.subject = Subject(
            spam=key,
            similar=b"",
            aggregate_object=key,
            suppressed_object=key,
            event_prefix=None,
            exempt=IN_SERIES,
            namespace=namespace,
            object_name=name,
            about=f"/{object_kind.lower()}/{name}",
            dimensions=f"{reporter[0]}\0{object_kind}\0{kind}\0{reason}",
        )
        self._fields: tuple[Any, ...] | None = None
        self._body = b""

    def body_of(self, event: WireEvent) -> bytes:
        """Return the body of *event*, and keep it for the next one unless it is long."""
        fields = (event.message, event.annotations, event.labels, event.source)
        if fields == self._fields:
            return self._body
        body = pack_array(msgspec.structs.replace(event, name="", namespace="", event_us=None, in_series=0))
        if len(body) <= MAX_CACHED_BYTES:
            self._fields, self._body = fields, body
        return body


class CallBuilder:
    """Collects decoded batches until a call has the weight `MAX_CALL_WEIGHT`. A run of equal events weighs as one."""

    def __init__(self, keys: Keys, options: Options) -> None:
        self._keys = keys
        self._by_minute = options.occurrences_s > 0
        # By key: its number in the call, from 1, in the order of first use.
        self._sources: dict[bytes, int] = {}
        self._events: dict[bytes, int] = {}
        self._other_objects: dict[bytes, int] = {}
        self._series: set[bytes] = set()
        self._minutes: dict[bytes, int] = {}
        self._subjects: dict[tuple[bytes, str], int] = {}
        self._bodies: dict[bytes, int] = {}
        self._locals: list[bytes] = []
        self._subject_row: list[Any] = []
        self._batches: list[bytes] = []
        #: Each batch without its rows, and a function that returns its events without runs.
        self._added: list[tuple[tuple[Any, ...], Callable[[], OpenedBatch]]] = []
        self._burials: list[int] = []
        self._rows = 0
        self.events = 0

    def __len__(self) -> int:
        return len(self._batches)

    def fits(self, events: Sequence[KeyedEvent]) -> bool:
        """Return True if a batch with these events keeps the call within its bounds; the first batch always does."""
        if not self._batches:
            return True
        keys = len(self._events.keys() | self._series | {event.key for event in events})
        return keys * KEY_WEIGHT + self._rows + len(events) <= MAX_CALL_WEIGHT

    def add(
        self,
        entry: bytes,
        clock_ms: int,
        opened: OpenedBatch,
        *,
        start: int = 0,
        next_position: int | None = None,
    ) -> None:
        """Add a batch, or its part from *start*."""
        position = "" if next_position is None else str(next_position)
        minute = _number(self._minutes, b"%d" % (clock_ms // 60_000)) if self._by_minute else 0
        head = (entry, clock_ms, position, opened.burials, start, minute)
        self._batches.append(pack_argument((*head, self._rows_of(opened.events))))
        self._added.append((head, opened.unfolded))
        self._burials.append(len(opened.burials))
        self._rows += len(opened.events)
        self.events += sum([1 if event.lasts is None else len(event.lasts) for event in opened.events])

    def call(self) -> CorrelateCall:
        """Return the call, ready to be sent."""
        keys = self._keys
        groups = (
            (keys.correlation, self._sources),
            (keys.object, self._events),
            (keys.object, self._other_objects),
            (keys.occurrences, self._minutes),
        )
        counts = [len(numbers) for _, numbers in groups[:3]]
        return CorrelateCall(
            [prefix + key for prefix, numbers in groups for key in numbers],
            pack_argument((*counts, self._locals, self._subject_row)),
            list(self._bodies),
            self._batches,
            self._burials,
            self._unfolded_batches,
        )

    def _unfolded_batches(self) -> list[bytes]:
        """Pack the batches again, with a row for each event."""
        return [pack_argument((*head, self._rows_of(unfolded().events))) for head, unfolded in self._added]

    def _rows_of(self, events: Iterable[KeyedEvent]) -> list[Any]:
        rows: list[Any] = []
        for event in events:
            self._add_event(rows, event)
        return rows

    def _add_event(self, row: list[Any], keyed: KeyedEvent) -> None:
        event, numbers, bodies = keyed.event, self._events, self._bodies
        first: Any = event.first_us
        last: Any = event.last_us if keyed.lasts is None else struct.pack(f">{len(keyed.lasts)}Q", *keyed.lasts)
        subject = self._subjects.get((keyed.subject.aggregate_object, keyed.subject.namespace))
        if subject is None:
            subject = self._add_subject(keyed.subject)
        key = numbers.get(keyed.key)
        if key is None and not keyed.local:
            self._series.add(keyed.key)
            key, first = 0, event.event_us
        elif key is None:
            key = numbers[keyed.key] = len(numbers) + 1
            self._locals.append(keyed.local)
        body = bodies.get(keyed.body)
        if body is None:
            body = bodies[keyed.body] = len(bodies) + 1
        row += (
            subject,
            key,
            body,
            event.name,
            "" if first is None else first,
            "" if last is None else last,
            event.count,
            keyed.uid,
        )

    def _add_subject(self, subject: Subject) -> int:
        self._subject_row += (
            _number(self._sources, subject.spam),
            subject.similar,
            _number(self._other_objects, subject.aggregate_object),
            _number(self._other_objects, subject.suppressed_object),
            subject.exempt,
            subject.namespace,
            subject.object_name,
            subject.about,
            subject.dimensions,
        )
        number = self._subjects[subject.aggregate_object, subject.namespace] = len(self._subjects) + 1
        return number


def _number(numbers: dict[bytes, int], key: bytes) -> int:
    return numbers.setdefault(key, len(numbers) + 1)
