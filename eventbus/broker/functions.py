"""The functions of the library as typed calls: most verbs of `lua/` are a method or a command here, with their keys.

Those of exports are in `exports.py`, those of the notifier in `notifications.py`. The keys and arguments of a call are
in the order of the header of its Lua file. Nothing here retries: callers know which calls are idempotent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

import msgpack
import msgspec

from eventbus.broker.build import function_command
from eventbus.broker.calls import PendingCalls, call_function, unwrap_reply
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import EVENTS, ID_CHARS, SINK_GROUP, Keys, name_bytes
from eventbus.broker.redis_errors import redis_errors
from eventbus.broker.transport import OnceRequest, PublishReply, PublishRequest, PublishStatus
from eventbus.model.event import EventType
from eventbus.model.formats import CODECS, FORMATS, numbers_text
from eventbus.settings import Options, SpamKey
from eventbus.util.failpoints import failpoint

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus

#: Changes that `refresh` may make a second, a partition: they share `changes` with the writes.
REFRESHED_A_SECOND = 200
#: A bucket that never fills again is deleted after ten years, in seconds.
LONGEST_BUCKET_S = 10 * 366 * 86_400
#: A series ends after six to twelve minutes without an event.
LONGEST_SERIES_GAP_S = 720
#: Members of an index that are read at once.
_PAGE = 1000
#: Batches in one call of `publish`, as in publish.lua.
MOST_BATCHES = 64


class GroupPolicy(StrEnum):
    """The policy for the unread entries of a consumer group when the stream grows too long."""

    WAIT = "WAIT"  #: they are kept if the group is alive, or was within *hold_s*
    DROP = "DROP"  #: they are dropped, and counted, beyond half of the bytes of the stream


class Opened(msgspec.Struct, frozen=True):
    """Reply of `open`."""

    generation: str
    made_stream: bool
    made_group: bool


class CorrelateCall(msgspec.Struct, frozen=True):
    """The input of one call of `correlate_and_store`.

    It has state keys, and packed arguments that refer to them by number, from 1.
    """

    keys: Sequence[bytes]
    subjects: bytes
    bodies: Sequence[bytes]
    batches: Sequence[bytes]
    burials: Sequence[int]  #: the number of dead letters that each batch makes
    unfolded: Callable[[], Sequence[bytes]]  #: returns the batches with a row for each event
    members: bytes = b""  #: packed, by id: the members of both indexes that lead to corrupt events


class Trimmed(msgspec.Struct, frozen=True):
    """Reply of `trim`: entries removed, and the group that lost unread events, if one did.

    *destroyed*: they were lost with the stream or the group; else because the group held the stream too long.
    """

    removed: int
    released_group: str
    lost: int
    destroyed: bool = False


class ReplayStatus(StrEnum):
    """Reply of `replay`."""

    OK = "OK"
    MISSING = "MISSING"  #: it was replayed or discarded before
    FULL = "FULL"  #: the stream takes no more
    NOGROUP = "NOGROUP"  #: the group that buried it does not exist any more


class Swept(msgspec.Struct, frozen=True):
    """Reply of `expire`: how many events and counts were removed."""

    expired: int = 0
    evicted: int = 0
    forgotten: int = 0
    forgotten_early: int = 0

    @property
    def total(self) -> int:
        return self.expired + self.evicted + self.forgotten + self.forgotten_early


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An object for `put`: its id, and its JSON without the version of the kind."""

    plural: str
    namespace: str
    name: str
    key: bytes
    body: bytes


class Happened(msgspec.Struct, frozen=True):
    """How often an event happened, in which minute since 1970, and the field of occurrences for it."""

    times: int
    minute: int
    field: str


class WriteStatus(StrEnum):
    """The outcome of a write of an object."""

    OK = "OK"
    EXISTS = "EXISTS"
    CONFLICT = "CONFLICT"
    MISSING = "MISSING"
    FULL = "FULL"  #: no memory for a new one, or no room in the stream for its copy; nothing was written


