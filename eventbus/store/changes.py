"""Watching the store: the changes behind a version, in order, or the news that some are lost.

One rule finds every loss: the next change must be the last version plus one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Self

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import Expired, InvalidObject, PoisonBatch
from eventbus.event import Event
from eventbus.store.stored import decode_stored

READ_COUNT = 500
#: The version of a watch that has not told all it begins with: nobody can go on from there.
UNFINISHED = "unfinished"


class ChangeType(StrEnum):
    """What happened to the object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


_TYPES = {b"A": ChangeType.ADDED, b"M": ChangeType.MODIFIED, b"D": ChangeType.DELETED}


class Change(msgspec.Struct, frozen=True):
    """One change. *object* carries its version; of a DELETED one it is the last state with the deletion's version."""

    type: ChangeType
    object: Event
    key: str
    partition: int


class Versions:
    """The resource version of a list: one counter a partition, opaque to everybody else."""

    def __init__(self, counters: Sequence[int]) -> None:
        self.counters = tuple(counters)

    def __str__(self) -> str:
        return "-".join(map(str, self.counters))

    @classmethod
    def parse(cls, text: str, partitions: int) -> Self:
        """Read what `str` gave.

        Raises: InvalidObject: it is no version.
                Expired: it belongs to another bus, or stands in the middle of a watch's first events.
        """
        if text == UNFINISHED:
            raise Expired("the watch ended before it had told all there was")
        parts = text.split("-")
        if not all(part.isdecimal() and part.isascii() and len(part) < 20 for part in parts):
            raise InvalidObject(f'resourceVersion: Invalid value: "{text}": must be the version of a list or a watch')
        counters = [int(part) for part in parts]
        if len(counters) != partitions:
            raise Expired(f"resource version {text!r} has {len(counters)} parts, the bus {partitions} partitions")
        return cls(counters)


def follows(version: int, after: int) -> bool:
    """The one rule: the change behind *after* is the next number, or some are lost."""
    return version == after + 1


def change_type(letter: bytes) -> ChangeType:
    """As the stream has it. Raises: KeyError: it is none."""
    return _TYPES[letter]


def read_versions(bus: Bus, client: Client, partitions: Sequence[int] | None = None) -> list[int]:
    """The newest version of each partition (of *partitions*), in one round.

    Redis: HGET on meta, in a pipeline.
    """
    pipe: Any = client.pipeline(transaction=False)
    for partition in range(bus.partitions) if partitions is None else partitions:
        pipe.hget(bus.keys[partition].meta, "rv")
    with redis_errors():
        return [int(found or 0) for found in pipe.execute()]


class ChangeReader:
    """The changes of one partition behind a version. One thread, one connection."""

    def __init__(self, *, bus: Bus, client: Client, partition: int, after: int, count: int = READ_COUNT) -> None:
        self._client = client
        self._count = count
        self._key = bus.keys[partition].changes
        self._partition = partition
        self.after = after

    def read(self, block_ms: int) -> list[Change]:
        """The next changes, oldest first; blocks for at most *block_ms*.

        Raises:  Expired: changes behind `after` are gone, or the store was made anew: list again.
                 BusUnavailable: call again; nothing is lost by it.
        Redis:   XREAD on changes.
        """
        with redis_errors():
            reply: Any = self._client.execute_command(
                "XREAD", "COUNT", self._count, "BLOCK", max(1, block_ms), "STREAMS", self._key, f"{self.after}-0"
            )
        if not reply:
            return []
        found: list[Change] = []
        for entry_id, fields in reply[0][1]:
            version = int(entry_id.split(b"-")[0])
            if not follows(version, self.after):
                if found:
                    return found  # what is whole is handed out first; the next read raises
                raise Expired(f"too old resource version: {self.after} ({version})")
            self.after = version
            change = self._decode(fields)
            if change is not None:
                found.append(change)
        return found

    def _decode(self, fields: dict[bytes, bytes]) -> Change | None:
        if b"n" in fields:  # of another kind; its version counts all the same
            return None
        try:
            kind, key, event = _TYPES[fields[b"t"]], fields[b"k"].decode(), decode_stored(fields[b"o"])
        except (PoisonBatch, KeyError, UnicodeDecodeError):
            return None
        return None if event is None else Change(kind, event, key, self._partition)
