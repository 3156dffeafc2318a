"""What the functions are given and what they answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from typing import Any

import msgpack
import msgspec

from eventbus.settings import Options


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
    """What a write of an object came to."""

    OK = "OK"
    EXISTS = "EXISTS"
    CONFLICT = "CONFLICT"
    MISSING = "MISSING"
    FULL = "FULL"  #: no memory for a new one, or no room in the stream for its copy; nothing was written


class Written(msgspec.Struct, frozen=True):
    """Answer of a write: the new *version* with OK, the one there is with EXISTS and CONFLICT, else ""."""

    status: WriteStatus
    version: str = ""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What put writes: which object, its key (32 hex), and its JSON without kind's version."""

    plural: str
    namespace: str
    name: str
    key: bytes
    body: bytes


class RecordCall(msgspec.Struct, frozen=True):
    """What one call of record works on: state keys, and the packed arguments that count them from 1."""

    keys: Sequence[bytes]
    subjects: bytes
    batches: Sequence[bytes]


#: A bucket that never fills again is garbage too, some day: ten years.
LONGEST_BUCKET_S = 10 * 366 * 86_400


@cache
def option_arguments(options: Options) -> tuple[Any, ...]:
    """ARGV[3] to ARGV[14] of record."""
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
    )


def subject_lives_ms(options: Options) -> tuple[int, int]:
    """How long Redis keeps a set of similar messages, and a token bucket, after their last use.

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
