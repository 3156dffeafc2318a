"""Knows the type of every key of the bus in Redis, and what it means where one is something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

import msgspec

from eventbus.broker.access.roles import name_of
from eventbus.broker.keys import EVENTS, OPERATED, Keys
from eventbus.model.kinds import KINDS


class Expected(msgspec.Struct, frozen=True):
    """The type of a key, what stands still while it is something else, and what goes on without its content."""

    type: str
    stops: str
    after: str


_SWEPT = Expected("zset", "nothing is recorded, or goes in time", "what is stored goes when it was written once more")

#: Every key of the table in docs/architecture.md, by the name that `Keys` has for it; `bus` is the bus's own.
KEY_TYPES: Final[Mapping[str, Expected]] = {
    "bus": Expected("hash", "nobody can open the bus", "HSET there the partitions and options that it had"),
    "incoming": Expected(
        "stream", "nothing is published or recorded", "producers send again what their rings still hold"
    ),
    "incoming_meta": Expected("hash", "nothing is published", "it is counted on from the stream's last entry"),
    "producer": Expected("hash", "that producer publishes nothing", "it sends again what its ring still holds"),
    "aggregate": Expected("string", "the next event puts it right", "so are the similar messages that it knew"),
    "spam": Expected("string", "the next event puts it right", "so are the tokens that were taken"),
    "object": Expected("string", "the next write puts it right", "so is the object, or an event's count"),
    "version": Expected(
        "string", "the next write puts it right", "versions jump ahead, and those who watch list again"
    ),
    "note": Expected("string", "nothing of its sort is written", "so is what a call that was cut off had left to do"),
    "index_name": Expected(
        "zset", "nothing of it is written or listed", "what is stored is listed when it is written next"
    ),
    "index_object": Expected(
        "zset", "nothing of it is written or listed", "what is stored is listed when it is written next"
    ),
    "index_expiry": _SWEPT,
    "index_forget": _SWEPT,
    "index_refresh": _SWEPT,
    "index_subject": _SWEPT,
    "changes": Expected("stream", "nothing of it is written or watched", "those who watch list again"),
    "occurrences": Expected("hash", "no event of that minute is recorded", "the minute is counted from 0"),
    "meta": Expected("hash", "nothing is recorded", "its counters begin at 0"),
    "spoiled": Expected("hash", "whatever meets a value that is not ours stops", "these are counted from 0"),
    "suppressed": Expected(
        "hash", "what is held back or folded is not recorded", "what is counted by source begins at 0"
    ),
    "workers": Expected("hash", "no worker shows that it lives, and none takes over", "the next heartbeats fill it"),
    "builds": Expected("hash", "no build says that it is in use", "the processes announce their builds again"),
    "attempts": Expected("hash", "the work of that group stands still", "deaths of its batches are counted from 0"),
    "dead": Expected("stream", "what is to be buried holds up the rest", "so is what was buried"),
    "export": Expected("hash", "nothing is written to that sink", "its position: it begins where --from says"),
    "exported": Expected("string", "the next write puts it right", "that sink gets the event as a new one"),
    "idempotency": Expected(
        "string", "no request with that Idempotency-Key is taken", "such a request, sent again, is taken as a new one"
    ),
    "checkpoints": Expected(
        "stream", "no event is listed, watched or written over HTTP", "those who watch over HTTP list again"
    ),
    "later": Expected("zset", "nothing is written to that sink", "what waited there comes with its next repeat"),
}


def expected(keys: Keys) -> dict[bytes, Expected]:
    """Return what each key of a partition must be whose name is known beforehand."""
    plurals = _plurals_of(keys)
    fixed = (
        *("incoming", "incoming_meta", "meta", "workers", "dead", "suppressed", "spoiled", "index_object"),
        *("index_expiry", "index_forget", "index_subject", "index_refresh"),
    )
    return {
        **{getattr(keys, name): KEY_TYPES[name] for name in fixed},
        **{keys.index_name_of(plural): KEY_TYPES["index_name"] for plural in plurals},
        **{keys.changes_of(plural): KEY_TYPES["changes"] for plural in plurals},
        **{keys.version_of(plural): KEY_TYPES["version"] for plural in plurals},
        **{key: KEY_TYPES["note"] for key in notes(keys, {})},
    }


def expected_of_names(keys: Keys, meta: Mapping[bytes, bytes]) -> dict[bytes, Expected]:
    """The same of groups and sinks, as *meta* knows them."""
    found = {key: KEY_TYPES["note"] for key in notes(keys, meta)}
    for start, name in _named_in(meta):
        if start == "floor":
            found[keys.attempts + name] = KEY_TYPES["attempts"]
        else:
            found[keys.export + name] = KEY_TYPES["export"]
            found[keys.later + name] = KEY_TYPES["later"]
    return found


def notes(keys: Keys, meta: Mapping[bytes, bytes]) -> list[bytes]:
    """Name the keys in which a call of each sort leaves its note; groups and sinks as *meta* knows them."""
    what = [*_plurals_of(keys), "bus:incoming", "bus:dead"]
    own = [keys.note_of(one) for one in what]
    start_of = {"floor": b"group:", "export": b"export:"}
    return own + [keys.note_of("") + start_of[start] + name for start, name in _named_in(meta)]


def _plurals_of(keys: Keys) -> list[str]:
    """Events are everywhere, other kinds on the first partition. Who looks here may not see what operators own."""
    return [EVENTS] if keys.partition else [kind.plural for kind in KINDS if kind.plural not in OPERATED]


def expected_of(prefix: str, key: bytes) -> tuple[int, Expected] | None:
    """The partition that *key* belongs to, and what it must be; None: it is no key of this bus."""
    found = re.match(rb"[a-z0-9-]+:\{(\d{1,4})\}:", key)
    if found is None:
        return None
    partition, key = int(found[1]), key.replace(b"}:operated:", b"}:", 1)
    for start, whole, must in _starts(prefix, partition):
        if key == start or (not whole and key.startswith(start)):
            return partition, must
    return None


@cache
def _starts(prefix: str, partition: int) -> list[tuple[bytes, bool, Expected]]:
    """Return how keys begin, the longest first (`incoming:meta` is not `incoming`), and whether that is all of it."""
    keys = Keys(prefix, partition)
    starts = [(name_of(prefix, keys, name), must) for name, must in KEY_TYPES.items()]
    return sorted(
        (
            (start, not start.endswith(b":") and start != name_of(prefix, keys, "object"), must)
            for start, must in starts
        ),
        key=lambda one: -len(one[0]),
    )


def _named_in(meta: Mapping[bytes, bytes]) -> Iterator[tuple[str, bytes]]:
    for field in meta:
        start, _, name = field.partition(b":")
        if start in (b"floor", b"export"):
            yield start.decode(), name


__all__ = ["KEY_TYPES", "Expected", "expected", "expected_of", "expected_of_names", "notes"]
