"""The correlator's rules over plain dicts: aggregate, observe, spam filter, write.

The second implementation that conformance and property tests compare with; the product never imports it.
It differs from client-go on purpose (docs/correlation.md): keys are tuples and cannot collide, nothing is evicted, the
newcomer among local keys is dropped, a name taken by another event gets a suffix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from eventbus.model.event import Event, ObjectMeta
from eventbus.settings import Options, SpamKey
from tests.conformance.correlation_keys import Key, aggregate_key, event_key, source_and_object
from tests.conformance.driver import SKIPPED, Action, Batch, Decision, Patch, StoredEvent

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Similar:
    """The messages that count on their own, and when the latest similar event came."""

    last_ms: int
    messages: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Seen:
    """The memory of a correlation key. A count of 0 is as good as never seen."""

    count: int
    namespace: str  #: ours; client-go goes on under the namespace of each repeat, with an event in every one
    name: str
    first: datetime | None


@dataclass(frozen=True)
class Bucket:
    """Tokens left after the last accepted event."""

    tokens: float
    last_ms: int


class Correlator:
    """One event at a time. Each rule is a method, so that a test can break one.

    Source: client-go-semantics §4. `options.qps` is already a widened float32.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.similar: dict[tuple[Key, Key], Similar] = {}
        self.seen: dict[Key, Seen] = {}
        self.buckets: dict[Key, Bucket] = {}
        self.store: dict[Key, Event] = {}  #: one object per correlation key, as it stands in the store
        self.aside: set[Key] = set()  #: stored, but what is remembered of the key is another event, not yet stored
        self.named: dict[tuple[str, str], set[Key]] = {}  #: namespace and name → whom client-go would call so

    def record(self, at_ms: int, event: Event) -> Decision:
        """Decide on *event* at the clock *at_ms* and write the result."""
        incoming = event
        key, event, aggregated = self.aggregate(at_ms, event)
        event, patch = self.observe(key, event)
        if not self.accept(at_ms, incoming):
            return SKIPPED
        return self.write(key, event, patch, aggregated)

    # -- aggregate

    def aggregate(self, at_ms: int, event: Event) -> tuple[Key, Event, bool]:
        """The correlation key, and the event or what replaces it."""
        key = aggregate_key(event, self.options.aggregate_key)
        place = (self.spam_key(event), key)  # with the bucket: an option that changes this key begins both again
        similar = self.similar.get(place)
        if similar is None or self.starts_anew(at_ms, similar):
            similar = self.similar[place] = Similar(at_ms)
        similar.last_ms = at_ms
        is_new = event.message not in similar.messages
        similar.messages.add(event.message)
        if not self.is_full(similar.messages):
            return event_key(event), event, False
        if is_new:
            similar.messages.discard(event.message)
        return key, self.combined(at_ms, event), True

    def starts_anew(self, at_ms: int, similar: Similar) -> bool:
        """Exactly the interval is not yet too long."""
        return at_ms - similar.last_ms > self.options.max_interval_s * 1000

    def is_full(self, messages: set[str]) -> bool:
        """The event that makes the set this large is the first aggregate."""
        return len(messages) >= self.options.max_events

    def combined(self, at_ms: int, event: Event) -> Event:
        """The aggregate's event: fresh, with nothing of labels, annotations, reporting, action, related, series."""
        now = time_of(at_ms)
        return Event(
            metadata=ObjectMeta(name=generated_name(event, at_ms), namespace=event.metadata.namespace),
            involved_object=event.involved_object,
            reason=event.reason,
            message=self.options.aggregate_message + event.message,
            source=event.source,
            first_timestamp=now,
            last_timestamp=now,
            count=1,
            type=event.type,
        )

    # -- observe

    def observe(self, key: Key, event: Event) -> tuple[Event, Patch | None]:
        """The event with its running count. Remembered whatever the spam filter says afterwards."""
        patch = None
        last = self.seen.get(key)
        # A count is unsigned there: -1 is a very large number of times, so the next one is 0.
        if last is not None and last.count != 0:
            event = msgspec.structs.replace(
                event,
                metadata=msgspec.structs.replace(event.metadata, namespace=last.namespace, name=last.name),
                first_timestamp=last.first,
                count=int32(last.count + 1),
            )
            patch = Patch(event.count, event.last_timestamp, event.message)
        else:
            # What is stored under the key is not what is remembered from now on. It stays until that gets through.
            self.aside.add(key)
            self.named.setdefault((event.metadata.namespace, event.metadata.name), set()).add(key)
        self.seen[key] = seen(event)
        return event, patch

    # -- spam filter

    def accept(self, at_ms: int, event: Event) -> bool:
        """Take a token if there is one; the exempt neither need nor take one."""
        if self.is_exempt(event):
            return True
        key = self.spam_key(event)
        bucket = self.buckets.get(key) or Bucket(float(self.options.burst), at_ms)
        elapsed_ms = max(0, at_ms - bucket.last_ms)
        seconds = elapsed_ms // 1000 + (elapsed_ms % 1000) * 1_000_000 / 1e9
        tokens = min(bucket.tokens + seconds * self.options.qps, float(self.options.burst)) - 1
        if self.options.burst < 1 or (tokens < 0 and self.wait_ns(-tokens) > 0):
            return False
        self.buckets[key] = Bucket(tokens, at_ms)
        return True

    def wait_ns(self, tokens: float) -> float:
        """Return how long *tokens* take to come, cut to whole nanoseconds; too little time to be one is none."""
        wait = tokens / self.options.qps * 1e9 if self.options.qps else math.inf
        return wait if math.isinf(wait) else int(wait)

    def is_exempt(self, event: Event) -> bool:
        """By the event's own namespace (`default` for objects without one), type or reason."""
        return (
            event.metadata.namespace in self.options.exempt_namespaces
            or event.type in self.options.exempt_types
            or event.reason in self.options.exempt_reasons
        )

    def spam_key(self, event: Event) -> Key:
        """Return the key of the event's token bucket."""
        key = source_and_object(event)
        if self.options.spam_key is SpamKey.OBJECT:
            return key
        if self.options.spam_key is SpamKey.OBJECT_TYPE:
            return (*key, event.type)
        return (*key, event.type, event.reason)

    # -- write

    def write(self, key: Key, event: Event, patch: Patch | None, aggregated: bool) -> Decision:
        """Bring the decision into the store; only the three patched fields of what exists ever change."""
        old = self.store.get(key)
        exists = old is not None and key not in self.aside
        if old is not None and exists:
            self.store[key] = msgspec.structs.replace(
                old, count=event.count, last_timestamp=event.last_timestamp, message=event.message
            )
        else:
            # Ours: one object a key, so the former goes; client-go leaves it to its expiry.
            event = self.with_free_name(key, event)
            self.store[key] = event
            self.aside.discard(key)
        action = Action.CREATE
        if event.count > 1:
            action = Action.PATCH if exists else Action.PATCH_CREATE
        return Decision(
            count=event.count,
            message=event.message,
            name=event.metadata.name,
            namespace=event.metadata.namespace,
            first=event.first_timestamp,
            last=event.last_timestamp,
            action=action,
            aggregated=aggregated,
            patch=patch,
        )

    def with_free_name(self, key: Key, event: Event) -> Event:
        """*event*, renamed for good if another correlation key holds its name."""
        taken = {(e.metadata.namespace, e.metadata.name) for k, e in self.store.items() if k != key}
        names = possible_names(event.metadata.name)
        name = next(name for name in names if (event.metadata.namespace, name) not in taken)
        if name == event.metadata.name:
            return event
        event = msgspec.structs.replace(event, metadata=msgspec.structs.replace(event.metadata, name=name))
        self.seen[key] = seen(event)
        return event


