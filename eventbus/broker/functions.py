"""The functions of the library as typed calls, one each: parameters are those of the Lua headers in `lua/`.

Nothing here retries: callers know which calls may be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import cache, lru_cache, partial
from typing import Any, Protocol

import msgpack
import msgspec

from eventbus.broker.build import function_command
from eventbus.broker.calls import (
    PendingCall,
    asked_for_members,
    call_function,
    decode_correlate_reply,
    proper,
)
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import EVENTS, ID_CHARS, SINK_GROUP, Keys, name_bytes
from eventbus.broker.redis_errors import redis_errors
from eventbus.broker.transport import PRODUCER_LIFE_MS, PublishReply, PublishStatus
from eventbus.model.event import EventType
from eventbus.model.formats import CODECS, FORMATS, numbers_text
from eventbus.settings import Options, SpamKey
from eventbus.util.failpoints import failpoint


class GroupPolicy(StrEnum):
    """The policy for what a consumer group has not read when the stream grows too long."""

    WAIT = "WAIT"  #: it is kept for a group that lives, or was alive within *hold_s*
    DROP = "DROP"  #: it is dropped, and counted, beyond half of the stream's bytes


class ReplayStatus(StrEnum):
    """The outcome of giving a dead entry back to its group."""

    OK = "OK"
    MISSING = "MISSING"  #: it was replayed or discarded before
    FULL = "FULL"  #: the stream takes no more
    NOGROUP = "NOGROUP"  #: the group that buried it is no more


class Opened(msgspec.Struct, frozen=True):
    """Answer of open."""

    generation: str
    made_stream: bool
    made_group: bool


class Trimmed(msgspec.Struct, frozen=True):
    """Answer of trim: entries removed, and the group that lost unread events, if one did.

    *destroyed*: with the stream or the group; else because it held the stream too long.
    """

    removed: int
    released_group: str
    lost: int
    destroyed: bool = False


class Swept(msgspec.Struct, frozen=True):
    """Answer of expire."""

    expired: int = 0
    evicted: int = 0
    forgotten: int = 0
    forgotten_early: int = 0

    @property
    def total(self) -> int:
        return self.expired + self.evicted + self.forgotten + self.forgotten_early


class WriteStatus(StrEnum):
    """The outcome of a write of an object."""

    OK = "OK"
    EXISTS = "EXISTS"
    CONFLICT = "CONFLICT"
    MISSING = "MISSING"
    FULL = "FULL"  #: no memory for a new one, or no room in the stream for its copy; nothing was written


class Written(msgspec.Struct, frozen=True):
    """Answer of a write: the new *version* with OK, the one there is with EXISTS and CONFLICT, else ""."""

    status: WriteStatus
    version: str = ""


class Happened(msgspec.Struct, frozen=True):
    """How often something happened, in which minute since 1970, and the field of occurrences for it."""

    times: int
    minute: int
    what: str


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """The object that put writes, its id, and its JSON without kind's version."""

    plural: str
    namespace: str
    name: str
    key: bytes
    body: bytes


class Checkpoints(msgspec.Struct, frozen=True):
    """Answer of checkpoint: the number of the oldest, and (number, versions) of those that the caller did not know."""

    oldest: int
    entries: tuple[tuple[int, tuple[int, ...]], ...]


class CorrelateCall(msgspec.Struct, frozen=True):
    """The input of one call of `correlate_and_store`: state keys, and the packed arguments that count them from 1."""

    keys: Sequence[bytes]
    subjects: bytes
    bodies: Sequence[bytes]
    batches: Sequence[bytes]
    burials: Sequence[int]  #: how many entries of the dead letter each batch becomes
    members: bytes = b""  #: packed, by id: the members of both indexes that lead to objects which are not ours


#: A bucket that never fills again is garbage too, some day: ten years.
LONGEST_BUCKET_S = 10 * 366 * 86_400