class Written(msgspec.Struct, frozen=True):
    """Reply of a write: the new *version* with OK, the stored one with EXISTS and CONFLICT, else ""."""

    status: WriteStatus
    version: str = ""


class Checkpoints(msgspec.Struct, frozen=True):
    """Reply of `checkpoint`: the number of the oldest, and (number, versions) of those that are new to the caller."""

    oldest: int
    entries: tuple[tuple[int, tuple[int, ...]], ...]


class Functions:
    """The functions on the keys of one partition. Most methods are one FCALL.

    Blind writes are refused if the keys belong to another bus than *bus*; None: they are not compared.
    """

    def __init__(self, client: Client, keys: Keys, bus: Bus | None = None) -> None:
        self._client = client
        self._call = partial(call_function, client)
        self._keys = keys
        self._bus = bus

    @property
    def _bus_id(self) -> str:
        """The current id: it changes when the bus is recreated."""
        return self._bus.id if self._bus else ""

    def open(
        self, generation: str, group: str = "", policy: GroupPolicy = GroupPolicy.WAIT, start: str = "0"
    ) -> Opened:
        """Create the stream and, if named, a group on it, unless they exist. Idempotent."""
        keys = self._keys
        reply = self._call(
            "open",
            (
                *(keys.incoming, keys.incoming_meta, keys.meta, keys.changes_of(EVENTS), keys.version_of(EVENTS)),
                *(keys.note_of("bus:incoming"), keys.corrupt),
            ),
            *(generation, group, policy, start, self._bus_id),
        )
        return Opened(reply[0].decode(), bool(reply[1]), bool(reply[2]))

    def correlate_and_store(self, group: str, consumer: str, options: Options, call: CorrelateCall) -> list[str]:
        """Correlate, store and acknowledge; correlate_and_store.lua explains the letters of the reply. Idempotent."""
        with redis_errors():
            reply: Any = self._client.execute_command(*self._correlate_command(group, consumer, options, call))
        return self._correlated(reply, group, consumer, options, call)

    def begin_correlate_and_store(
        self, group: str, consumer: str, options: Options, call: CorrelateCall, after: PendingCalls | None = None
    ) -> PendingCalls:
        """Send the call, after *after*, without waiting, so that the next call can be prepared in the meantime."""
        return PendingCalls(self._client, self._correlate_command(group, consumer, options, call), after=after)

    def end_correlate_and_store(
        self, pending: PendingCalls, group: str, consumer: str, options: Options, call: CorrelateCall
    ) -> list[str]:
        """Wait for the reply of `begin_correlate_and_store`, which had the same arguments."""
        return self._correlated(pending.replies()[0], group, consumer, options, call)

    def _correlated(self, reply: Any, group: str, consumer: str, options: Options, call: CorrelateCall) -> list[str]:
        """Decode the reply. If it asks for more, call again: with index members of corrupt events, or unfolded."""
        members: dict[bytes, list[bytes]] = {}
        while True:
            if reply[:2] == [b"!", b"members"]:
                members |= self._members_of([key[-ID_CHARS:] for key in reply[2:] if key.startswith(self._keys.object)])
                call = msgspec.structs.replace(call, members=pack_argument(members))
            elif reply == b"unfold" or reply[:2] == [b"!", b"unfold"]:
                call = msgspec.structs.replace(call, batches=call.unfolded())
            else:
                return [each.decode() for each in unwrap_reply(reply)]
            with redis_errors():
                reply = self._client.execute_command(*self._correlate_command(group, consumer, options, call))

    def _members_of(self, ids: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """Find the members of both indexes that lead to *ids*; b"": there is none. In pages, so that no call is long.

        No other call adds a member for a corrupt event meanwhile: that call would have replaced the event.
        """
        members = {each: [b"", b""] for each in ids}
        for number, index in enumerate((self._keys.index_name, self._keys.index_object)):
            low = b"-"
            while True:
                with redis_errors():
                    page: Any = self._client.execute_command("ZRANGE", index, low, "+", "BYLEX", "LIMIT", 0, _PAGE)
                for member in page:
                    if (pair := members.get(member[-ID_CHARS:])) and not pair[number]:
                        pair[number] = member
                if len(page) < _PAGE:
                    break
                low = b"(" + page[-1]
        return members

    def _correlate_command(self, group: str, consumer: str, options: Options, call: CorrelateCall) -> tuple[Any, ...]:
        return function_command(
            "correlate_and_store",
            (*_fixed_correlate_keys(self._keys, group), *call.keys),
            *(group, consumer, *option_arguments(options), self._bus_id, call.subjects, call.members),
            *(len(call.bodies), *call.bodies, *call.batches),
        )

    def trim(self, options: Options, limit: int = 10_000) -> Trimmed:
        """Remove the entries that every group has finished. Idempotent."""
        keys = self._keys
        reply = self._call(
            "trim",
            (
                *(keys.incoming, keys.incoming_meta, keys.meta, keys.changes_of(EVENTS), keys.dead, keys.workers),
                *(keys.version_of(EVENTS), keys.note_of("bus:incoming"), keys.note_of("bus:dead"), keys.corrupt),
            ),
            *(limit, options.incoming_bytes, options.changes_bytes, options.dead_bytes, options.hold_s * 1000),
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
        """Move an entry (or, not *whole*, one event of it) to the dead letter. False: this consumer lost the entry.

        *next_position*: where event-by-event work continues in the rest of the entry.
        """
        keys = self._keys
        failpoint("bury")
        buried = self._call(
            "bury",
            (
                *(keys.incoming, keys.dead, keys.meta, keys.attempts + group.encode()),
                # The group of the store shares the note of the events that it writes.
                *(keys.note_of(EVENTS if group == SINK_GROUP else f"group:{group}"), keys.corrupt),
            ),
            *(group, consumer, entry, cause, deaths, body, int(whole)),
            "" if next_position is None else next_position,
        )
        failpoint("buried")
        return bool(buried)

    def isolate(self, group: str, consumer: str, entry: bytes, position: int) -> bool:
        """Note that the event at *position* of *entry* is handled alone next. Idempotent.

        False: this consumer lost the entry.
        """
        keys = (self._keys.incoming, self._keys.attempts + group.encode())
        return bool(self._call("isolate", keys, group, consumer, entry, position))

    def claim(self, group: str, consumer: str, dead: str, beats: str, limit: int = 64) -> dict[bytes, int]:
        """Take over up to *limit* entries of a consumer that is dead.

        *beats*: its heartbeat counter; "": it has left, and no death is counted. Returns deaths by entry id, oldest
        first.
        """
        keys = self._keys
        reply = self._call(
            "claim",
            (keys.incoming, keys.workers, keys.attempts + group.encode()),
            *(group, consumer, name_bytes(dead), name_bytes(beats), limit),
        )
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def replay(self, options: Options, dead: bytes) -> ReplayStatus:
        """Return the dead letter *dead* to the group that buried it. Idempotent: it moves once."""
        answer: bytes = self._call("replay", self._dead_keys(), dead, options.incoming_bytes)[0]
        return ReplayStatus(answer.decode())

    def discard(self, dead: bytes) -> bool:
        """Delete the dead letter *dead*. False: it does not exist any more."""
        return bool(self._call("discard", self._dead_keys(), dead))

    def _dead_keys(self) -> tuple[bytes, ...]:
        keys = self._keys
        return (keys.incoming, keys.incoming_meta, keys.dead, keys.meta, keys.note_of("bus:dead"), keys.corrupt)

    def export_retry(self, sink: str, dead: bytes) -> bool:
        """Let the export to *sink* write its dead letter *dead* again. False: it does not exist any more."""
        return bool(self._call("export_retry", (self._keys.dead, self._keys.later + sink.encode()), dead))

    def expire(self, options: Options, candidates: Sequence[bytes], now_ms: int | None = None) -> Swept:
        """Expire or evict those of *candidates* (ids, at most 100) that are due, and free their sources. Idempotent."""
        keys = self._keys
        reply = self._call(
            "expire",
            (
                *(keys.meta, keys.index_name, keys.index_object, keys.index_expiry, keys.index_forget),
                *(keys.changes_of(EVENTS), keys.suppressed, keys.version_of(EVENTS), keys.note_of(EVENTS)),
                *(keys.corrupt, *(keys.object + candidate for candidate in candidates)),
            ),
            *(options.max_stored, options.max_records, options.event_ttl_s * 1000, options.record_ttl_s * 1000),
            "" if now_ms is None else now_ms,
        )
        *counts, sources = reply
        if sources:
            self.forget(options, dict(zip(sources[::2], map(int, sources[1::2]), strict=True)))
        return Swept(*counts)

    def forget(self, options: Options, used_ms: Mapping[bytes, int]) -> int:
        """Delete the states of sources (ids, at most 100) that were not used after that time. Idempotent."""
        keys = self._keys
        states = [keys.correlation + source for source in used_ms]
        fixed = (keys.meta, keys.note_of(EVENTS), keys.corrupt)
        return int(self._call("forget", (*fixed, *states), source_life_ms(options), *used_ms.values())[0])

    def refresh(self, options: Options, candidates: Sequence[bytes], now_ms: int | None = None) -> int:
        """Publish the counts of those of *candidates* (ids, at most 200) that are due. Returns how many. Idempotent."""
        keys = self._keys
        reply = self._call(
            "refresh",
            (
                *(keys.meta, keys.index_name, keys.index_object, keys.index_refresh, keys.changes_of(EVENTS)),
                *(keys.version_of(EVENTS), keys.note_of(EVENTS), keys.corrupt, keys.index_expiry),
                *(keys.object + candidate for candidate in candidates),
            ),
            *(REFRESHED_A_SECOND, "" if now_ms is None else now_ms, options.event_ttl_s * 1000),
        )
        return int(reply[0])

    def finish(self, plural: str) -> bool:
        """Complete an interrupted call on objects of this kind. False: there is none. Idempotent."""
        return bool(self._call("finish", (self._keys.note_of(plural), self._keys.corrupt), plural))

    def put(self, options: Options, item: Item, version: str, was: bytes = b"") -> Written:
        """Create (*version* "") or replace an object that is not an event."""
        body = (version, item.namespace, item.name, item.body, was, options.changes_bytes, self._bus_id)
        return _written(self._call("put", self._item_keys(item.plural, item.key), *body))

    def remove(self, options: Options, plural: str, key: bytes, version: str = "") -> Written:
        """Delete an object that is not an event."""
        arguments = (version, options.changes_bytes, self._bus_id)
        return _written(self._call("remove", self._item_keys(plural, key), *arguments))

    def _item_keys(self, plural: str, key: bytes) -> tuple[bytes, ...]:
        keys = self._keys
        fixed = (keys.version_of(plural), keys.note_of(plural), keys.index_name_of(plural), keys.changes_of(plural))
        return (*fixed, keys.object_of(plural) + key, keys.meta, keys.corrupt)

    def put_client_event_command(
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

        *copy*: a batch of this event for readers of the stream; the group `sink` skips it. Returns: the command;
        `decode_written` decodes its reply.
        """
        minute = self._keys.occurrences + b"%d" % happened.minute
        return function_command(
            "put_client_event",
            (*_fixed_event_keys(self._keys), self._keys.object + key, self._keys.meta, minute, self._keys.corrupt),
            *(version, event, options.event_ttl_s * 1000, copy, options.incoming_bytes, was, self._bus_id),
            *(happened.times if options.occurrences_s else 0, happened.field, options.occurrences_s * 1000),
        )

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
        """Patch a recorded event: with *overlay* until it is deleted, with *once* until its next repeat."""
        reply = self._call(
            "overlay_event",
            (*_fixed_event_keys(self._keys), self._keys.object + key, self._keys.meta, self._keys.corrupt),
            *(version, overlay, once, options.event_ttl_s * 1000, copy, options.incoming_bytes, was, self._bus_id),
        )
        return _written(reply)

    def remove_event(self, options: Options, key: bytes, version: str = "") -> Written:
        """Delete one event; the running count of a recorded one stays."""
        keys = self._keys
        reply = self._call(
            "remove_event",
            (
                *(keys.version_of(EVENTS), keys.note_of(EVENTS), keys.index_name, keys.index_object),
                *(keys.index_expiry, keys.index_forget, keys.changes_of(EVENTS), keys.object + key),
                *(keys.meta, keys.corrupt),
            ),
            *(version, options.record_ttl_s * 1000, self._bus_id),
        )
        return _written(reply)

    def checkpoint(
        self, versions: Sequence[int], *, after: int | None = None, whole: bool = False, lost: int | None = None
    ) -> Checkpoints | None:
        """Add the versions of all partitions, as the caller read them, to the shared checkpoints. On partition 0 only.

        None: call again with *whole*=True and all versions. Idempotent.
        """
        reply = self._call(
            "checkpoint",
            (self._keys.checkpoints,),
            *("" if after is None else after, int(whole) or "", "" if lost is None else lost, *versions),
        )
        if len(reply) == 1:
            return None
        entries = (
            (int(entry_id.partition(b"-")[0]), tuple(int(version) for version in msgpack.unpackb(fields[1])))
            for entry_id, fields in reply[2]
        )
        return Checkpoints(int(reply[1]), tuple(entries))

    def announce(self, role: str, name: str) -> None:
        """Note that a process of this build, a worker or recorder, uses the bus. On partition 0 only."""
        with redis_errors():
            self._client.execute_command(*announce_command(self._keys, role, name))


def publish_command(
    keys: Keys, requests: Sequence[PublishRequest], bound_bytes: int, bus_id: str = ""
) -> tuple[Any, ...]:
    """Return the call of `publish`, for a pipeline; `parse_replies` decodes its reply. Idempotent, by the sequence.

    *requests*: batches that `one_call` allows.  *bus_id*: of the bus that was opened; "": it is not compared.

    The secret of the producer is part of a key: a client that may publish and knows it could corrupt the state, so no
    event has it.
    """
    of = requests[0]
    return function_command(
        "publish",
        (keys.incoming, keys.incoming_meta, keys.producer + of.producer.encode(), keys.meta),
        *(bound_bytes, of.generation, of.silent_ms, of.life_ms, bus_id, of.first, len(of.losses)),
        *(part for loss in of.losses for part in loss),
        *(part for request in requests for part in (request.events, request.body)),
    )


def one_call(requests: Sequence[PublishRequest], another: PublishRequest) -> bool:
    """Return True if a call of `publish` with *requests* can have *another* as well: the next batch of the producer."""
    of, last = requests[0], requests[-1]
    return (
        (of.partition, of.producer, last.first + last.events) == (another.partition, another.producer, another.first)
        and not another.losses
        and len(requests) < MOST_BATCHES
    )


def parse_replies(reply: Sequence[Any], batches: int) -> list[PublishReply]:
    """Decode the reply of `publish`: an answer for each batch. Those after a refused one have its answer."""
    had, stored = reply[:2]
    before, generation = reply[2].decode(), reply[3].decode()
    answers = [PublishReply(PublishStatus.DUP, before)] * had
    if stored:
        accepted = PublishReply(PublishStatus.OK, generation)
        answers.append(PublishReply(PublishStatus.LOST, generation) if before != generation else accepted)
        answers += [accepted] * (stored - 1)
    if len(answers) < batches:
        answers += [_refusal(PublishStatus(reply[4].decode()), *reply[5:])] * (batches - len(answers))
    return answers


def _refusal(status: PublishStatus, detail: Any = b"") -> PublishReply:
    if status is PublishStatus.GAP:
        return PublishReply(status, last=detail)
    return PublishReply(status, group=detail.decode())


def publish_once_command(keys: Keys, request: OnceRequest, bound_bytes: int, bus_id: str = "") -> tuple[Any, ...]:
    """Return the call of `publish_once`, for a pipeline; `parse_once_reply` decodes its reply. Idempotent."""
    producers = [keys.producer + secret.encode() for secret in request.producers]
    return function_command(
        "publish_once",
        (keys.incoming, keys.incoming_meta, keys.meta, *producers),
        *(request.body, bound_bytes, request.life_ms, bus_id),
    )


def parse_once_reply(reply: Sequence[Any]) -> PublishReply:
    """Decode the reply of `publish_once`."""
    status = PublishStatus(reply[0].decode())
    if status is PublishStatus.DUP:
        return PublishReply(status, stored=tuple(position - 1 for position in reply[1:]))
    return PublishReply(status, group=reply[1].decode() if status is PublishStatus.FULL else "")


def announce_command(keys: Keys, role: str, name: str) -> tuple[Any, ...]:
    """Return the call of `announce`, for a pipeline."""
    return function_command("announce", (keys.builds,), role, name, numbers_text(FORMATS), numbers_text(CODECS))


def beat_command(keys: Keys, group: str, consumer: str) -> tuple[Any, ...]:
    """Return the call of `beat`, for a pipeline."""
    return function_command("beat", (keys.workers,), f"{group}/{consumer}")


def decode_written(reply: Any) -> Written:
    """Decode the reply of `put_client_event_command`."""
    return _written(unwrap_reply(reply))


def _written(reply: Sequence[bytes]) -> Written:
    return Written(WriteStatus(reply[0].decode()), reply[1].decode() if len(reply) > 1 else "")


@lru_cache(maxsize=64)
def _fixed_event_keys(keys: Keys) -> tuple[bytes, ...]:
    """KEYS[1] to KEYS[8] of `put_client_event` and `overlay_event`."""
    fixed = (keys.version_of(EVENTS), keys.note_of(EVENTS), keys.index_name, keys.index_object, keys.index_expiry)
    return (*fixed, keys.changes_of(EVENTS), keys.incoming, keys.incoming_meta)


def _fixed_correlate_keys(keys: Keys, group: str) -> tuple[bytes, ...]:
    """KEYS[1] to KEYS[14] of `correlate_and_store`."""
    indexes = (keys.index_name, keys.index_object, keys.index_expiry, keys.index_forget)
    return (
        *(keys.incoming, keys.meta, *indexes, keys.index_refresh, keys.changes_of(EVENTS)),
        *(keys.suppressed, keys.dead, keys.attempts + group.encode(), keys.version_of(EVENTS)),
        *(keys.note_of(EVENTS), keys.corrupt),
    )


@cache
def option_arguments(options: Options) -> tuple[Any, ...]:
    """ARGV[3] to ARGV[15] of `correlate_and_store`."""
    return (
        options.burst,
        f"{options.qps:.17g}",
        options.max_events,
        options.max_interval_s * 1000,
        options.aggregate_message,
        options.event_ttl_s * 1000,
        options.record_ttl_s * 1000,
        int(options.report_suppressed),
        source_life_ms(options),
        options.refresh_s * 1000,
        options.occurrences_s * 1000,
        _report_message(options),
        "" if options.spam_key is not SpamKey.OBJECT else EventType.NORMAL.value,
    )


def _report_message(options: Options) -> str:
    """Return the message of a report of suppression."""
    then = f"one every {round(1 / options.qps, 3):g} s" if options.qps else "none"
    return f"events suppressed as spam (burst {options.burst}, then {then}); count says how many"


def source_life_ms(options: Options) -> int:
    """Return how long Redis keeps the token bucket and the sets of similar messages of a source after their last use.

    Redis counts by its own clock, the rules by the times of the entries. Workers may read entries as late as the stream
    is held for them, so state that a waiting entry may need is not deleted.
    """
    refill_s = options.burst / options.qps if options.qps else math.inf
    bucket_s = math.ceil(min(2 * max(1, refill_s), LONGEST_BUCKET_S))
    set_s = max(2 * options.max_interval_s, LONGEST_SERIES_GAP_S)
    return 1000 * (max(set_s, bucket_s) + options.hold_s)


def pack_argument(value: Any) -> bytes:
    """Pack *value* for the cmsgpack of the server, which has no bin type."""
    packed: bytes = msgpack.packb(value, use_bin_type=False)
    return packed
