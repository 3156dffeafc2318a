"""The state of an export in Redis, for one sink on one partition: its holder, its position, the sink's replies."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import msgpack
import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.calls import call_function
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import EVENTS, name_bytes, name_text, version_in, versions_in, whole_number
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import ConfigError
from eventbus.model.decodable import decodable

#: Versions that one round trip looks for.
ASKED = 500


class UpdateState(msgspec.Struct, frozen=True, array_like=True):
    """The sink's last reply about one event: client-go's UpdateState, shared by all workers of the sink.

    *rv* is the store's version that was written then, *ms* the time, by the worker's clock. If the event was buried,
    both are those of the burial; with *written* False the sink never had it, and only the rule for repeats may use it.
    """

    name: str
    version: str
    rv: int
    count: int
    ms: int
    written: bool = True


class Burial(msgspec.Struct, frozen=True, array_like=True):
    """One event that a sink will not take. *key* is the store's, *body* a batch of this one event."""

    cause: str
    delivery_id: str
    group: str
    key: str
    why: str
    body: bytes


class LostVersions(msgspec.Struct, frozen=True):
    """The versions among which the store has lost some: above *after*, not above *until*. Noticed at *noticed_ms*."""

    after: int
    until: int
    noticed_ms: int

    def __str__(self) -> str:
        return f"{self.after}-{self.until}@{self.noticed_ms}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the result of `str`; None: *text* is no such result."""
        match = re.fullmatch(r"(\d{1,16})-(\d{1,16})@(\d{1,16})", text, re.ASCII)
        return None if match is None else cls(*map(int, match.groups()))


class ExportHold(msgspec.Struct, frozen=True):
    """The reply of `acquire`: ours, at *position* (None: a new sink), or held by *holder* with the counter *beats*."""

    ours: bool
    position: int | None = None
    holder: str = ""
    beats: str = ""


class ExportCheckpoint(msgspec.Struct, kw_only=True):
    """The data that one call of `settle` stores.

    *returned*: the sink's replies by the store's key; None forgets one. It is mutable, since it is filled step by step.
    """

    call: str = msgspec.field(default_factory=lambda: os.urandom(8).hex())  #: by which Redis recognizes a repeated call
    position: int | None = None
    returned: dict[str, UpdateState | None] = {}
    refreshed: list[str] = []  #: keys with replies that must live longer, because their events are suppressed
    later: dict[str, int] = {}  #: event key → ms since 1970, when it is to be looked at again
    done: list[str] = []  #: event keys and dead entry ids that wait no longer
    burials: list[Burial] = []
    figures: dict[str, str] = {}
    raised: dict[str, int] = {}


def export_group(sink: str) -> str:
    """Return the group name of the workers of *sink*, used in the dead letter and for heartbeats."""
    return f"export:{sink}"


