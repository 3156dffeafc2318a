"""The checks of the keys by `eventbus doctor`: wrong types, corrupt values, and interrupted calls."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from eventbus.broker.access.roles import name_of
from eventbus.broker.bus import parse_partitions
from eventbus.broker.connection.connect import Client, node_of, primaries
from eventbus.broker.health.findings import Finding, error, ok, warning
from eventbus.broker.health.status import execute
from eventbus.broker.keys import EVENTS, OPERATED, Keys, bus_key, whole_number
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused
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


#: The most keys to scan on a server, with those of other applications: about a second, 1 ms a command for Redis.
MOST_KEYS: Final = 100_000
_STEP: Final = 1_000


class Scanned(msgspec.Struct, frozen=True):
    """Keys of a wrong type: key → (type, expected type). *whole*: all keys were scanned."""

    spoiled: Mapping[bytes, tuple[str, Expected]]
    whole: bool


def scan_keys(client: Client, prefix: str, every: Iterable[Keys], *, most: int = MOST_KEYS) -> Scanned:
    """Scan all keys of these partitions, at *most* so many on a server. Changes nothing.

    Raises: BusRefused: this user may not scan.  BusUnavailable: call again.
    Redis:  SCAN, and TYPE on each key.
    """
    partitions, whole = {keys.partition for keys in every}, True
    spoiled: dict[bytes, tuple[str, Expected]] = {}
    for node in primaries(client):
        cursor, seen, whole_node = 0, 0, False
        while seen < most:
            cursor, found = _scan(node, cursor, prefix)
            seen += _STEP
            spoiled |= _judge_found(node, prefix, partitions, found)
            whole_node = cursor == 0
            if whole_node:
                break
        whole = whole and whole_node
    return Scanned(spoiled, whole)


def _scan(node: Any, cursor: int, prefix: str) -> tuple[int, list[bytes]]:
    pipe = node.pipeline(transaction=False)
    pipe.execute_command("SCAN", cursor, "MATCH", f"{prefix}:{{*}}:*", "COUNT", _STEP)
    with redis_errors():
        (reply,) = execute(pipe)
    if reply is None:
        raise BusRefused("the server does not let this user SCAN its keys")
    return int(reply[0]), list(reply[1])


def _judge_found(node: Any, prefix: str, partitions: set[int], found: list[bytes]) -> dict[bytes, tuple[str, Expected]]:
    ours = [(key, must) for key in found if (must := expected_of(prefix, key)) and must[0] in partitions]
    if not ours:
        return {}
    pipe = node.pipeline(transaction=False)
    for key, _ in ours:
        pipe.type(key)
    types = [(reply or b"none").decode("ascii", "replace") for reply in execute(pipe)]
    return {
        key: (kind, must)
        for (key, (_, must)), kind in zip(ours, types, strict=True)
        if kind not in ("none", must.type)  # none: it was deleted meanwhile
    }


#: A note is gone within the call that wrote it, or with the next one of its kind: seconds after which one stays.
NOTE_S: Final = 3.0
#: So many keys of a partition whose names nobody knows beforehand are told one by one.
NAMED: Final = 3


class _Looked(msgspec.Struct, frozen=True):
    """One partition's keys as found: the type of each; what `meta` and `spoiled` hold, {} where that is no hash."""

    keys: Keys
    types: Mapping[bytes, str]
    meta: Mapping[bytes, bytes]
    met: Mapping[bytes, bytes]

    @property
    def spoiled(self) -> dict[bytes, Expected]:
        """The keys that are something else."""
        must_be = expected(self.keys) | expected_of_names(self.keys, self.meta)
        return {key: must for key, must in must_be.items() if self.types.get(key, must.type) != must.type}

    @property
    def noted(self) -> list[bytes]:
        """Return the notes that exist."""
        return [key for key in notes(self.keys, self.meta) if key in self.types]


def check_keys(client: Client, prefix: str, *, sleep: Callable[[float], object] = time.sleep) -> list[Finding]:
    """Look at the keys of every partition, changing nothing; blocks for NOTE_S where a call was cut off.

    Those whose names are known one by one, the others as far as `MOST_KEYS` of a server reach.

    Raises: BusUnavailable: call again.  ConfigError: nobody knows how many partitions there are.
    Redis:  HGETALL on meta and spoiled, TYPE on the rest, two pipelines a server; SCAN, and TYPE on what that finds.
    """
    bus = bus_key(prefix)
    try:
        (found,) = _types(node_of(client, bus), [bus])
        if found not in ("none", "hash"):
            return [_other_type(bus, found, KEY_TYPES["bus"])]
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
        scanned = scan_keys(client, prefix, [one.keys for one in looked])
    except BusRefused:
        return [ok("keys", "not looked at: this user may not ask for their types (role metrics)")]
    findings = [finding for one in looked for finding in (*_judge(one, noted), *_judge_scanned(one, scanned))]
    if findings:
        return findings
    as_far = "" if scanned.whole else f", as far as {MOST_KEYS} keys of a server tell"
    return [ok("keys", f"each is of its type{as_far}, and no call was cut off half-way")]


