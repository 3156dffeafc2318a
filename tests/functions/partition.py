"""One partition of a fresh bus, as the tests of its functions see it: every key with its value and its time to live.

Every call of a function goes through `Guarded`: the server itself then refuses whatever key was not passed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import redis

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.functions import (
    Functions,
    GroupPolicy,
    Swept,
    parse_once_reply,
    parse_replies,
    publish_command,
    publish_once_command,
)
from eventbus.broker.keys import version_in
from eventbus.broker.redis_errors import redis_errors
from eventbus.broker.stream_reader import Delivery, GroupReader
from eventbus.broker.transport import OnceRequest, PublishReply, PublishRequest
from eventbus.correlate.keys import CallBuilder, Correlator
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS, pack_batch, pack_event, unpack_batch
from eventbus.model.event import Event
from eventbus.settings import Options, Settings
from eventbus.store.object_store import ObjectStore
from eventbus.store.stored import View, decode_stored
from tests.stored_layout import StoredChange, changes_of_entry, decode_counts

#: The clock of the correlator in these tests. Whole milliseconds, as an entry id has them.
T0 = 1_700_000_000_000
MINUTE = 60_000
GENEROUS = 256 * 1024 * 1024

State = dict[str, tuple[Any, int]]


class Guarded(redis.Redis):
    """A client whose function calls may touch the keys they are given and no others, by an ACL made for each call."""

    admin: redis.Redis
    user: str
    #: A pattern of keys that they may touch besides: what a call that was cut off has left to do, others finish.
    besides: bytes = b""
    #: Words of the ACL that take rights away.
    without: str = ""
    _allowed: Sequence[Any] = ()

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] == "FCALL":
            keys = [key if isinstance(key, bytes) else str(key).encode() for key in args[3 : 3 + int(args[2])]]
            assert len(set(keys)) == len(keys), "a key is passed twice"
            self._allow(keys)
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def _allow(self, keys: Sequence[bytes]) -> None:
        own = [key for key in keys if not self.besides or not key.startswith(self.besides.removesuffix(b"*"))]
        patterns = [b"~" + key for key in (*own, self.besides) if key]
        allowed = (*self.without.split(), "resetkeys", *patterns)
        if allowed != self._allowed:
            self.admin.execute_command("ACL", "SETUSER", self.user, "on", ">guarded", "+@all", *allowed)  # type: ignore[no-untyped-call]
            self._allowed = allowed


class Answer(msgspec.Struct, frozen=True):
    """The content of a stored key: the event, None when only its counts are left, and the counts."""

    event: Event | None
    count: int
    name: str


class Partition:
    """Partition 0 of a bus of its own: *admin* may everything, *call* has the functions, guarded."""

    def __init__(self, url: str, prefix: str, **options: Any) -> None:
        self.url = url
        self.options = Options(**options)
        self.bus: Bus = open_bus(url, Settings(prefix=prefix), options=self.options)
        self.keys = self.bus.keys[0]
        self.admin: Any = self.bus.client(name="admin")
        self.client: Any = self._guarded(prefix)
        self.call = Functions(self.client, self.keys)
        self.correlator = Correlator(self.options)
        self.store = ObjectStore(self.bus, self.admin)
        self._first: dict[str, int] = {}

    def close(self) -> None:
        steps = self.admin.pipeline(transaction=False)
        if keys := list(self.admin.scan_iter(match=f"{self.bus.prefix}:*", count=10_000)):
            steps.delete(*keys)
        steps.execute_command("ACL", "DELUSER", self.bus.prefix)
        steps.execute()
        self.client.close()
        self.admin.close()

    def _guarded(self, user: str) -> Guarded:
        self.admin.execute_command("ACL", "SETUSER", user, "on", ">guarded", "+@all", "resetkeys")
        given = self.admin.connection_pool.connection_kwargs | {"username": user, "password": "guarded"}
        pool = redis.ConnectionPool(connection_class=self.admin.connection_pool.connection_class, **given)
        client = Guarded(connection_pool=pool)
        client.admin, client.user = self.admin, user
        return client

    # -- what is there -------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Every key without the prefix: its value, and its life in ms (-1: for ever)."""
        keys = list(self.admin.scan_iter(match=f"{self.bus.prefix}:*", count=10_000))
        kinds, values = self.admin.pipeline(transaction=False), self.admin.pipeline(transaction=False)
        for key in keys:
            kinds.type(key).pttl(key)
        told = kinds.execute()
        for key, kind in zip(keys, told[::2], strict=True):
            _ask_for_value(values, kind, key)
        said = iter(values.execute())
        return {
            key.decode().removeprefix(self.keys.root.decode()): (_value(kind, said), life_ms)
            for key, kind, life_ms in zip(keys, told[::2], told[1::2], strict=True)
        }

    def meta(self, field: str) -> int:
        """A counter of the partition's meta; 0 if there is none."""
        return int(self.admin.hget(self.keys.meta, field) or 0)

    def version(self, plural: str = "events") -> int:
        """The newest version of a kind."""
        return version_in(self.admin.get(self.keys.version_of(plural)))

    def pending(self, group: str = "sink") -> list[tuple[bytes, str]]:
        """Entry ids that wait to be acknowledged, with whose they are."""
        rows = self.admin.xpending_range(self.keys.incoming, group, "-", "+", 1000)
        return [(row["message_id"], row["consumer"].decode()) for row in rows]

    def changes(self, view: View = View.WRITTEN) -> list[tuple[str, int, Event]]:
        """Kind, version and object of every change, oldest first."""
        found = []
        for change in self.raw_changes():
            event = decode_stored(change.packed, view)
            assert event is not None
            found.append((change.letter, change.version, event))
        return found

    def raw_changes(self, plural: str = "events") -> list[StoredChange]:
        """Every change of a kind, oldest first."""
        entries = self.admin.xrange(self.keys.changes_of(plural))
        return [change for _, fields in entries for change in changes_of_entry(fields)]

    def letters(self) -> str:
        """The kinds of all changes, oldest first."""
        return "".join(kind for kind, _, _ in self.changes())

    def stored(self) -> list[Event]:
        """Return the stored events as a reader sees them, by name."""
        return list(self.store.list().items)

    def answers(self) -> dict[bytes, Answer]:
        """Every object key, also those of which only counts are left."""
        found = {}
        for key in self.admin.scan_iter(match=self.keys.object + b"*", count=10_000):
            packed = self.admin.get(key)
            counts = decode_counts(packed)
            found[key.removeprefix(self.keys.object)] = Answer(
                decode_stored(packed, View.WRITTEN), counts.count, counts.name
            )
        return found

    # -- what is done --------------------------------------------------------------------------------------------

    def publish_raw(
        self,
        first: int,
        n: int = 1,
        body: bytes = b"body",
        *,
        producer: str = "p1",
        generation: str = "",
        silent_ms: int = 0,
        bound: int = GENEROUS,
        losses: Sequence[tuple[str, int]] = (),
    ) -> PublishReply:
        """One call of publish, every argument as given."""
        request = PublishRequest(0, producer, first, n, body, generation, silent_ms, tuple(losses))
        return self.publish_batches(request, bound=bound)[0]

    def publish_batches(self, *requests: PublishRequest, bound: int = GENEROUS) -> list[PublishReply]:
        """One call of publish with several batches of a producer."""
        command = publish_command(self.keys, requests, bound)
        with redis_errors():
            return parse_replies(self.client.execute_command(*command), len(requests))

    def publish_once(self, *producers: str, body: bytes = b"body", bound: int = GENEROUS) -> PublishReply:
        """One call of publish_once, with an event of each of *producers* in *body*."""
        command = publish_once_command(self.keys, OnceRequest(0, producers, body, 60_000), bound)
        with redis_errors():
            return parse_once_reply(self.client.execute_command(*command))

    def publish(self, *events: Event | bytes, producer: str = "p1") -> PublishReply:
        """The next batch of *producer*, as the outbox makes it."""
        packed = [event if isinstance(event, bytes) else pack_event(event) for event in events]
        first = self._first.get(producer, 1)
        self._first[producer] = first + len(packed)
        return self.publish_raw(first, len(packed), pack_batch(producer, first, packed), producer=producer)

    def forget_producers(self) -> None:
        """The next batch of each is its first, as under a fresh id."""
        self._first.clear()

    def reader(self, consumer: str = "one", group: str = "sink") -> GroupReader:
        return GroupReader(
            bus=self.bus,
            client=self.admin,
            partition=0,
            group=group,
            consumer=consumer,
            policy=GroupPolicy.WAIT,
            start="0",
        )

    def deliver(self, *batches: Sequence[Event | bytes], consumer: str = "one") -> list[Delivery]:
        """Publish each batch, and give them all to *consumer*."""
        for batch in batches:
            self.publish(*batch)
        return self.reader(consumer).read(0)

    def record_deliveries(
        self,
        deliveries: Sequence[Delivery],
        *,
        at_ms: int | Sequence[int] = T0,
        consumer: str = "one",
        burials: Sequence[tuple[str, int, bytes]] = (),
        only: int | None = None,
    ) -> list[str]:
        """Record whole batches in one call; with *only* just that event of each, by the rules of isolation."""
        builder = CallBuilder(self.keys, self.options)
        clocks = [at_ms] * len(deliveries) if isinstance(at_ms, int) else at_ms
        for delivery, clock_ms in zip(deliveries, clocks, strict=True):
            batch = unpack_batch(delivery.body)
            everything = range(len(batch.events))
            chosen = everything if only is None else everything[only : only + 1]
            following = None if only is None or only == len(batch.events) - 1 else only + 1
            opened = self.correlator.open_events(batch, chosen)
            opened.burials.extend(burials)
            builder.add(delivery.id, clock_ms, opened, next_position=following, start=only or 0)
        return self.call.correlate_and_store("sink", consumer, self.options, builder.call())

    def record(self, *events: Event, at_ms: int = T0, consumer: str = "one") -> str:
        """One batch of *events*, or more if need be, published, delivered and recorded in a call: a letter an event."""
        batches = [events[low : low + MAX_BATCH_EVENTS] for low in range(0, len(events), MAX_BATCH_EVENTS)]
        return "".join(
            self.record_deliveries(self.deliver(*batches, consumer=consumer), at_ms=at_ms, consumer=consumer)
        )

    def expire(self, *, in_ms: int = 0, keys: Sequence[bytes] | None = None) -> Swept:
        """Expire what is due in *in_ms* from now; candidates are all there are, oldest first, unless *keys*."""
        if keys is None:
            keys = [
                *self.admin.zrange(self.keys.index_expiry, 0, -1),
                *self.admin.zrange(self.keys.index_forget, 0, -1),
            ]
        return self.call.expire(self.options, keys, time.time_ns() // 1_000_000 + in_ms)

    @contextmanager
    def memory_full(self) -> Iterator[None]:
        """The server is over its maxmemory, and the library has had the time to see it."""
        self.admin.config_set("maxmemory", 1024 * 1024 // 2)
        time.sleep(0.11)  # library.lua asks at most every 100 ms
        try:
            yield
        finally:
            self.admin.config_set("maxmemory", 0)
            time.sleep(0.11)


def _ask_for_value(steps: Any, kind: bytes, key: bytes) -> None:
    match kind:
        case b"hash":
            steps.hgetall(key)
        case b"zset":
            steps.zrange(key, 0, -1, withscores=True)
        case b"stream":
            steps.xrange(key).xinfo_groups(key)
        case _:
            steps.get(key)


def _value(kind: bytes, said: Iterator[Any]) -> Any:
    match kind:
        case b"hash":
            return {field.decode(): value.decode() for field, value in next(said).items()}
        case b"zset":
            return dict(next(said))
        case b"stream":
            return next(said), [(g["name"], g["pending"], g["last-delivered-id"]) for g in next(said)]
        case _:
            return next(said)


def changed(before: State, after: State) -> set[str]:
    """The keys that came, went, or have another value."""
    return {key for key in before.keys() | after.keys() if before.get(key, (None,))[0] != after.get(key, (None,))[0]}
