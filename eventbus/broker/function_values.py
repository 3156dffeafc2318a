"""Values that the functions are given and answer with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from typing import Any

import msgpack
import msgspec

from eventbus.model.event import EventType
from eventbus.settings import Options, SpamKey


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
