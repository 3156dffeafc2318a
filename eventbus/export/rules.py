"""Which events an export writes, and when: its options, start, matchers, repeats, delayed events, the rate."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from eventbus.broker.exports import ExportCheckpoint, ExportStore
from eventbus.errors import ConfigError, PoisonBatch
from eventbus.export.deliveries import SinkDelivery
from eventbus.export.progress import ExportProgress
from eventbus.export.sinks.contract import SinkMode, Verb
from eventbus.model.encoding.wire import unpack_batch, unpack_event
from eventbus.model.event import Event
from eventbus.model.matchers import Matchers, event_matchers, labels_of
from eventbus.store.event_storage import EventStorage
from eventbus.store.storage import decode_or_none, with_metadata
from eventbus.store.stored import View
from eventbus.util.clock import Clock
from eventbus.util.human_duration import parse_duration, parse_since


class Outage(StrEnum):
    """The treatment of a sink that does not answer."""

    PAUSE = "pause"  #: wait without a limit
    COUNT = "count"  #: one more try of this event, as in client-go


class Start(msgspec.Struct, frozen=True):
    """The start of a new export.

    *listed*: it starts with the stored events; with *since*, only with those last seen at that time or later."""

    listed: bool = True
    since: datetime | None = None

    def takes(self, event: Event) -> bool:
        """Return True if the event, found in the store at the beginning, is exported."""
        return self.since is None or (event.last_seen is not None and event.last_seen >= self.since)


NOW, BEGINNING = Start(listed=False), Start()


def start_of(mode: SinkMode) -> str:
    """Return the default start of a new export.

    Appending sinks, which pass on each event to people or programs, start now, because all past events would be a
    flood. Upserting sinks, which keep one row for each event, start with all stored events.
    """
    return "beginning" if mode is SinkMode.UPSERT else "now"


def parse_start(text: str, clock: Clock) -> Start:
    """Parse `now`, `beginning`, an RFC 3339 time with its zone, or how long ago (`90s`, `10m`, `2h`, `1d`).

    Raises: ConfigError.
    """
    if text in ("now", "beginning"):
        return NOW if text == "now" else BEGINNING
    try:
        return Start(since=parse_since(text, datetime.fromtimestamp(clock.time_ns() / 1e9, UTC)))
    except ValueError as error:
        cure = "give now, beginning, 2024-01-31T12:00:00Z, or how long ago, like 10m"
        raise ConfigError(f"start: {error}: {cure}", cure=cure) from None


def parse_repeats(text: str) -> int:
    """Parse `every` or `at-most-every=5m` (s, m, h, d). Returns: the shortest pause between two writes of an event, ms.

    Raises: ConfigError.
    """
    if text == "every":
        return 0
    if at_most := re.fullmatch(r"at-most-every=([1-9]\d{0,6}[smhd])", text):
        return int(parse_duration(at_most[1]).total_seconds() * 1000)
    raise ConfigError(f"repeats {text!r}: give every or at-most-every=5m")


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an export to one sink; the same in every worker of the sink."""

    start: Start = BEGINNING
    matchers: Matchers = Matchers()  #: of the events that are written
    every_ms: int = 0  #: an event is written at once, then at most once in this time: a later state at its end; 0: each
    outage: Outage = Outage.PAUSE
    view: View = View.WRITTEN  #: which counts and times of an event are written
    batch_events: int = 500  #: events written at once
    rate_per_s: float = 0.0  #: events a second of a worker, all partitions together; 0: no limit
    take_over_s: float = 25.0  #: a worker is dead if its heartbeat has stood still for so long


def make_options(
    clock: Clock,
    *,
    start: str,
    repeats: str,
    outage: str,
    match: str | Iterable[str] = (),
    counts: str = "written",
    **more: Any,
) -> ExportOptions:
    """Parse the options as people write them; *more* is taken as it is. Raises: ConfigError."""
    if outage not in list(Outage):
        raise ConfigError(f"outage {outage!r}: give {' or '.join(Outage)}")
    if counts not in [view.value for view in View]:
        raise ConfigError(f"counts {counts!r}: give {' or '.join(sorted(view.value for view in View))}")
    return ExportOptions(
        start=parse_start(start, clock),
        matchers=event_matchers(match),
        every_ms=parse_repeats(repeats),
        outage=Outage(outage),
        view=View(counts),
        **more,
    )


