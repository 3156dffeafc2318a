"""Calls of the real `correlate_and_store` by named consumers, under the caller's clock, on a bus of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from eventbus.broker.bus import open_bus
from eventbus.broker.keys import SINK_GROUP
from eventbus.correlate.keys import CallBuilder, Correlator
from eventbus.model.encoding.wire import Batch, pack_event
from eventbus.model.event import Event
from eventbus.settings import Options, Settings
from eventbus.store.object_store import ObjectStore
from eventbus.store.stored import View, decode_stored
from tests.stored_layout import changes_of_entry, sets_of_state


class Entry(msgspec.Struct, frozen=True):
    """A batch in the stream. *at_ms* takes the place of the time in its id, which no test can choose."""

    id: bytes
    at_ms: int
    events: Sequence[Event]
    packed: Sequence[bytes]


class Change(msgspec.Struct, frozen=True):
    """One entry of `changes`: ADDED, MODIFIED or DELETED as its first letter."""

    kind: str
    key: bytes
    event: Event


class Recording:
    """One partition of a fresh bus. `append` entries, `take` them as a consumer, `record` what was taken."""

    def __init__(self, url: str, prefix: str, options: Options) -> None:
        self.bus = open_bus(url, Settings(prefix=prefix), options=options)
        self.client = self.bus.client()
        self.keys = self.bus.keys[0]
        self.functions = self.bus.functions(self.client, 0)
        self.store = ObjectStore(self.bus, self.client)
        self._correlator = Correlator(options)

    def append(self, at_ms: int, events: Sequence[Event] = (), packed: Sequence[bytes] = ()) -> Entry:
        """Put one batch at the end of the stream: of *events*, or as a recorder has *packed* them."""
        fields: dict[Any, Any] = {"n": len(events) + len(packed), "to": 0, "at": 0, "b": msgspec.msgpack.encode([])}
        entry: Any = self.client.xadd(self.keys.incoming, fields)
        return Entry(entry, at_ms, events, packed or [pack_event(event) for event in events])

    def take(self, consumer: str, count: int = 1) -> None:
        """Give the next *count* entries to *consumer*."""
        self.client.xreadgroup(SINK_GROUP, consumer, {self.keys.incoming: ">"}, count=count)

    def record(self, consumer: str, entries: Sequence[Entry]) -> list[str]:
        """One call. Returns the reply's letters, a string for each entry."""
        builder = CallBuilder(self.keys, self.bus.options)
        for entry in entries:
            batch = Batch(repr(entry.id), 0, list(entry.packed))
            builder.add(entry.id, entry.at_ms, self._correlator.open_events(batch, range(len(batch.events))))
        return self.functions.correlate_and_store(SINK_GROUP, consumer, self.bus.options, builder.call())

    def send(
        self, at_ms: int, events: Sequence[Event] = (), consumer: str = "one", packed: Sequence[bytes] = ()
    ) -> str:
        """Append, take and record one batch. Returns its letters."""
        entry = self.append(at_ms, events, packed)
        self.take(consumer)
        return self.record(consumer, [entry])[0]

    def refresh_due(self, until_ms: int) -> int | None:
        """Let housekeeping write what is due next, by *until_ms*. Returns when it was due; None: nothing is."""
        due: Any = self.client.zrange(self.keys.index_refresh, 0, 0, withscores=True)
        if not due or due[0][1] > until_ms:
            return None
        at_ms = int(due[0][1])
        ids: Any = self.client.zrange(self.keys.index_refresh, 0, at_ms, byscore=True)
        self.functions.refresh(self.bus.options, ids, at_ms)
        return at_ms

    def change_options(self, options: Options) -> None:
        """Go on with these, over the state that is there."""
        self.bus.options = options
        self._correlator = Correlator(options)

    def messages_of_sets(self) -> list[int]:
        """Count the messages of each set of similar ones."""
        keys = list(self.client.scan_iter(match=self.keys.correlation + b"*", count=1000))
        states: Any = self.client.mget(keys) if keys else []
        return [len(found) - 1 for packed in states for found in sets_of_state(packed)]

    def changes(self) -> list[Change]:
        """All of them, oldest first."""
        found: Any = self.client.xrange(self.keys.changes_of("events"))
        return [
            Change(change.letter, change.key, event)
            for _, fields in found
            for change in changes_of_entry(fields)
            if (event := decode_stored(change.packed, View.WRITTEN)) is not None
        ]

    def last_change(self) -> bytes:
        """The stored object as the newest change has it."""
        found: Any = self.client.xrevrange(self.keys.changes_of("events"), count=1)
        *_, last = changes_of_entry(found[0][1])
        return last.packed

    def written(self) -> list[Event]:
        """The stored events as client-go would have sent them."""
        keys: Any = list(self.client.scan_iter(match=self.keys.object + b"*", count=1000))
        events = [decode_stored(packed, View.WRITTEN) for packed in self.client.mget(keys)] if keys else []
        return [event for event in events if event is not None]

    def counters(self) -> dict[str, int]:
        """The partition's counters by name; what is not a number is left out."""
        found: Any = self.client.hgetall(self.keys.meta)
        return {name.decode(): int(value) for name, value in found.items() if value.isdigit()}

    def by_source(self) -> dict[tuple[str, ...], int]:
        """(S | A | M | E, component, kind, type, reason) → how many."""
        found: Any = self.client.hgetall(self.keys.suppressed)
        rows = {tuple(field.decode().split("\0")): int(value) for field, value in found.items()}
        return {source: n for source, n in rows.items() if source[0] in ("S", "A", "M", "E")}

    def close(self) -> None:
        """Take away every key of the bus."""
        for key in self.client.scan_iter(match=f"{self.bus.prefix}:*", count=1000):
            self.client.delete(key)
        self.client.close()