def read_spoiled(client: Client, every: Sequence[Keys]) -> tuple[str, ...]:
    """List the keys of these partitions that have a wrong type, a line each; none if this user may not ask.

    Raises: BusUnavailable: call again.
    Redis:  HGETALL on meta and spoiled, TYPE on the rest; two pipelines a server.
    """
    try:
        looked = _look(client, every)
    except BusRefused:
        return ()
    return tuple(_words(key, one.types[key], must) for one in looked for key, must in one.spoiled.items())


def _look(client: Client, every: Sequence[Keys]) -> list[_Looked]:
    by_node: dict[int, tuple[Any, list[Keys]]] = defaultdict(lambda: (None, []))
    for keys in every:
        node = node_of(client, keys.meta)
        by_node[id(node)] = (node, [*by_node[id(node)][1], keys])
    found = [looked for node, of_node in by_node.values() for looked in _look_at_node(node, of_node)]
    return sorted(found, key=lambda looked: looked.keys.partition)


def _look_at_node(node: Any, every: Sequence[Keys]) -> Iterator[_Looked]:
    pipe = node.pipeline(transaction=False)
    for keys in every:
        pipe.hgetall(keys.meta)
        pipe.hgetall(keys.spoiled)
    hashes = [found or {} for found in execute(pipe)]
    metas, mets = hashes[::2], hashes[1::2]
    names = [list(expected(keys) | expected_of_names(keys, meta)) for keys, meta in zip(every, metas, strict=True)]
    types = iter(_types(node, [key for of_one in names for key in of_one]))
    for keys, meta, met, of_one in zip(every, metas, mets, names, strict=True):
        found = dict(zip(of_one, types, strict=False))
        yield _Looked(keys, {key: kind for key, kind in found.items() if kind != "none"}, meta, met)


def _types(node: Any, keys: Iterable[bytes]) -> list[str]:
    pipe = node.pipeline(transaction=False)
    for key in keys:
        pipe.type(key)
    return [(reply or b"none").decode("ascii", "replace") for reply in execute(pipe)]


def _judge(looked: _Looked, noted: set[bytes]) -> Iterator[Finding]:
    for key, must in looked.spoiled.items():
        yield _other_type(key, looked.types[key], must)
    for key in looked.noted:
        if key in noted and looked.types[key] == "string":
            yield _cut_off(looked, key)
    if times := whole_number(looked.met.get(b"times")):
        yield _met(looked, times)
    if times := whole_number(looked.meta.get(b"mended")):
        yield _mended(looked, times)


def _judge_scanned(looked: _Looked, scanned: Scanned) -> Iterator[Finding]:
    """Judge what was found besides the keys that are looked at by their names."""
    found = [key for key in sorted(scanned.spoiled) if key.startswith(looked.keys.root) and key not in looked.spoiled]
    for key in found[:NAMED]:
        yield _other_type(key, *scanned.spoiled[key])
    if more := len(found) - NAMED if len(found) > NAMED else 0:
        yield warning(
            "keys",
            f"partition {looked.keys.partition}: {more} more keys are something else than they must be",
            f"find who else writes to {looked.keys.root.decode()}*, mend these, and look again",
        )


def _other_type(key: bytes, found: str, must: Expected) -> Finding:
    name = key.decode("utf-8", "backslashreplace")
    root, _, rest = name.partition("}:")
    report = warning if must.type == "string" and must is not KEY_TYPES["note"] else error
    return report(
        "keys",
        f"{_words(key, found, must)}: {must.stops}",
        f"RENAME {name} {root}}}:spoiled:{rest}; what was there before is lost already: {must.after}",
    )


def _words(key: bytes, found: str, must: Expected) -> str:
    return f"{key.decode('utf-8', 'backslashreplace')} is a {found}, and must be a {must.type}"


def _cut_off(looked: _Looked, key: bytes) -> Finding:
    spoiled = [name.decode() for name in looked.spoiled]
    if spoiled:
        cure = f"mend {', '.join(spoiled)}, see above: whoever writes next then finishes that call"
    else:
        cure = (
            "let somebody write who has every right it takes, and that call is finished: "
            "`eventbus doctor --role worker`, as the workers' user, names a right that is missing; where a "
            "worker's log names a key that is not what it must be, RENAME that away: what it had is lost"
        )
    return warning(
        "keys",
        f"partition {looked.keys.partition}: a call was cut off half-way, and none of its sort has gone through since: "
        f"what it had left to do is kept in {key.decode()}",
        cure,
    )


def _met(looked: _Looked, times: int) -> Finding:
    last = looked.met.get(b"last_key", b"").decode("utf-8", "replace")
    values = "1 value of the store was" if times == 1 else f"{times} values of the store were"
    return warning(
        "keys",
        f"partition {looked.keys.partition}: {values} not ours and counted as missing, the last one in {last}",
        f"find who else writes to {looked.keys.root.decode()}*; then DEL {looked.keys.spoiled.decode()}",
    )


def _mended(looked: _Looked, times: int) -> Finding:
    what = looked.meta.get(b"mended_last", b"").decode("utf-8", "replace")
    meta = looked.keys.meta.decode()
    return warning(
        "keys",
        f"partition {looked.keys.partition}: workers had to put right {times} times what is known of the stream, "
        f"the last time: {what}",
        "somebody with a producer's rights writes past `publish`: find out who (ACL LOG, CLIENT LIST), change that "
        f"password, have programs that are not trusted record through the API; then HDEL {meta} mended mended_last",
    )
