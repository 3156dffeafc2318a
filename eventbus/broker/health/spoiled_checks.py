"""The doctor's checks of the keys: wrong types under our names, and calls that were cut off half-way."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventbus.broker.connection.connect import Client
from eventbus.broker.health.findings import Finding, error, ok, warning
from eventbus.broker.health.partition_status import execute, node_of
from eventbus.broker.key_scan import MOST_KEYS, Scanned, scan_keys
from eventbus.broker.key_types import KEY_TYPES, Expected, expected, expected_of_names, notes
from eventbus.broker.keys import Keys, bus_key
from eventbus.broker.numbers import parse_partitions, whole_number
from eventbus.errors import BusRefused

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

    Those whose names are known one by one, the others as far as `key_scan.MOST_KEYS` of a server reach.

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


__all__ = ["NAMED", "NOTE_S", "check_keys", "expected", "notes"]