@cache
def option_arguments(options: Options) -> tuple[Any, ...]:
    """ARGV[3] to ARGV[16] of record."""
    return (
        options.burst,
        f"{options.qps:.17g}",
        options.max_events,
        options.max_interval_s * 1000,
        options.aggregate_message,
        options.event_ttl_s * 1000,
        options.record_ttl_s * 1000,
        int(options.report_suppressed),
        *subject_lives_ms(options),
        options.refresh_s * 1000,
        options.occurrences_s * 1000,
        _report_message(options),
        "" if options.spam_key is not SpamKey.OBJECT else EventType.NORMAL.value,
    )


def _report_message(options: Options) -> str:
    """Return what a report of suppression says."""
    then = f"one every {round(1 / options.qps, 3):g} s" if options.qps else "none"
    return f"events held back as spam (burst {options.burst}, then {then}); count says how many"


def subject_lives_ms(options: Options) -> tuple[int, int]:
    """Return how long Redis keeps a set of similar messages, and a token bucket, after their last use.

    Redis counts by its own clock and the rules by that of the entries, which workers may read as late as the stream
    is held for them: what an entry that waits may still need is not collected.
    """
    refill_s = options.burst / options.qps if options.qps else math.inf
    bucket_s = math.ceil(min(2 * max(1, refill_s), LONGEST_BUCKET_S))
    return 1000 * (2 * options.max_interval_s + options.hold_s), 1000 * (bucket_s + options.hold_s)


def pack_argument(value: Any) -> bytes:
    """Msgpack as the server's cmsgpack reads it: it knows no bin type."""
    packed: bytes = msgpack.packb(value, use_bin_type=False)
    return packed


def unpack_versions(fields: Sequence[bytes]) -> tuple[int, ...]:
    """Read the versions of all partitions out of the fields of a checkpoint."""
    return tuple(int(version) for version in msgpack.unpackb(fields[1]))


class PublishState(msgspec.Struct, frozen=True):
    """The state of the producer that `publish` needs besides the batch."""

    bound_bytes: int
    generation: str
    silent_ms: int
    bus_id: str = ""  #: of the bus that was opened; "" is not compared
    life_ms: int = PRODUCER_LIFE_MS  #: of the producer's state in Redis


def publish_command(
    keys: Keys,
    producer: str,
    first: int,
    n: int,
    body: bytes,
    state: PublishState,
    losses: Sequence[tuple[str, int]] = (),
) -> tuple[Any, ...]:
    """Build the FCALL of one publish, for a pipeline. Safe to repeat: the sequence makes it idempotent.

    *producer*: its secret, part of the key of its state. A client that may publish and knew it could corrupt the state,
    so it is in no event.
    *losses* (cause, events) are counted with the batch, and only if it is accepted.
    """
    return function_command(
        "publish",
        (keys.incoming, keys.incoming_meta, keys.producer + producer.encode(), keys.meta),
        first,
        n,
        body,
        state.bound_bytes,
        state.generation,
        state.silent_ms,
        state.life_ms,
        state.bus_id,
        *(part for loss in losses for part in loss),
    )


def parse_reply(reply: Sequence[Any]) -> PublishReply:
    """Parse the reply of one publish."""
    status = PublishStatus(reply[0].decode())
    if status is PublishStatus.GAP:
        return PublishReply(status, last=int(reply[1]))
    if status is PublishStatus.FULL:
        return PublishReply(status, group=reply[1].decode())
    return PublishReply(status, generation=reply[1].decode() if len(reply) > 1 else "")


#: Changes that refresh may make a second, a partition: they share `changes` with what is written.
REFRESHED_A_SECOND = 200
#: Members of an index that are read at once.
_PAGE = 1000


class _HasId(Protocol):
    """A bus, as far as the functions ask which one it is."""

    @property
    def id(self) -> str: ...


