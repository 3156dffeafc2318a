"""Finds delayed deliveries that are due: repeats delayed by a policy, and dead letters to write again."""

from __future__ import annotations

from collections.abc import Iterator

from eventbus.broker.exports import ExportStore
from eventbus.errors import PoisonBatch
from eventbus.export.batch import SinkDelivery
from eventbus.export.sinks.contract import Verb
from eventbus.model.encoding.wire import unpack_batch, unpack_event
from eventbus.model.event import Event
from eventbus.store.event_storage import EventStorage
from eventbus.store.storage import with_metadata

LOOK_EVERY_S = 1.0
#: The maximum number of members that are read in one round.
LIMIT = 500


class Waiting:
    """The delayed events of one sink and partition that are due."""

    def __init__(self, store: ExportStore, storage: EventStorage) -> None:
        self._store = store
        self._storage = storage
        self._next_look = 0.0

    def due(self, now_ms: int, monotonic: float) -> Iterator[tuple[list[SinkDelivery], list[str]]]:
        """Yield deliveries of different events, and the keys to remove because their events are gone."""
        if monotonic < self._next_look:
            return
        self._next_look = monotonic + LOOK_EVERY_S
        members = self._store.due(now_ms, LIMIT)
        # Ids of dead entries have a hyphen, keys of events have none.
        dead = [member for member in members if "-" in member]
        if dead:
            yield self._again(dead)
        keys = [member for member in members if "-" not in member]
        deliveries, gone = [], []
        for key, event in zip(keys, self._stored(keys), strict=True):
            if event is None:
                gone.append(key)
            else:
                deliveries.append(SinkDelivery(key=key, event=event, waited=(key,)))
        if deliveries or gone:
            yield deliveries, gone

    def _again(self, entry_ids: list[str]) -> tuple[list[SinkDelivery], list[str]]:
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
        return [None if packed is None else self._decode(packed) for packed in self._store.stored(keys)]

    def _decode(self, packed: bytes) -> Event | None:
        try:
            return self._storage.decode(packed)
        except PoisonBatch:
            return None


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