class ExportFilter:
    """Selects the events and repeats to write, with the sink's last replies, which the store keeps."""

    def __init__(
        self, store: ExportStore, matchers: Matchers, every_ms: int, progress: ExportProgress, clock: Clock
    ) -> None:
        self._store = store
        self._matchers = matchers
        self._every_ms = every_ms
        self._progress = progress
        self._clock = clock

    def select(self, deliveries: Sequence[SinkDelivery], settled: ExportCheckpoint) -> Iterator[SinkDelivery]:
        """Yield those that are to be written, with the sink's last reply about them; note the others in *settled*."""
        if self._matchers.all:
            deliveries = [delivery for delivery in deliveries if self._matches(delivery, settled)]
        known = self._store.returned([delivery.key for delivery in deliveries])
        for delivery in deliveries:
            delivery = msgspec.structs.replace(delivery, known=known.get(delivery.key))
            if self._is_due(delivery, settled):
                if delivery.known is not None and not delivery.known.written:
                    delivery = msgspec.structs.replace(delivery, known=None, verb=delivery.verb or Verb.CREATE)
                yield delivery

    def _matches(self, delivery: SinkDelivery, settled: ExportCheckpoint) -> bool:
        if self._matchers.match(labels_of(delivery.event)):
            return True
        if not delivery.only_forget:
            self._progress.unmatched(settled)
        return False

    def _is_due(self, delivery: SinkDelivery, settled: ExportCheckpoint) -> bool:
        known, now_ms = delivery.known, self._clock.time_ns() // 1_000_000
        if delivery.forced:
            return True
        if known is not None and known.rv >= delivery.version:
            return False
        if delivery.forget and known is not None and self._every_ms:
            # The event is gone from the store, so the delayed repeat is written now.
            return known.count < delivery.event.occurrences
        if delivery.only_forget:
            return False
        # A clock that was set back must not silence an event.
        if known is None or not 0 <= now_ms - known.ms < self._every_ms:
            return True
        self._progress.held_back(settled)
        settled.refreshed.append(delivery.key)
        settled.later[delivery.key] = known.ms + self._every_ms
        return False


#: Seconds between two reads of the delayed events that are due.
DELAYED_EVERY_S = 1.0
#: The maximum number of members that are read in one round.
LIMIT = 500


class DelayedEvents:
    """The events of one sink and partition that were delayed: repeats, and dead letters to write again."""

    def __init__(self, store: ExportStore, storage: EventStorage) -> None:
        self._store = store
        self._storage = storage
        self._next_read = 0.0

    def due(self, now_ms: int, monotonic: float) -> Iterator[tuple[list[SinkDelivery], list[str]]]:
        """Yield deliveries of different events, and the keys to remove because their events are gone."""
        if monotonic < self._next_read:
            return
        self._next_read = monotonic + DELAYED_EVERY_S
        members = self._store.due(now_ms, LIMIT)
        # Ids of dead entries have a hyphen, keys of events have none.
        dead = [member for member in members if "-" in member]
        if dead:
            yield self._dead(dead)
        keys = [member for member in members if "-" not in member]
        deliveries, gone = [], []
        for key, event in zip(keys, self._stored(keys), strict=True):
            if event is None:
                gone.append(key)
            else:
                deliveries.append(SinkDelivery(key=key, event=event, waited=(key,)))
        if deliveries or gone:
            yield deliveries, gone

    def _dead(self, entry_ids: list[str]) -> tuple[list[SinkDelivery], list[str]]:
        """Return each dead-letter event once: the stored event, or its newest dead letter if it is not stored."""
        buried: dict[str, dict[str, bytes]] = {}  # event key → entry id → body, oldest first
        gone = []
        for entry_id in sorted(entry_ids, key=_age):
            fields = self._store.buried(entry_id)
            if fields is None:
                gone.append(entry_id)
            else:
                key = fields.get(b"k", b"").decode("ascii", "replace")
                buried.setdefault(key, {})[entry_id] = fields.get(b"b", b"")
        deliveries = []
        for (key, bodies), stored in zip(buried.items(), self._stored(list(buried)), strict=True):
            event = stored or next(filter(None, map(_unpack, reversed(bodies.values()))), None)
            if event is None:
                gone.extend(bodies)
            else:
                deliveries.append(
                    SinkDelivery(key=key, event=event, verb=Verb.UPDATE, forced=True, waited=tuple(bodies))
                )
        return deliveries, gone

    def _stored(self, keys: list[str]) -> list[Event | None]:
        return [decode_or_none(self._storage, packed) for packed in self._store.stored(keys)]


def _age(entry_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry_id.split("-"))


def _unpack(body: bytes) -> Event | None:
    try:
        batch = unpack_batch(body)
        event = unpack_event(batch.events[0], batch.uid(0))
    except (PoisonBatch, IndexError):
        return None
    # The store has forgotten its version; anything newer has one above.
    return with_metadata(event, resource_version="0")


class RateLimit:
    """A token bucket of one second's events, full at first. *per_s* 0: no limit. Thread-safe."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._per_s = per_s
        self._clock = clock
        self._tokens = per_s
        self._lock = threading.Lock()
        self._last = clock.monotonic()

    def take(self, events: int) -> float:
        """Take *events* and return how many seconds to wait first; more than there are tokens are lent."""
        if self._per_s <= 0:
            return 0.0
        with self._lock:
            now = self._clock.monotonic()
            self._tokens = min(max(self._per_s, 1.0), self._tokens + (now - self._last) * self._per_s) - events
            self._last = now
            return max(0.0, -self._tokens / self._per_s)
