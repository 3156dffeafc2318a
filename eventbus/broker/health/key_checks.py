"""The checks of the keys by `eventbus doctor`: wrong types, corrupt values, and interrupted calls. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventbus.broker.bus import parse_partitions
from eventbus.broker.connection.connect import Client
from eventbus.broker.health.findings import Finding, error, ok, warning
from eventbus.broker.health.status import execute
from eventbus.broker.keys import EVENTS, OPERATED, Keys, bus_key, whole_number
from eventbus.errors import BusRefused
from eventbus.model.kinds import KINDS

#: A note is deleted by the call that wrote it, or by the next one of its kind. Seconds after which one has stayed.
NOTE_S: Final = 3.0


class _Looked(msgspec.Struct, frozen=True):
    """The keys of one partition: the type of each that exists; the content of `meta` and `corrupt`, {} if no hash."""

    keys: Keys
    types: Mapping[bytes, str]
    meta: Mapping[bytes, bytes]
    corrupt: Mapping[bytes, bytes]

    @property
    def wrong(self) -> dict[bytes, str]:
        """Return the keys that have another type."""
        must_be = expected(self.keys, self.meta)
        return {key: must for key, must in must_be.items() if self.types.get(key, must) != must}

    @property
    def noted(self) -> list[bytes]:
        """Return the notes that exist."""
        return [key for key in notes(self.keys, self.meta) if key in self.types]


def check_keys(client: Client, prefix: str, *, sleep: Callable[[float], object] = time.sleep) -> list[Finding]:
    """Check the keys of every partition; blocks for NOTE_S if there is a note of an interrupted call.

    Only keys with a known name are checked: of producers, objects and sources, an error in a log names the key.

    Raises: BusUnavailable: call again.  ConfigError: the number of partitions is unknown.
    Redis:  HGETALL on meta and spoiled, TYPE on the rest, two pipelines a server.
    """
    bus = bus_key(prefix)
    try:
        (kind,) = _types(client, [bus])
        if kind not in ("none", "hash"):
            return [_wrong_type(bus, kind, "hash")]
        pipe: Any = client.pipeline(transaction=False)
        pipe.hmget(bus, ["partitions"])
        partitions = execute(pipe)[0][0]
        if partitions is None:
            return []
        looked = _look(client, [Keys(prefix, number) for number in range(parse_partitions(partitions, bus))])
        noted = {key for each in looked for key in each.noted}
        if noted:
            sleep(NOTE_S)
            noted &= {key for each in _look(client, [each.keys for each in looked if each.noted]) for key in each.noted}
    except BusRefused:
        return [ok("keys", "not checked: this user may not ask for their types (role metrics)")]
    findings = [finding for each in looked for finding in _judge(each, noted)]
    return findings or [ok("keys", "each has its type, and no call was interrupted")]


def expected(keys: Keys, meta: Mapping[bytes, bytes]) -> dict[bytes, str]:
    """Return the type of each key of a partition with a known name; *meta* has the names of groups and sinks."""
    types = {keys.incoming: "stream", keys.dead: "stream"}
    types |= dict.fromkeys((keys.incoming_meta, keys.meta, keys.workers, keys.suppressed, keys.corrupt), "hash")
    types |= dict.fromkeys((keys.index_object, keys.index_expiry, keys.index_forget, keys.index_refresh), "zset")
    if keys.partition == 0:
        types |= dict.fromkeys((keys.notify, keys.builds, keys.problems), "hash")
        types |= {keys.index_notify: "zset", keys.checkpoints: "stream"}
    for plural in _plurals_of(keys):
        types[keys.index_name_of(plural)] = "zset"
        types[keys.changes_of(plural)] = "stream"
        types[keys.version_of(plural)] = "string"
    types |= dict.fromkeys(notes(keys, meta), "string")
    for start, name in _named_in(meta):
        if start == "floor":
            types[keys.attempts + name] = "hash"
        else:
            types |= {keys.export + name: "hash", keys.later + name: "zset"}
    return types


def notes(keys: Keys, meta: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the keys of the notes of interrupted calls; *meta* has the names of groups and sinks."""
    of_first = ("bus:notify",) if keys.partition == 0 else ()
    fixed = [keys.note_of(of) for of in (*_plurals_of(keys), "bus:incoming", "bus:dead", *of_first)]
    start_of = {"floor": b"group:", "export": b"export:"}
    return fixed + [keys.note_of("") + start_of[start] + name for start, name in _named_in(meta)]


