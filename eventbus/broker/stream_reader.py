"""Reads streams: `incoming` as a member of a consumer group or from a position, and any stream without waiting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client, is_cluster, node_of
from eventbus.broker.functions import GroupPolicy, beat_command
from eventbus.broker.keys import name_text, whole_number
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import DeadCause
from eventbus.util.failpoints import failpoint

#: Entries asked for in one read; with up to 64 events each this is plenty, and a redelivery stays small.
READ_COUNT = 64
#: The year 2248. Later ids do not come from a clock: a client has chosen them.
LAST_MS = 2**43

_POSITION = re.compile(r"([0-9]{1,20}-[0-9]{1,20}):([0-9]{0,20})")


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One stream entry delivered to this consumer; *again*: it is a redelivery.

    *deaths*: how many workers died while they handled it. *next_position*: it is handled one event at a time, from this
    position on. *suspect_position*: the position that was handled alone when a worker died.
    """

    id: bytes
    events: int
    to: int
    body: bytes
    deaths: int = 0
    again: bool = False
    only_for: str = ""  #: the one group a replayed entry is for
    not_for: str = ""  #: the group that must not handle this entry: the event is stored already
    next_position: int | None = None
    suspect_position: int | None = None

    @property
    def clock_ms(self) -> int:
        """Return when Redis got the entry, in ms since 1970: the time part of its id."""
        return min(LAST_MS, int(self.id.split(b"-")[0]))