class ExportStore:
    """One sink on one partition, as *consumer*. One client; use it from one thread at a time."""

    def __init__(self, *, bus: Bus, client: Client, partition: int, sink: str, consumer: str) -> None:
        self._bus = bus
        self._client = client
        self._call = partial(call_function, client)
        self._sink = sink
        self._consumer = consumer
        self._keys = keys = bus.keys[partition]
        self._export = keys.export + sink.encode()
        self._later = keys.later + sink.encode()
        self._changes = keys.changes_of(EVENTS)
        self._note = keys.note_of(f"export:{sink}")
        # It ends with the generation of the sink, as soon as the export is held.
        self._exported = self._exported_of = keys.exported + sink.encode() + b":"
        # Garbage collection only: older events have expired in the store too.
        self._life_ms = 2 * bus.options.event_ttl_s * 1000

    def acquire(self, holder: str = "", beats: str = "") -> ExportHold:
        """Take the export if it is free, or if *holder* has it and its counter still is *beats*. Idempotent."""
        reply = self._call(
            "export_acquire",
            (self._export, self._keys.workers, self._keys.meta, self._note, self._keys.corrupt),
            *(self._sink, self._consumer, name_bytes(holder), name_bytes(beats), self._bus.id),
        )
        if reply[0] == b"OK":
            self._exported = self._exported_of + reply[2] + b":"
            return ExportHold(True, self._position(reply[1]) if reply[1] else None)
        return ExportHold(False, None, name_text(reply[1]), name_text(reply[2]))

    def release(self) -> None:
        """Release the export, if we hold it. Idempotent."""
        self._call("export_release", (self._export, self._keys.workers), self._sink, self._consumer)

    def settle(self, settled: ExportCheckpoint) -> bool:
        """Store *settled*, all of it or nothing. False: another worker holds the export.

        Idempotent with the same *settled*.
        """
        kept: dict[str, bytes | bool] = dict.fromkeys(settled.refreshed, True)
        kept |= {key: msgspec.msgpack.encode(value) if value else b"" for key, value in settled.returned.items()}
        burials = [msgspec.to_builtins(burial, builtin_types=(bytes,)) for burial in settled.burials]
        given = [settled.figures, settled.raised, list(kept.values()), settled.later, settled.done, burials]
        return bool(
            self._call(
                "export_settle",
                (
                    *(self._export, self._later, self._keys.dead, self._keys.meta, self._note, self._keys.corrupt),
                    *(self._exported + key.encode() for key in kept),
                ),
                self._consumer,
                "" if settled.position is None else settled.position,
                self._life_ms,
                # Lua's reader has one kind of string.
                msgpack.packb(given, use_bin_type=False),
                settled.call,
            )
        )

    def returned(self, keys: Sequence[str]) -> dict[str, UpdateState]:
        """Read the sink's last replies about *keys*; keys without one are left out."""
        if not keys:
            return {}
        with redis_errors():
            values: Any = self._client.mget([self._exported + key.encode() for key in keys])
        states = {key: _returned(value) for key, value in zip(keys, values, strict=True) if value}
        return {key: value for key, value in states.items() if value is not None}

    def newest_version(self) -> int:
        """Read the version of the store's last change."""
        with redis_errors():
            text: Any = self._client.get(self._keys.version_of(EVENTS))
        return version_in(text)

    def lost_versions(self) -> LostVersions | None:
        """Read the versions that the last worker of the sink has noted as lost; None: none."""
        with redis_errors():
            text: Any = self._client.hget(self._export, "lost")
        return LostVersions.parse(text.decode("ascii", "replace")) if text else None

    def entry_before(self, version: int) -> int | None:
        """Return the version of the last entry of changes up to *version*; None: the stream begins after it."""
        with redis_errors():
            entries: Any = self._client.xrevrange(self._changes, f"{version}-0", "-", count=1)
        return versions_in(entries[0])[1] if entries else None

    def lost_among(self, versions: Sequence[int]) -> set[int]:
        """Return those of *versions* that lie between two entries of changes: the store gave and has lost them."""
        lost: set[int] = set()
        for start in range(0, len(versions), ASKED):
            asked = versions[start : start + ASKED]
            pipe = self._client.pipeline(transaction=False)
            for version in asked:
                pipe.xrevrange(self._changes, f"({version}-0", "-", count=1)
                pipe.xrange(self._changes, f"{version}-0", "+", count=1)
            with redis_errors():
                replies = pipe.execute()
            for version, before, after in zip(asked, replies[::2], replies[1::2], strict=True):
                if before and after and version < versions_in(after[0])[0]:
                    lost.add(version)
        return lost

    def paused_since(self) -> float | None:
        """Read since when the sink has not answered, seconds since 1970, as its last worker noted; None: it answers."""
        with redis_errors():
            text: Any = self._client.hget(self._export, "paused_since_ms")
        since_ms = whole_number(text)
        return since_ms / 1000 if since_ms else None

    def due(self, now_ms: int, limit: int) -> list[str]:
        """Read the event keys and dead letter ids that are due, at most *limit*."""
        with redis_errors():
            members: Any = self._client.execute_command("ZRANGE", self._later, 0, now_ms, "BYSCORE", "LIMIT", 0, limit)
        return [member.decode() for member in members]

    def stored(self, keys: Sequence[str]) -> list[bytes | None]:
        """Read the store's objects under *keys*, packed; None for a key that has none."""
        if not keys:
            return []
        with redis_errors():
            values: Any = self._client.mget([self._keys.object + key.encode() for key in keys])
        return list(values)

    def buried(self, entry_id: str) -> Mapping[bytes, bytes] | None:
        """Read the fields of a dead entry; None: it is gone."""
        with redis_errors():
            entries: Any = self._client.xrange(self._keys.dead, entry_id, entry_id)
        return entries[0][1] if entries else None

    def _position(self, text: bytes) -> int:
        position = whole_number(text)
        if position is None:  # not taken for a new sink: all would be written again
            where = f"{self._sink} on partition {self._keys.partition}"
            cure = f"HDEL {self._export.decode()} position has it write all there again"
            raise ConfigError(f"the position of sink {where} is no number: {cure}", cure=cure)
        return position


def _returned(value: bytes) -> UpdateState | None:
    try:
        return msgspec.msgpack.decode(value, type=decodable(UpdateState))
    except msgspec.DecodeError:  # of a later version; as if the sink had returned nothing
        return None
