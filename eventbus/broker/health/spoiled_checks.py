"""The doctor's checks of the keys: wrong types under our names, and calls that were cut off half-way."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventbus.broker.connection.client import Client
from eventbus.broker.health.findings import Finding, error, ok, warning
from eventbus.broker.health.partition_status import execute, node_of
from eventbus.broker.keys import EVENTS, Keys, bus_key
from eventbus.broker.numbers import parse_partitions, whole_number
from eventbus.errors import BusRefused
from eventbus.kinds import KINDS

#: A note is gone within the call that wrote it, or with the next one of its kind: seconds after which one stays.
NOTE_S: Final = 3.0


class Expected(msgspec.Struct, frozen=True):
    """The type a key must have, the work that stops while it has another, and what goes on without its content."""

    type: str
    stops: str
    after: str


class Looked(msgspec.Struct, frozen=True):
    """One partition's keys as found: the type of each, and the content of `meta`, {} if that is no hash."""

    keys: Keys
    types: Mapping[bytes, str]
    meta: Mapping[bytes, bytes]

    @property
    def spoiled(self) -> dict[bytes, Expected]:
        """Return the keys that have another type than expected."""
        return {key: must for key, must in expected(self.keys).items() if self.types.get(key, must.type) != must.type}

    @property
    def noted(self) -> list[bytes]:
        """Return the notes that exist."""
        return [key for key in notes(self.keys, self.meta) if key in self.types]


def check_keys(client: Client, prefix: str, *, sleep: Callable[[float], object] = time.sleep) -> list[Finding]:
    """Check the type of every fixed key of every partition; changes nothing. Blocks for NOTE_S if a call was cut off.

    Raises: BusUnavailable: call again.  ConfigError: nobody knows how many partitions there are.
    Redis:  HGETALL on meta, TYPE on the rest; two pipelines a server.
    """
    bus = bus_key(prefix)
    try:
        (found,) = _types(node_of(client, bus), [bus])
        if found not in ("none", "hash"):
            return [_other_type(bus, found, _BUS)]
        pipe: Any = node_of(client, bus).pipeline(transaction=False)
        pipe.hmget(bus, ["partitions"])
        partitions = execute(pipe)[0][0]
        if partitions is None:
            return []
        looked = _look(client, [Keys(prefix, number) for number in range(parse_partitions(partitions, bus))])
        noted = {key for one in looked for key in one.noted}
        if noted:
            sleep(NOTE_S)
            noted &= {key for one in _look(client, [one.keys for one in looked if one.noted]) for key in one.noted}
    except BusRefused:
        return [ok("keys", "not looked at: this user may not ask for their types (role metrics)")]
    findings = [finding for one in looked for finding in _judge(one, noted)]
    return findings or [ok("keys", "each is of its type, and no call was cut off half-way")]


def read_spoiled(client: Client, every: Sequence[Keys]) -> tuple[str, ...]:
    """List the keys of these partitions that have a wrong type, a line each; none if this user may not ask.

    Raises: BusUnavailable: call again.
    Redis:  HGETALL on meta, TYPE on the rest; two pipelines a server.
    """
    try:
        looked = _look(client, every)
    except BusRefused:
        return ()
    return tuple(_words(key, one.types[key], must) for one in looked for key, must in one.spoiled.items())


def expected(keys: Keys) -> dict[bytes, Expected]:
    """Return what each fixed key of a partition must be."""
    plurals = _plurals(keys)
    return {
        keys.incoming: _INCOMING,
        keys.incoming_meta: _INCOMING_META,
        keys.meta: _META,
        keys.workers: _WORKERS,
        keys.dead: _DEAD,
        keys.suppressed: _SUPPRESSED,
        keys.index_object: _FOUND,
        keys.index_expiry: _SWEPT,
        keys.index_forget: _SWEPT,
        keys.index_subject: _SWEPT,
        keys.index_refresh: _SWEPT,
        **{keys.index_name_of(plural): _FOUND for plural in plurals},
        **{keys.changes_of(plural): _CHANGES for plural in plurals},
        **{keys.version_of(plural): _VERSION for plural in plurals},
        **{key: _NOTE for key in notes(keys, {})},
    }


