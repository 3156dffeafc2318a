"""The correlator's keys: which events share a count, an aggregate, a token bucket.

The rules themselves are in `broker/lua/record.lua`, next to the state they change. This module says what client-go's
key functions say (reference: tools/record/events_cache.go), with one departure: client-go joins the fields with
nothing between them, so that its keys collide; here every field carries its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgpack
import msgspec

from eventbus.broker.functions import RecordCall, pack_argument
from eventbus.broker.keys import Keys
from eventbus.encoding.wire import WireEvent
from eventbus.event import EventType
from eventbus.settings import AggregateKey, Options, SpamKey

SUPPRESSED_REASON = "EventsSuppressed"

#: A new correlation key costs record about eight times what one more event of a known key does, and a call of this
#: weight takes a little under 2 ms: 71 distinct events, or 632 of one hot object. A batch is never split.
KEY_WEIGHT = 8
MAX_CALL_WEIGHT = 640

#: A longer message is not kept with its subject, of which there are many in the cache.
MAX_HEARD_CHARS = 1_024


class Subject(msgspec.Struct, frozen=True):
    """The key of all events with the same source, object, type and reason. Digests are 32 hex."""

    aggregate: bytes
    spam: bytes
    aggregate_object: bytes
    suppressed_object: bytes
    event_prefix: Any  #: a hash to be continued with the message
    exempt: int
    namespace: str
    object_name: str
    object_index: str
    dimensions: str
    suppressed_body: bytes


class KeyedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event, its packed bytes, and the keys it is counted under: 32 hex, and 8 bytes among similar ones."""

    uid: str
    event: WireEvent
    packed: bytes
    subject: Subject
    key: bytes
    local: bytes


class Correlator:
    """Gives events their keys, by the options of the bus. Not thread-safe; one a worker thread."""

    def __init__(self, options: Options) -> None:
        self._options = options
        #: Objects repeat: the cache makes a repeat cost two hashes less. Bounded, since objects are not.
        self._cached = lru_cache(maxsize=16_384)(self._make_cached)

    def keyed(self, uid: str, event: WireEvent, packed: bytes) -> KeyedEvent:
        """Return the event with its keys: nothing is hashed if it repeats what was last said of its subject."""
        cached = self._cached(
            event.namespace, event.involved_object, event.reason, event.type, event.source, event.reporter
        )
        if cached.message != event.message:
            cached.remember(event.message)
        return KeyedEvent(uid, event, packed, cached.subject, cached.key, cached.local)

    def _make_cached(self, *said: Any) -> _CachedKeys:
        return _CachedKeys(self._make_subject(*said))

    def _make_subject(
        self,
        namespace: str,
        reference: tuple[str, ...],
        reason: str,
        kind: str,
        source: tuple[str, str],
        reporter: tuple[str, str],
    ) -> Subject:
        options = self._options
        object_kind, object_namespace, name, uid, api_version, _, field_path = (
            *reference,
            *("",) * (7 - len(reference)),
        )
        who = (*source, object_kind, object_namespace, name)
        event_prefix = blake2b(
            _pack((*who, field_path, uid, api_version, kind, reason)), digest_size=16, person=b"event"
        )
        aggregate: tuple[str, ...] = (*who, uid, api_version, kind, reason, *reporter)
        if options.aggregate_key is AggregateKey.REASON_FIELD_PATH:
            aggregate += (field_path,)
        spam: tuple[str, ...] = (*who, uid, api_version)
        if options.spam_key is not SpamKey.OBJECT:
            spam += (kind,)
        if options.spam_key is SpamKey.OBJECT_TYPE_REASON:
            spam += (reason,)
        similar_key, aggregate_object = _two_keys(b"aggregate", aggregate)
        spam_key, suppressed_object = _two_keys(b"spam", spam)
        return Subject(
            aggregate=similar_key,
            spam=spam_key,
            aggregate_object=aggregate_object,
            suppressed_object=suppressed_object,
            event_prefix=event_prefix,
            exempt=int(
                namespace in options.exempt_namespaces
                or kind in options.exempt_types
                or reason in options.exempt_reasons
            ),
            namespace=namespace,
            object_name=name,
            object_index=f"{namespace}/{object_kind.lower()}/{name}",
            dimensions="\0".join((source[0], object_kind, kind, reason)),
            suppressed_body=self._suppressed_body(namespace, reference, kind, source, reporter),
        )

    def _suppressed_body(
        self, namespace: str, reference: tuple[str, ...], kind: str, source: tuple[str, str], reporter: tuple[str, str]
    ) -> bytes:
        options = self._options
        then = f"one every {round(1 / options.qps, 3):g} s" if options.qps else "none"
        message = f"events held back as spam (burst {options.burst}, then {then}); count says how many"
        event_type = kind if options.spam_key is not SpamKey.OBJECT else EventType.NORMAL.value
        own = reporter if reporter != source else (None, None)
        return pack_argument(
            ["", namespace, reference[:6], SUPPRESSED_REASON, message, event_type, source, None, None, 1, *own]
        )


