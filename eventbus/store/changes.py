"""The changes of one kind: versions, entries of its streams, and reading the changes after a version.

One rule finds every loss: an entry holds the changes from its first version to its last, which is its id. The first
version must be at most one above the last version of the entry before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import ID_CHARS, history_in, version_in, versions_in
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import Expired, InvalidObject, PoisonBatch
from eventbus.model.list_watch import HasMetadata
from eventbus.store.selection import Was, decode_was
from eventbus.store.storage import ChangeType, Storage

T = TypeVar("T", bound=HasMetadata)

#: Entries of one read. Most have one change, those of a busy worker about a hundred.
READ_COUNT = 50
#: The version of a kind before its first write; not 0, which means *any* in a list.
NEVER_WRITTEN = 1
#: The version of a watch that has not delivered all its initial objects: no watch can continue from it.
UNFINISHED = "unfinished"


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One change. *object* has the version that its storage reads; for DELETED it is the last state.

    *version* is that of the change. *was* has the former values of selectable fields; None: they have not changed.
    """

    type: ChangeType
    object: T
    key: str
    partition: int
    version: int = 0
    was: Was | None = None


class Versions:
    """The resource version of a list: one counter a partition, opaque to clients."""

    def __init__(self, counters: Sequence[int]) -> None:
        self.counters = tuple(counters)

    def __str__(self) -> str:
        return "-".join(map(str, self.counters))

    @classmethod
    def parse(cls, text: str, partitions: int) -> Self:
        """Parse the result of `str`.

        Raises: InvalidObject: *text* is not a version.
                Expired: it belongs to another bus, or to a watch that has not delivered all its initial objects.
        """
        if text == UNFINISHED:
            raise Expired("the watch ended before it had delivered all initial objects")
        parts = text.split("-")
        if not all(part.isdecimal() and part.isascii() and len(part) < 20 for part in parts):
            problem = f'Invalid value: "{text}": must be the version of a list or a watch'
            raise InvalidObject(f"resourceVersion: {problem}", field="resourceVersion", problem=problem)
        counters = [int(part) for part in parts]
        if len(counters) != partitions:
            raise Expired(f"resource version {text!r} has {len(counters)} parts, the store {partitions}")
        return cls(counters)


def read_versions(bus: Bus, client: Client, plural: str, partitions: Sequence[int]) -> list[int]:
    """Read the newest version of a kind on each of *partitions*, in one round. Redis: GET, in a pipeline."""
    pipe: Any = client.pipeline(transaction=False)
    for partition in partitions:
        pipe.get(bus.keys[partition].version_of(plural))
    with redis_errors():
        return [version_in(version) for version in pipe.execute()]


class StoreMark(NamedTuple):
    """The newest version of a kind on one partition, and the server process that wrote it; "" is unknown.

    A restarted or promoted server writes its own name with its first change, and may have lost the last changes.
    """

    version: int
    history: str

    @classmethod
    def parse(cls, text: str) -> StoreMark:
        """Parse the result of `str`; of another text, a mark that nothing is compared with."""
        version, _, history = text.partition(":")
        return cls(int(version), history) if version.isdecimal() else cls(NEVER_WRITTEN, "")

    def __str__(self) -> str:
        return f"{self.version}:{self.history}"

    def has_lost(self, now: StoreMark) -> bool:
        """Return True if changes up to this mark may be missing *now*."""
        return now.version < self.version or bool(self.history and now.history != self.history)


def read_marks(bus: Bus, client: Client, plural: str) -> list[StoreMark]:
    """Read the marks of all partitions, in one round. Redis: GET, in a pipeline."""
    pipe: Any = client.pipeline(transaction=False)
    for keys in bus.keys:
        pipe.get(keys.version_of(plural))
    with redis_errors():
        return [StoreMark(version_in(text), history_in(text)) for text in pipe.execute()]


class AheadOfStore(Expired):
    """The store is older than the *requested* version: it has lost changes, or the version is of another bus."""

    def __init__(self, requested: str, newest: str) -> None:
        super().__init__(f"Too large resource version: {requested}, current: {newest}")
        self.newest = newest


class Followed(NamedTuple):
    """The changes of some entries, oldest first, up to *version*. *lost*: changes after that are missing."""

    changes: list[Change[Any]]
    version: int
    lost: Expired | None


def follow(
    storage: Storage[Any], partition: int, after: int, entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]
) -> Followed:
    """Decode the *entries* of a stream for a reader that has read up to *after*.

    The only decoder of changes; it does no I/O. An entry that cannot be decoded is skipped, and its version still
    counts.
    """
    changes: list[Change[Any]] = []
    for entry in entries:
        (first, last), fields = versions_in(entry), entry[1]
        # The first entry ever written may have any first version: no entry before it can be lost.
        is_first = after == NEVER_WRITTEN and fields.get(b"at") == b"0"
        if first > after + 1 and not is_first:
            return Followed(changes, after, Expired(f"too old resource version: {after} ({first})"))
        changes += _changes(storage, partition, after, first, fields)
        after = last
    return Followed(changes, after, None)


def _changes(
    storage: Storage[Any], partition: int, after: int, first: int, fields: Mapping[bytes, bytes]
) -> Iterator[Change[Any]]:
    was, version = fields.get(b"W"), first - 1
    for name, packed in fields.items():
        if len(name) != 1 + ID_CHARS:
            continue  # f, at, W
        version += 1
        type_ = storage.letters.get(chr(name[0]))
        if type_ is None or version <= after:
            continue
        try:
            obj = storage.decode(packed)
            if obj is not None:
                key = name[1:].decode("ascii", "replace")
                yield Change(type_, obj, key, partition, version, decode_was(was))
        except PoisonBatch:
            continue


class ChangeReader(Generic[T]):
    """Reads the changes of one kind on one partition after a version. One thread, one connection."""

    def __init__(self, *, bus: Bus, client: Client, storage: Storage[T], partition: int, after: int) -> None:
        self._client = client
        self._storage = storage
        self._key = bus.keys[partition].changes_of(storage.kind.plural)
        self._partition = partition
        self.after = after

    def read(self, block_ms: int = 0) -> list[Change[T]]:
        """Read the changes of the next entries, oldest first; blocks for at most *block_ms* (0: never).

        Raises:  Expired: changes after `after` are gone, or the store was emptied: list again.
                 BusUnavailable: call again; nothing is lost.
        Redis:   XREAD on changes.
        """
        block: tuple[Any, ...] = ("BLOCK", block_ms) if block_ms else ()
        with redis_errors():
            reply: Any = self._client.execute_command(
                "XREAD", "COUNT", READ_COUNT, *block, "STREAMS", self._key, f"{self.after}-0"
            )
        if not reply:
            return []
        followed = follow(self._storage, self._partition, self.after, reply[0][1])
        if followed.lost is not None and followed.version == self.after:
            raise followed.lost  # the changes before the loss were returned by the last call
        self.after = followed.version
        return followed.changes