class ModelDriver:
    """The rules behind the runner's protocol. *rules* lets a test bring broken ones."""

    def __init__(self, rules: type[Correlator] = Correlator) -> None:
        self._rules = rules
        self.start(Options())

    @property
    def shared_names(self) -> set[tuple[str, str]]:
        """Namespace and name of which there were several events since `start`, whatever suffix they got."""
        return {name for name, keys in self._named.items() if len(keys) > 1}

    def start(self, options: Options) -> None:
        self.correlator = self._rules(options)
        self._named = self.correlator.named

    def record(self, at_ms: int, events: Sequence[Event]) -> list[Decision]:
        return [self.correlator.record(at_ms, event) for event in events]

    def record_batches(self, batches: Sequence[Batch]) -> list[Decision]:
        return [decision for batch in batches for decision in self.record(batch.at_ms, batch.events)]

    def delete_all(self) -> None:
        self.correlator.store.clear()

    def final_state(self) -> list[StoredEvent]:
        return [stored(event) for event in self.correlator.store.values()]

    def close(self) -> None:
        self.correlator = self._rules(Options())

    def stop(self) -> None:
        """It holds nothing."""


def seen(event: Event) -> Seen:
    """Return what is remembered of *event*."""
    return Seen(event.count, event.metadata.namespace, event.metadata.name, event.first_timestamp)


def stored(event: Event) -> StoredEvent:
    """Return the part of an event by which final states are compared."""
    meta = event.metadata
    return StoredEvent(
        meta.namespace, meta.name, event.count, event.message, event.first_timestamp, event.last_timestamp
    )


def generated_name(event: Event, at_ms: int) -> str:
    """An aggregate's name: the object's, and the clock in hexadecimal nanoseconds."""
    return f"{event.involved_object.name}.{at_ms * 1_000_000:x}"


def int32(number: int) -> int:
    """*number* as Go's int32 holds it: past the largest comes the smallest."""
    return (number + 2**31) % 2**32 - 2**31


def possible_names(name: str) -> Iterator[str]:
    """The name, then the name with each suffix there is."""
    yield name
    number = 2
    while True:
        yield f"{name}.{number}"
        number += 1


def time_of(at_ms: int) -> datetime:
    """The clock as an aware time."""
    return _EPOCH + timedelta(milliseconds=at_ms)