class _CachedKeys:
    """A subject, and the keys of its last message: a hot object says the same again and again."""

    __slots__ = ("key", "local", "message", "subject")

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.message: str | None = None
        self.key = self.local = b""

    def remember(self, message: str) -> None:
        said = message.encode("utf-8", "surrogatepass")
        digest = self.subject.event_prefix.copy()
        digest.update(said)
        self.key = digest.hexdigest().encode()
        # What is distinct among similar events is their message.
        self.local = blake2b(said, digest_size=8).digest()
        self.message = message if len(message) <= MAX_HEARD_CHARS else None


class CallBuilder:
    """Collects opened batches until a call of record is as large as the batch rule lets it be."""

    def __init__(self, keys: Keys, options: Options) -> None:
        self._keys = keys
        self._by_minute = options.occurrences_s > 0
        self._index: dict[bytes, int] = {}
        self._subjects: dict[tuple[bytes, str], int] = {}
        self._subject_rows: list[tuple[Any, ...]] = []
        self._batches: list[bytes] = []
        self._event_keys: set[bytes] = set()
        self.events = 0

    def __len__(self) -> int:
        return len(self._batches)

    def fits(self, events: Sequence[KeyedEvent]) -> bool:
        """Return True if a batch with these events keeps the call within its bounds; the first batch always does."""
        if not self._batches:
            return True
        keys = len(self._event_keys | {event.key for event in events})
        return keys * KEY_WEIGHT + self.events + len(events) <= MAX_CALL_WEIGHT

    def add(
        self,
        entry: bytes,
        clock_ms: int,
        events: Iterable[KeyedEvent],
        burials: Iterable[tuple[str, int, bytes]] = (),
        *,
        start: int = 0,
        next_position: int | None = None,
    ) -> None:
        """Add one batch, or a part that begins at *start*: events, and (cause, deaths, bytes) of what is buried."""
        rows = [self._row(event) for event in events]
        self.events += len(rows)
        position = "" if next_position is None else str(next_position)
        minute = self._key_number(self._keys.occurrences + b"%d" % (clock_ms // 60_000)) if self._by_minute else 0
        self._batches.append(pack_argument([entry, clock_ms, position, rows, list(burials), start, minute]))

    def call(self) -> RecordCall:
        """Return the call, ready to be sent."""
        return RecordCall(list(self._index), pack_argument(self._subject_rows), self._batches)

    def _row(self, keyed: KeyedEvent) -> tuple[Any, ...]:
        event = keyed.event
        self._event_keys.add(keyed.key)
        return (
            self._subject_number(keyed.subject),
            self._key_number(self._keys.object + keyed.key),
            keyed.local,
            event.name,
            "" if event.first_us is None else event.first_us,
            "" if event.last_us is None else event.last_us,
            event.count,
            keyed.uid,
            keyed.packed,
        )

    def _subject_number(self, subject: Subject) -> int:
        identity = (subject.aggregate, subject.namespace)
        number = self._subjects.get(identity)
        if number is None:
            keys = self._keys
            self._subject_rows.append(
                (
                    self._key_number(keys.aggregate + subject.aggregate),
                    self._key_number(keys.spam + subject.spam),
                    self._key_number(keys.object + subject.aggregate_object),
                    self._key_number(keys.object + subject.suppressed_object),
                    subject.exempt,
                    subject.namespace,
                    subject.object_name,
                    subject.object_index,
                    subject.dimensions,
                    subject.suppressed_body,
                )
            )
            number = self._subjects[identity] = len(self._subject_rows)
        return number

    def _key_number(self, key: bytes) -> int:
        return self._index.setdefault(key, len(self._index) + 1)


#: msgpack puts the length before every field, so that no two different tuples pack to the same bytes.
_pack = msgpack.Packer(unicode_errors="surrogatepass").pack


def _two_keys(person: bytes, parts: tuple[str, ...]) -> tuple[bytes, bytes]:
    """Compute two keys of 32 hex: for the state that *parts* share, and for the object that is written for it."""
    digest = blake2b(_pack(parts), digest_size=32, person=person).hexdigest().encode()
    return digest[:32], digest[32:]