def _plurals_of(keys: Keys) -> list[str]:
    """Events are on all partitions, other kinds on the first. The role metrics does not see the kinds of operators."""
    return [EVENTS] if keys.partition else [kind.plural for kind in KINDS if kind.plural not in OPERATED]


def _named_in(meta: Mapping[bytes, bytes]) -> Iterator[tuple[str, bytes]]:
    for field in meta:
        start, _, name = field.partition(b":")
        if start in (b"floor", b"export"):
            yield start.decode(), name


def _look(client: Client, every: Sequence[Keys]) -> list[_Looked]:
    pipe: Any = client.pipeline(transaction=False)
    for keys in every:
        pipe.hgetall(keys.meta)
        pipe.hgetall(keys.corrupt)
    hashes = [content or {} for content in execute(pipe)]
    names = [list(expected(keys, meta)) for keys, meta in zip(every, hashes[::2], strict=True)]
    types = iter(_types(client, [key for each in names for key in each]))
    looked = []
    for keys, meta, corrupt, names_of_one in zip(every, hashes[::2], hashes[1::2], names, strict=True):
        kinds = dict(zip(names_of_one, types, strict=False))
        looked.append(_Looked(keys, {key: kind for key, kind in kinds.items() if kind != "none"}, meta, corrupt))
    return looked


def _types(client: Client, keys: Iterable[bytes]) -> list[str]:
    pipe: Any = client.pipeline(transaction=False)
    for key in keys:
        pipe.type(key)
    return [(reply or b"none").decode("ascii", "replace") for reply in execute(pipe)]


def _judge(looked: _Looked, noted: set[bytes]) -> Iterator[Finding]:
    for key, must in looked.wrong.items():
        yield _wrong_type(key, looked.types[key], must)
    for key in looked.noted:
        if key in noted and looked.types[key] == "string":
            yield _interrupted(looked, key)
    if times := whole_number(looked.corrupt.get(b"times")):
        yield _replaced(looked, times)
    if times := whole_number(looked.meta.get(b"mended")):
        yield _repaired(looked, times)


def _wrong_type(key: bytes, kind: str, must: str) -> Finding:
    name = key.decode("utf-8", "backslashreplace")
    root, _, rest = name.partition("}:")
    text = f"{name} is a {kind}, and must be a {must}"
    cure = f"RENAME {name} {root}}}:corrupt:{rest}; its former content is lost already"
    if must == "string" and not rest.startswith("note:"):
        return warning("keys", f"{text}: the next write replaces it", cure)
    return error("keys", f"{text}: calls that use it fail", cure)


def _interrupted(looked: _Looked, key: bytes) -> Finding:
    if wrong := [name.decode() for name in looked.wrong]:
        cure = f"rename {', '.join(wrong)}, see above: the next write completes the call"
    else:
        cure = (
            "the next write by a user with every right that it takes completes the call: "
            "`eventbus doctor --role worker`, as the user of the workers, names a missing right; if the log of a "
            "worker names a corrupt key, RENAME that key: its content is lost"
        )
    return warning(
        "keys",
        f"partition {looked.keys.partition}: a call was interrupted, and no call of its kind has succeeded since: "
        f"its remaining writes are in {key.decode()}",
        cure,
    )


def _replaced(looked: _Looked, times: int) -> Finding:
    last = looked.corrupt.get(b"last_key", b"").decode("utf-8", "replace")
    values = "1 corrupt value was" if times == 1 else f"{times} corrupt values were"
    return warning(
        "keys",
        f"partition {looked.keys.partition}: {values} replaced, the last one in {last}",
        f"find the other program that writes to {looked.keys.root.decode()}*; then DEL {looked.keys.corrupt.decode()}",
    )


def _repaired(looked: _Looked, times: int) -> Finding:
    fields = looked.meta.get(b"mended_last", b"").decode("utf-8", "replace")
    meta = looked.keys.meta.decode()
    return warning(
        "keys",
        f"partition {looked.keys.partition}: workers had to repair the numbers of the stream {times} times, the last "
        f"time: {fields}",
        "a user with the rights of a producer writes without `publish`: find it (ACL LOG, CLIENT LIST), change its "
        f"password, let programs that are not trusted record through the API; then HDEL {meta} mended mended_last",
    )