def notes(keys: Keys, meta: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the keys under which calls of each sort leave their notes; groups and sinks are taken from *meta*."""
    what = [*_plurals(keys), "bus:incoming", "bus:dead"]
    for field in meta:
        start, _, name = field.decode("utf-8", "replace").partition(":")
        if start in ("floor", "export"):
            what.append(f"{'group' if start == 'floor' else 'export'}:{name}")
    return [keys.note_of(one) for one in what]


def _plurals(keys: Keys) -> list[str]:
    """Return the kinds of a partition: events are everywhere, the others on the first partition."""
    return [EVENTS] if keys.partition else [kind.plural for kind in KINDS]


def _look(client: Client, every: Sequence[Keys]) -> list[Looked]:
    by_node: dict[int, tuple[Any, list[Keys]]] = defaultdict(lambda: (None, []))
    for keys in every:
        node = node_of(client, keys.meta)
        by_node[id(node)] = (node, [*by_node[id(node)][1], keys])
    found = [looked for node, of_node in by_node.values() for looked in _look_at_node(node, of_node)]
    return sorted(found, key=lambda looked: looked.keys.partition)


def _look_at_node(node: Any, every: Sequence[Keys]) -> Iterator[Looked]:
    pipe = node.pipeline(transaction=False)
    for keys in every:
        pipe.hgetall(keys.meta)
    metas = [meta or {} for meta in execute(pipe)]
    names = [[*expected(keys), *notes(keys, meta)] for keys, meta in zip(every, metas, strict=True)]
    types = iter(_types(node, [key for of_one in names for key in of_one]))
    for keys, meta, of_one in zip(every, metas, names, strict=True):
        found = dict(zip(of_one, types, strict=False))
        yield Looked(keys, {key: kind for key, kind in found.items() if kind != "none"}, meta)


def _types(node: Any, keys: Iterable[bytes]) -> list[str]:
    pipe = node.pipeline(transaction=False)
    for key in keys:
        pipe.type(key)
    return [(reply or b"none").decode("ascii", "replace") for reply in execute(pipe)]


def _judge(looked: Looked, noted: set[bytes]) -> Iterator[Finding]:
    for key, must in looked.spoiled.items():
        yield _other_type(key, looked.types[key], must)
    for key in looked.noted:
        if key in noted and looked.types[key] == "string":
            yield _cut_off(looked, key)
    if times := whole_number(looked.meta.get(b"spoiled")):
        yield _met(looked, times)


def _other_type(key: bytes, found: str, must: Expected) -> Finding:
    name = key.decode()
    root, _, rest = name.partition("}:")
    report = warning if must.type == "string" else error
    return report(
        "keys",
        f"{_words(key, found, must)}: {must.stops}",
        f"RENAME {name} {root}}}:spoiled:{rest}; what was there before is lost already: {must.after}",
    )


def _words(key: bytes, found: str, must: Expected) -> str:
    return f"{key.decode()} is a {found}, and must be a {must.type}"


def _cut_off(looked: Looked, key: bytes) -> Finding:
    spoiled = [name.decode() for name in looked.spoiled]
    if spoiled:
        cure = f"mend {', '.join(spoiled)}, see above: whoever writes next then finishes that call"
    else:
        cure = (
            "let somebody write who has every right it takes, and that call is finished: "
            "`eventbus doctor --role worker`, as the workers' user, names a right that is missing"
        )
    return warning(
        "keys",
        f"partition {looked.keys.partition}: a call was cut off half-way, and none of its sort has gone through since: "
        f"what it had left to do is kept in {key.decode()}",
        cure,
    )


def _met(looked: Looked, times: int) -> Finding:
    last = looked.meta.get(b"spoiled_key", b"").decode("utf-8", "replace")
    meta = looked.keys.meta.decode()
    values = "1 value of the store was" if times == 1 else f"{times} values of the store were"
    return warning(
        "keys",
        f"partition {looked.keys.partition}: {values} not ours and counted as missing, the last one in {last}",
        f"find who else writes to {looked.keys.root.decode()}*; then HDEL {meta} spoiled spoiled_key",
    )


_BUS = Expected("hash", "nobody can open the bus", "HSET there the partitions and options that it had")
_INCOMING = Expected("stream", "nothing is published or recorded", "producers send again what their rings still hold")
_INCOMING_META = Expected("hash", "nothing is published", "it is counted on from the stream's last entry")
_META = Expected("hash", "nothing is recorded", "its counters begin at 0")
_WORKERS = Expected("hash", "no worker shows that it lives, and none takes over", "the next heartbeats fill it")
_DEAD = Expected("stream", "what is to be buried holds up the rest", "so is what was buried")
_SUPPRESSED = Expected("hash", "what is held back or folded is not recorded", "what is counted by source begins at 0")
_FOUND = Expected("zset", "nothing of it is written or listed", "what is stored is listed when it is written next")
_SWEPT = Expected("zset", "nothing is recorded, or goes in time", "what is stored goes when it was written once more")
_CHANGES = Expected("stream", "nothing of it is written or watched", "those who watch list again")
_VERSION = Expected("string", "the next write puts it right", "versions jump ahead, and those who watch list again")
_NOTE = Expected("string", "the next write puts it right", "so is what a call that was cut off had left to do")

__all__ = ["NOTE_S", "check_keys", "expected", "notes"]