class Functions:
    """The functions on one partition's keys. Every method is one FCALL.

    Those that write without having read it there refuse the keys of another bus than *bus*; None: they do not ask.
    """

    def __init__(self, client: Client, keys: Keys, bus: _HasId | None = None) -> None:
        self._client = client
        self._call = partial(call_function, client)
        self._keys = keys
        self._bus = bus

    @property
    def _bus_id(self) -> str:
        """As it is now: a bus that was made anew has another. "": nobody asks."""
        return self._bus.id if self._bus else ""

    def open(
        self, generation: str, group: str = "", policy: GroupPolicy = GroupPolicy.WAIT, start: str = "0"
    ) -> Opened:
        """Make the stream and, if named, a group on it, or find them made. Safe to repeat."""
        keys = self._keys
        events = (keys.changes_of(EVENTS), keys.version_of(EVENTS))
        fixed = (keys.incoming, keys.incoming_meta, keys.meta, *events, keys.note_of("bus:incoming"), keys.spoiled)
        reply = self._call("open", fixed, generation, group, policy, start, self._bus_id)
        return Opened(reply[0].decode(), bool(reply[1]), bool(reply[2]))

    def correlate_and_store(self, group: str, consumer: str, options: Options, call: CorrelateCall) -> list[str]:
        """Correlate, write and acknowledge; correlate_and_store.lua has the reply's letters. Safe to repeat."""
        with redis_errors():
            reply: Any = self._client.execute_command(*self._correlate_command(group, consumer, options, call))
        return self._answer_of(reply, group, consumer, options, call)

    def begin_correlate_and_store(
        self, group: str, consumer: str, options: Options, call: CorrelateCall, behind: PendingCall | None
    ) -> PendingCall:
        """Send it without waiting, so that the next call can be prepared; and sent, *behind* this one."""
        return PendingCall(self._client, *self._correlate_command(group, consumer, options, call), behind=behind)

    def end_correlate_and_store(
        self, pending: PendingCall, group: str, consumer: str, options: Options, call: CorrelateCall
    ) -> list[str]:
        """Wait for the reply of `begin_correlate_and_store`, which was given the same arguments."""
        return self._answer_of(pending.reply(), group, consumer, options, call)

    def _answer_of(self, reply: Any, group: str, consumer: str, options: Options, call: CorrelateCall) -> list[str]:
        """Decode the reply. If it asks for members of long indexes, find them, and call again with them."""
        members: dict[bytes, list[bytes]] = {}
        while keys := asked_for_members(reply):
            members |= self._members_of([key[-ID_CHARS:] for key in keys if key.startswith(self._keys.object)])
            with redis_errors():
                given = msgspec.structs.replace(call, members=pack_argument(members))
                reply = self._client.execute_command(*self._correlate_command(group, consumer, options, given))
        return decode_correlate_reply(reply)

    def _members_of(self, ids: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """Find the members of both indexes that lead to *ids*; b"": there is none. In pages, so that no call is long.

        An object that is not ours has no member that another call adds meanwhile: it would have made the object ours.
        """
        found = {each: [b"", b""] for each in ids}
        for number, index in enumerate((self._keys.index_name, self._keys.index_object)):
            low = b"-"
            while True:
                with redis_errors():
                    page: Any = self._client.execute_command("ZRANGE", index, low, "+", "BYLEX", "LIMIT", 0, _PAGE)
                for member in page:
                    if (pair := found.get(member[-ID_CHARS:])) and not pair[number]:
                        pair[number] = member
                if len(page) < _PAGE:
                    break
                low = b"(" + page[-1]
        return found

    def _correlate_command(self, group: str, consumer: str, options: Options, call: CorrelateCall) -> tuple[Any, ...]:
        keys = self._keys
        fixed = (
            keys.incoming,
            keys.meta,
            keys.index_name,
            keys.index_object,
            keys.index_expiry,
            keys.index_forget,
            keys.index_refresh,
            keys.index_subject,
            keys.changes_of(EVENTS),
            keys.suppressed,
            keys.dead,
            keys.attempts + group.encode(),
            keys.version_of(EVENTS),
            keys.note_of(EVENTS),
            keys.spoiled,
        )
        every = (*fixed, *call.keys)
        options_given = option_arguments(options)
        arguments = (group, consumer, *options_given, self._bus_id, call.subjects, call.members)
        arguments += (len(call.bodies), *call.bodies, *call.batches)
        return function_command("correlate_and_store", every, *arguments)

    def trim(self, options: Options, limit: int = 10_000) -> Trimmed:
        """Forget what every group has finished with. Safe to repeat."""
        keys = self._keys
        reply = self._call(
            "trim",
            (
                *(keys.incoming, keys.incoming_meta, keys.meta, keys.changes_of(EVENTS), keys.dead, keys.workers),
                *(keys.version_of(EVENTS), keys.note_of("bus:incoming"), keys.note_of("bus:dead"), keys.spoiled),
            ),
            limit,
            options.incoming_bytes,
            options.changes_bytes,
            options.dead_bytes,
            options.hold_s * 1000,
        )
        return Trimmed(reply[0], reply[1].decode(), reply[2], reply[3] == b"destroyed")

    def bury(
        self,
        group: str,
        consumer: str,
        entry: bytes,
        cause: str,
        deaths: int,
        body: bytes,
        *,
        whole: bool = True,
        next_position: int | None = None,
    ) -> bool:
        """Move an entry (or, not *whole*, one event of it) to the dead letter. False: no longer this consumer's.

        *next_position* is where work one event at a time goes on in what is left of the entry.
        """
        keys = self._keys
        failpoint("bury")
        buried = bool(
            self._call(
                "bury",
                (
                    *(keys.incoming, keys.dead, keys.meta, keys.attempts + group.encode()),
                    *(_note_of_group(keys, group), keys.spoiled),
                ),
                group,
                consumer,
                entry,
                cause,
                deaths,
                body,
                int(whole),
                "" if next_position is None else next_position,
            )
        )
        failpoint("buried")
        return buried

    def isolate(self, group: str, consumer: str, entry: bytes, position: int) -> bool:
        """Note that the event at *position* of *entry* is about to be worked alone. Safe to repeat.

        False: the entry is no longer this consumer's.
        """
        keys = self._keys
        fixed = (keys.incoming, keys.attempts + group.encode())
        return bool(self._call("isolate", fixed, group, consumer, entry, position))

    def replay(self, options: Options, dead: bytes) -> ReplayStatus:
        """Give the dead entry back to the group that buried it. Safe to repeat: the entry moves once."""
        keys = self._keys
        fixed = (keys.incoming, keys.incoming_meta, keys.dead, keys.meta, keys.note_of("bus:dead"), keys.spoiled)
        answer: bytes = self._call("replay", fixed, dead, options.incoming_bytes)[0]
        return ReplayStatus(answer.decode())

    def discard(self, dead: bytes) -> bool:
        """Let the dead entry go for good. False: it was gone already."""
        keys = self._keys
        fixed = (keys.incoming, keys.incoming_meta, keys.dead, keys.meta, keys.note_of("bus:dead"), keys.spoiled)
        return bool(self._call("discard", fixed, dead))

    def export_retry(self, sink: str, dead: bytes) -> bool:
        """Have the dead entry that the export to *sink* has buried written once more. False: it is gone."""
        keys = self._keys
        return bool(self._call("export_retry", (keys.dead, keys.later + sink.encode()), dead))

    def claim(self, group: str, consumer: str, dead: str, beats: str, limit: int = 64) -> dict[bytes, int]:
        """Take over up to *limit* entries of a consumer that is dead, or has left: *beats* "", which counts no death.

        Returns deaths by entry id, oldest first.
        """
        keys = self._keys
        reply = self._call(
            "claim",
            (keys.incoming, keys.workers, keys.attempts + group.encode()),
            *(group, consumer, name_bytes(dead), name_bytes(beats), limit),
        )
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def expire(self, options: Options, candidates: Sequence[bytes], now_ms: int | None = None) -> Swept:
        """Expire or evict those of *candidates* (ids, at most 100) that are due. Safe to repeat."""
        keys = self._keys
        fixed = (
            keys.meta,
            keys.index_name,
            keys.index_object,
            keys.index_expiry,
            keys.index_forget,
            keys.changes_of(EVENTS),
            keys.suppressed,
            keys.version_of(EVENTS),
            keys.note_of(EVENTS),
            keys.spoiled,
        )
        reply = self._call(
            "expire",
            (*fixed, *(keys.object + candidate for candidate in candidates)),
            options.max_stored,
            options.max_records,
            options.event_ttl_s * 1000,
            options.record_ttl_s * 1000,
            "" if now_ms is None else now_ms,
        )
        return Swept(*reply)

    def forget(self, options: Options, subjects: Sequence[bytes]) -> int:
        """Let go of those of *subjects* (members of the index, at most 100) that may go. Safe to repeat."""
        keys = self._keys
        pairs = [key for one in subjects for key in (keys.aggregate + one[:ID_CHARS], keys.spam + one[ID_CHARS:])]
        fixed = (keys.meta, keys.index_subject, keys.note_of(EVENTS), keys.spoiled)
        reply = self._call("forget", (*fixed, *pairs), options.max_records, *subject_lives_ms(options))
        return int(reply[0])

    def refresh(self, candidates: Sequence[bytes], now_ms: int | None = None) -> int:
        """Show those of *candidates* (ids, at most 200) that are due. Returns how many were. Safe to repeat."""
        keys = self._keys
        indexes = (keys.meta, keys.index_name, keys.index_object, keys.index_refresh)
        fixed = (*indexes, keys.changes_of(EVENTS), keys.version_of(EVENTS), keys.note_of(EVENTS), keys.spoiled)
        every = (*fixed, *(keys.object + candidate for candidate in candidates))
        reply = self._call("refresh", every, REFRESHED_A_SECOND, "" if now_ms is None else now_ms)
        return int(reply[0])

    def finish(self, plural: str) -> bool:
        """Do what a cut-off call on objects of this kind has left to do. False: nothing. Safe to repeat."""
        return bool(self._call("finish", (self._keys.note_of(plural), self._keys.spoiled), plural))

    def put(self, options: Options, item: Item, version: str, was: bytes = b"") -> Written:
        """Create (*version* "") or replace an object that is no event."""
        body = (version, item.namespace, item.name, item.body, was, options.changes_bytes, self._bus_id)
        return _written(self._call("put", self._item_keys(item.plural, item.key), *body))

    def remove(self, options: Options, plural: str, key: bytes, version: str = "") -> Written:
        """Take an object that is no event out."""
        return _written(
            self._call("remove", self._item_keys(plural, key), version, options.changes_bytes, self._bus_id)
        )

    def write_event_command(
        self,
        options: Options,
        key: bytes,
        version: str,
        event: bytes,
        copy: bytes = b"",
        was: bytes = b"",
        *,
        happened: Happened,
    ) -> tuple[Any, ...]:
        """Create (*version* "") or replace an event under its own name. *event*: as it is stored, see docs/wire.md.

        *copy*: the body of a batch of this one event for those who read the stream; the group `sink` passes it over.
        Returns: the command; `decode_written` decodes its reply.
        """
        *keys, spoiled = self._event_keys(key)
        minute = self._keys.occurrences + b"%d" % happened.minute
        counted = (happened.times if options.occurrences_s else 0, happened.what, options.occurrences_s * 1000)
        arguments = (version, event, options.event_ttl_s * 1000, copy, options.incoming_bytes, was, self._bus_id)
        return function_command("write_event", (*keys, minute, spoiled), *arguments, *counted)

    def overlay_event(
        self,
        options: Options,
        key: bytes,
        version: str,
        overlay: bytes,
        once: bytes,
        copy: bytes = b"",
        was: bytes = b"",
    ) -> Written:
        """Lay *overlay* over a recorded event until it goes, and *once* until its next repeat."""
        ttl_ms = options.event_ttl_s * 1000
        arguments = (version, overlay, once, ttl_ms, copy, options.incoming_bytes, was, self._bus_id)
        return _written(self._call("overlay_event", self._event_keys(key), *arguments))

    def remove_event(self, options: Options, key: bytes, version: str = "") -> Written:
        """Take one event out; the running count of a recorded one stays."""
        keys = self._keys
        names = (keys.version_of(EVENTS), keys.note_of(EVENTS), keys.index_name, keys.index_object)
        fixed = (*names, keys.index_expiry, keys.index_forget, keys.changes_of(EVENTS), keys.object + key)
        arguments = (version, options.record_ttl_s * 1000, self._bus_id)
        return _written(self._call("remove_event", (*fixed, keys.meta, keys.spoiled), *arguments))

    def checkpoint(
        self, versions: Sequence[int], *, after: int | None = None, whole: bool = False, lost: int | None = None
    ) -> Checkpoints | None:
        """Put what was read of the versions of all partitions into the line that all share. On partition 0 only.

        None: the line must be begun anew, which takes *whole* versions. Safe to repeat.
        """
        known, ahead = ("" if number is None else number for number in (after, lost))
        reply = self._call("checkpoint", (self._keys.checkpoints,), known, int(whole) or "", ahead, *versions)
        if len(reply) == 1:
            return None
        entries = ((int(entry_id.partition(b"-")[0]), unpack_versions(fields)) for entry_id, fields in reply[2])
        return Checkpoints(int(reply[1]), tuple(entries))

    def announce(self, what: str, name: str) -> None:
        """Note that a process of this build, *what* (worker or recorder), uses the bus. On partition 0 only."""
        self._call(*announce_arguments(self._keys, what, name))

    def _item_keys(self, plural: str, key: bytes) -> tuple[bytes, ...]:
        keys = self._keys
        fixed = (keys.version_of(plural), keys.note_of(plural), keys.index_name_of(plural), keys.changes_of(plural))
        return (*fixed, keys.object_of(plural) + key, keys.meta, keys.spoiled)

    def _event_keys(self, key: bytes) -> tuple[bytes, ...]:
        keys = self._keys
        return (*_fixed_event_keys(keys), keys.object + key, keys.meta, keys.spoiled)


@lru_cache(maxsize=64)
def _fixed_event_keys(keys: Keys) -> tuple[bytes, ...]:
    fixed = (keys.version_of(EVENTS), keys.note_of(EVENTS), keys.index_name, keys.index_object, keys.index_expiry)
    return (*fixed, keys.changes_of(EVENTS), keys.incoming, keys.incoming_meta)


def decode_written(reply: Any) -> Written:
    """Decode the reply of `write_event_command`."""
    return _written(proper(reply))


def _written(reply: Sequence[bytes]) -> Written:
    return Written(WriteStatus(reply[0].decode()), reply[1].decode() if len(reply) > 1 else "")


def _note_of_group(keys: Keys, group: str) -> bytes:
    """Return the note's key for a group; the store's own group shares the one of the events that it writes."""
    return keys.note_of(EVENTS if group == SINK_GROUP else f"group:{group}")


def announce_arguments(keys: Keys, what: str, name: str) -> tuple[Any, ...]:
    """Return verb, keys and arguments of an announcement, for `call_function` and for a pipeline."""
    return ("announce", (keys.builds,), what, name, numbers_text(FORMATS), numbers_text(CODECS))


def beat_command(keys: Keys, group: str, consumer: str) -> tuple[Any, ...]:
    """Build the FCALL of one heartbeat, for a pipeline."""
    return function_command("beat", (keys.workers,), f"{group}/{consumer}")