class GroupReader:
    """One consumer of one group on one partition: read, acknowledge, beat, take over.

    One thread and one connection. A second connection is for commands while calls are under way on the first, a third
    for `beat` during work.
    """

    def __init__(
        self, *, bus: Bus, client: Client, partition: int, group: str, consumer: str, policy: GroupPolicy, start: str
    ) -> None:
        self._bus = bus
        self.client = self._client = client
        self._partition = partition
        self._policy = policy
        self._start = start
        self.group = group
        self.consumer = consumer
        self.keys = bus.keys[partition]
        self.options = bus.options
        self.functions = bus.functions(client, partition)
        self.steps = 0  #: progress of this consumer's work; it stands still while the work hangs
        self.buried = 0  #: entries that this consumer has moved to the dead letter
        #: Identifies the Redis process and its replication history, as of the last `still_own`.
        #: The value changes after a restart
        #: or failover, which may have lost the last writes.
        self.dataset = ""
        self._waiting = BlockingRead(client, self.keys.incoming)
        self._noted: set[bytes] = set()  #: our pending entries with notes in `attempts`

    def open(self) -> bool:
        """Create the group, at its floor if it had one. True if it was missing. Idempotent.

        Raises: ConfigError: producers of the bus may use a codec that this build cannot read.
        """
        self._bus.check_codecs()
        opened = self._bus.open_partition(self._client, self._partition, self.group, self._policy, self._start)
        self._start = "0"  # after a loss of the stream, all entries of the recreated one are new to the group
        return opened.made_group or opened.made_stream

    def read(self, block_ms: int, *, beat: bool = False) -> list[Delivery]:
        """Read entries that the group has not got yet, in one round trip.

        Blocks for at most *block_ms* (0: not at all). With *beat* the heartbeat counter goes up first.

        Returns:  list[Delivery], oldest first, 0..READ_COUNT long.
        Raises:   GroupMissing: the group was destroyed, `open` again. BusUnavailable: the reply may be lost; read
                  `own_pending` before reading on.
        Redis:    FCALL beat, XREADGROUP on incoming; writes the PEL.
        """
        pipe = self._client.pipeline(transaction=False)
        if beat:
            pipe.execute_command(*beat_command(self.keys, self.group, self.consumer))
        pipe.execute_command(*self._read_command(block_ms))
        with redis_errors():
            replies = pipe.execute()
        return self._ours([_delivery(entry) for entry in _entries(replies[-1])])

    def begin_read(self, block_ms: int) -> None:
        """Send a `read` without waiting: `fileno` is readable when there are entries, or *block_ms* are over.

        Call `finish_read` then, not earlier. In between the reader may be used for other calls.
        """
        self._waiting.send(*self._read_command(block_ms))

    def fileno(self) -> int:
        """Return the socket of the read under way."""
        return self._waiting.fileno()

    def finish_read(self) -> list[Delivery]:
        """Return the entries of the read under way. Returns, raises: as `read`."""
        reply = self._waiting.reply()
        return self._ours([_delivery(entry) for entry in _entries(reply)])

    def abandon_read(self) -> None:
        """Close the connection of the read under way; `own_pending` has its entries. Idempotent."""
        self._waiting.close()

    def _read_command(self, block_ms: int) -> tuple[Any, ...]:
        block = ("BLOCK", block_ms) if block_ms else ()
        asked = ("XREADGROUP", "GROUP", self.group, self.consumer, "COUNT", READ_COUNT)
        return (*asked, *block, "STREAMS", self.keys.incoming, ">")

    def own_pending(self) -> list[Delivery]:
        """Read this consumer's entries that are not acknowledged yet, oldest first, at most READ_COUNT.

        Empty only if none is left. Entries that the stream no longer has are acknowledged, left out, and counted as
        `lost_batches:<group>` in meta.
        """
        while True:
            with redis_errors():
                rows: Any = self._client.xpending_range(
                    self.keys.incoming, self.group, "-", "+", READ_COUNT, consumername=self.consumer
                )
                deliveries = self._ours(self._fetch([row["message_id"] for row in rows]))
            if deliveries or not rows:
                return deliveries

    def still_own(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return those of *ids* (oldest first) still pending for this consumer; the others are done or taken over.

        Redis: XPENDING on incoming, and INFO for `dataset`, in one round trip.
        """
        node = node_of(self._client, self.keys.incoming)
        pipe = node.pipeline(transaction=False)
        pipe.xpending_range(self.keys.incoming, self.group, ids[0], ids[-1], 1000, consumername=self.consumer)
        pipe.execute_command("INFO", "server", "replication")
        with redis_errors():
            rows, facts = pipe.execute()
        self.dataset = f"{facts.get('run_id', '')} {facts.get('master_replid', '')}"
        return {row["message_id"] for row in rows} & set(ids)

    def claim(self, consumer: str, beats: str) -> list[Delivery]:
        """Take over entries of another *consumer*. *beats*: the counter at which it died; "": it has left."""
        deaths = self.functions.claim(self.group, self.consumer, consumer, beats)
        if deaths:
            failpoint("claim")
        with redis_errors():
            return self._ours(self._fetch(list(deaths)))

    def isolate(self, entry: bytes, position: int) -> bool:
        """Note that *position* is handled alone next, and those before it are done. False: taken over."""
        self._noted.add(entry)
        return self.functions.isolate(self.group, self.consumer, entry, position)

    def bury(
        self, delivery: Delivery, cause: str, body: bytes, *, whole: bool, next_position: int | None = None
    ) -> bool:
        """Move the delivery (or, not *whole*, one event of it) to the dead letter as *body*. False: taken over.

        Raises: ConfigError: as `check_poison`.
        """
        self.check_poison(cause)
        ours = self.functions.bury(
            *(self.group, self.consumer, delivery.id, cause, delivery.deaths, body),
            whole=whole,
            next_position=next_position,
        )
        self.buried += ours
        return ours

    def check_poison(self, cause: str) -> None:
        """Raise ConfigError if only this build cannot read the batch: the bus now uses a codec that it lacks.

        *cause*: why the batch cannot be read. Redis: HMGET on the bus's key.
        """
        if cause == DeadCause.UNKNOWN_CODEC:
            self._bus.revalidate(self._client)
            self._bus.check_codecs()

    def ack(self, ids: Sequence[bytes]) -> None:
        """Acknowledge *ids* and forget the notes about them. Safe to repeat."""
        if not ids:
            return
        noted = self._noted.intersection(ids)
        self._noted -= noted
        pipe = self._client.pipeline(transaction=False)
        pipe.execute_command("XACK", self.keys.incoming, self.group, *ids)
        if noted:
            pipe.execute_command("HDEL", self._attempts, *_notes_of(noted))
        with redis_errors():
            pipe.execute()

    def beat(self) -> None:
        """Raise the heartbeat counter during long work. Any thread may call it."""
        with redis_errors():
            self._client.execute_command(*beat_command(self.keys, self.group, self.consumer))

    def heartbeats(self) -> dict[str, str]:
        """Read the counter of each consumer of this group; '' for one that never beat."""
        with redis_errors():
            beats: Any = self._client.hgetall(self.keys.workers)
            consumers: Any = self._client.xinfo_consumers(self.keys.incoming, self.group)
        start = f"{self.group}/"
        every = {name_text(name): name_text(value) for name, value in beats.items()}
        counters = {name.removeprefix(start): value for name, value in every.items() if name.startswith(start)}
        for info in consumers:
            counters.setdefault(name_text(info["name"]), "")
        return counters

    def leave(self, *, keeps_name: bool = False) -> None:
        """Remove this consumer, or only its heartbeat if it has pending entries.

        If entries are pending, the consumer stays, and others take them over without waiting until it seems dead.
        *keeps_name*: it stays in any case, because Redis may deliver entries to an abandoned read until it notices the
        lost connection.
        """
        with redis_errors():
            pending: Any = keeps_name or self._client.xpending_range(
                self.keys.incoming, self.group, "-", "+", 1, consumername=self.consumer
            )
            if not pending:
                self._client.xgroup_delconsumer(self.keys.incoming, self.group, self.consumer)
            self._client.hdel(self.keys.workers, f"{self.group}/{self.consumer}")

    def _ours(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Drop and acknowledge entries that were replayed for another group, or that our group skips."""
        others = [
            delivery.id
            for delivery in deliveries
            if delivery.only_for not in ("", self.group) or delivery.not_for == self.group
        ]
        if not others:
            return deliveries
        self.ack(others)
        return [delivery for delivery in deliveries if delivery.id not in others]

    @property
    def _attempts(self) -> bytes:
        return self.keys.attempts + self.group.encode()

    def _fetch(self, ids: Sequence[bytes]) -> list[Delivery]:
        """Read the entries and the notes about them, in one round trip."""
        if not ids:
            return []
        deliveries: list[Delivery] = []
        gone: list[bytes] = []
        pipe = self._client.pipeline(transaction=False)
        pipe.execute_command("HMGET", self._attempts, *_notes_of(ids))
        for entry_id in ids:
            pipe.execute_command("XRANGE", self.keys.incoming, entry_id, entry_id)
        notes, *ranges = pipe.execute()
        for number, (entry_id, entries) in enumerate(zip(ids, ranges, strict=True)):
            if entries:
                deliveries.append(_with_notes(_delivery(entries[0]), *notes[3 * number : 3 * number + 3]))
            else:
                gone.append(entry_id)
        # Entries that were fetched before are done by now, or taken over.
        self._noted = {delivery.id for delivery in deliveries if delivery.deaths or delivery.next_position is not None}
        if gone:
            self._client.execute_command("XACK", self.keys.incoming, self.group, *gone)
            self._client.execute_command("HDEL", self._attempts, *_notes_of(gone))
            self._client.execute_command("HINCRBY", self.keys.meta, f"lost_batches:{self.group}", len(gone))
        return deliveries


class Position:
    """A reader's position in one partition's stream: nothing is stored in Redis, and the stream does not wait for it.

    *missed* counts the events that were trimmed before they were read.
    """

    def __init__(self, *, bus: Bus, client: Client, partition: int) -> None:
        self._client = client
        self.key = bus.keys[partition].incoming  #: the stream's
        self.after: bytes = b"0-0"
        self._to: int | None = None
        self.missed = 0

    def at_end(self) -> None:
        """Move after the newest entry."""
        with redis_errors():
            last: Any = self._client.xrevrange(self.key, count=1)
        if last:
            delivery = _delivery(last[0])
            self.after, self._to = delivery.id, delivery.to

    def at_time(self, ms: int) -> None:
        """Move before the first entry that Redis got at *ms* or later."""
        # The largest id of the millisecond before.
        self.after, self._to = b"%d-18446744073709551615" % max(0, ms - 1), None

    def read(self, block_ms: int) -> list[Delivery]:
        """Read the next entries, oldest first; blocks for at most *block_ms*."""
        with redis_errors():
            return self.take(self._client.execute_command(*self.command(block_ms)))

    def command(self, block_ms: int = 0, count: int = READ_COUNT) -> tuple[Any, ...]:
        """Return the command for a pipeline of many positions; `take` decodes its reply. 0: it does not block."""
        block = ("BLOCK", block_ms) if block_ms else ()
        return ("XREAD", "COUNT", count, *block, "STREAMS", self.key, self.after)

    def take(self, reply: Any) -> list[Delivery]:
        """Decode a reply, and move after its entries."""
        deliveries = [_delivery(entry) for entry in _entries(reply)]
        for delivery in deliveries:
            self.after = delivery.id
            if not delivery.to:
                continue  # a foreign entry: it has no running number
            if self._to is not None and delivery.to - delivery.events > self._to:
                self.missed += delivery.to - delivery.events - self._to
            self._to = delivery.to
        return [delivery for delivery in deliveries if not delivery.only_for]

    def __str__(self) -> str:
        """Return `<entry id>:<running number there>`, for `at`."""
        return f"{self.after.decode()}:{'' if self._to is None else self._to}"

    def at(self, text: str) -> None:
        """Move to the position that *text* names, a result of `str`. Raises: ValueError: it is not one."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text[:80]!r} is no position in a stream")
        self.after, self._to = match[1].encode(), int(match[2]) if match[2] else None


class BlockingRead:
    """Sends commands about *key*, one at a time: `send`, wait until `fileno` is readable, `reply`. One thread.

    One thread can wait for many streams: a blocking command cannot span the slots of a cluster, and a command for
    several streams fails for all if one is gone. So each stream has a read and a connection of its own.
    """

    def __init__(self, client: Client, key: bytes) -> None:
        self._client = client
        self._slot = client.at(key) if is_cluster(client) else None
        self._pool: Any = None
        self._connection: Any = None

    def send(self, *command: Any) -> None:
        """Send *command*. Raises: BusUnavailable: the server may or may not have got it."""
        with redis_errors():
            try:
                if self._connection is None:
                    self._connect()
                self._connection.send_command(*command)
            except Exception as error:
                self._failed(error)
                raise

    def fileno(self) -> int:
        """Return the socket's descriptor: readable when a reply begins, or the connection is lost."""
        number: int = self._connection._sock.fileno()
        return number

    def reply(self) -> Any:
        """Read the whole reply. Raises: the command's error; BusUnavailable: it may have had its effect."""
        with redis_errors():
            try:
                return self._connection.read_response()
            except Exception as error:
                self._failed(error)
                raise

    def close(self) -> None:
        """Close the connection; the server may still execute an unanswered command. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
            self._pool.release(connection)

    def _connect(self) -> None:
        plain = self._client if self._slot is None else self._slot.plain()
        self._pool = plain.connection_pool
        self._connection = self._pool.get_connection()

    def _failed(self, error: Exception) -> None:
        """Close, and report the error to a cluster's map, so that the next command finds the right node."""
        self.close()
        if self._slot is not None:
            self._slot.met(error)


def _entries(reply: Any) -> list[Any]:
    if not reply:
        return []
    if isinstance(reply, dict):
        return [entry for entries in reply.values() for entry in entries]
    entries: list[Any] = reply[0][1]
    return entries


def _notes_of(ids: Iterable[bytes]) -> list[bytes]:
    """Return the fields of `attempts` about these entries."""
    return [field for entry_id in ids for field in (entry_id, entry_id + b":next", entry_id + b":trying")]


def _with_notes(delivery: Delivery, died: bytes | None, following: bytes | None, trying: bytes | None) -> Delivery:
    deaths = _number(died)
    position, _, deaths_then = (trying or b"").partition(b"/")
    # A worker that only lost its connection finds its own note: no worker has died since.
    suspect = whole_number(position) if deaths > _number(deaths_then) else None
    return msgspec.structs.replace(
        delivery, deaths=deaths, again=True, next_position=whole_number(following), suspect_position=suspect
    )


def _delivery(entry: Any) -> Delivery:
    fields: Any = entry[1] or {}
    if not isinstance(fields, dict):
        fields = dict(zip(fields[::2], fields[1::2], strict=True))
    return Delivery(
        entry[0],
        _number(fields.get(b"n")),
        _number(fields.get(b"to")),
        fields.get(b"b", b""),
        only_for=fields.get(b"g", b"").decode("utf-8", "replace"),
        not_for=fields.get(b"x", b"").decode("utf-8", "replace"),
    )


def _number(text: bytes | None) -> int:
    return whole_number(text) or 0
