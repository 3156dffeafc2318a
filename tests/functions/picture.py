"""Takes a picture of a partition, so that two runs of the same story can be compared though time has passed.

Nothing here knows the layout of a key: values are unpacked where they are msgpack, and whatever is a time or a version
of today is a moment, so far from the picture's own: two that are less than ten minutes apart in that are the same.
"""

from __future__ import annotations

import re
import time
from typing import Any

import msgpack

from eventbus.store.stored import View, decode_stored
from tests.functions.partition import Partition, State

#: A story does not take longer, also on a busy machine.
APART_S = 600
#: What counts as a time of today, seconds: counts are forgotten eight days from now, exports live for two hours.
TODAY_S = 30 * 86_400
#: Of meta, what says how a story went and not how it ended: batches that were no longer somebody's, what was mended,
#: what was shown in one second. And the generation and the id, of which each bus has its own.
PASSING = {"mended", "mended_last", "stale", "refresh_second", "refresh_shown", "generation", "bus"}
#: What each bus has its own of, streams that are read by the rules of their readers, counters that only have to move.
ELSEWHERE = re.compile(r"bus\Z|changes|version")

_NUMBER = re.compile(r"(\d{13,16})(?:-\d+)?(:\w+|)(?: \d+)?(?:\.\d+)?\Z")

#: The generation of an export is a time, and part of the names of its keys.
#: Objects that are events; of one that has gone only so many fields are left.
EVENT, COUNTS = "object:events:", 6
_BORN = re.compile(r"\b\d{16}\b")


class Moment:
    """A time or a version of today: seconds after the picture was taken. Or a life, which is the same."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and abs(self.at_s - other.at_s) < APART_S

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Moment({self.at_s:.0f})"


def picture(partition: Partition, state: State) -> dict[str, Any]:
    """Every key by its name: what it holds and how long it lives, of `changes` what each object went through."""
    found: dict[str, Any] = {
        _BORN.sub("#", name): (_shape(name, value), _life(life_ms))
        for name, (value, life_ms) in state.items()
        if not ELSEWHERE.match(name)
    }
    found["changes"] = _by_object(state)
    groups = [group.decode() for group, *_ in state["incoming"][0][1]] if "incoming" in state else []
    found["pending"] = [(group, [consumer for _, consumer in partition.pending(group)]) for group in groups]
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """A line for each key that the two do not have in common."""
    return [
        f"{name}: {one.get(name)!r} is now {other.get(name)!r}"
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name)
    ]


def _by_object(state: State) -> dict[str, list[Any]]:
    """The changes of each object, oldest first: calls of other objects may come between."""
    found: dict[str, list[Any]] = {}
    for kind, key, packed in raw_changes(state):
        found.setdefault(key, []).append((kind, blurred(unpacked(packed))))
    return found


def raw_changes(state: State) -> list[tuple[str, str, bytes]]:
    """Kind of change, key, and the object as it is stored, of any kind of object, oldest first."""
    return [
        (name[:1].decode(), name[1:].decode(), packed)
        for changes in sorted(state)
        if changes.startswith("changes:")
        for _, fields in state[changes][0][0]
        for name, packed in fields.items()
        if len(name) == 15
    ]


def _shape(name: str, value: Any) -> Any:
    if name == "workers":
        return sorted(value)
    if name == "checkpoints":  # `by` is the replication id of the server
        entries, groups = value
        return blurred(
            [(id_, {field: text for field, text in fields.items() if field != b"by"}) for id_, fields in entries]
        ), groups
    if name == "builds":  # any may have said it
        return sorted(field.partition("/")[2] for field in value)
    if name == "incoming:meta" or name.startswith("producer:"):
        return _fields({field: text for field, text in value.items() if field not in ("generation", "bus")})
    if name == "meta":
        passing = {field for field in value if field in PASSING or field.startswith(("floor:", "beats:", "alive:"))}
        return _fields({field: text for field, text in value.items() if field not in passing})
    if name == "incoming":
        entries, groups = value
        return [fields.get(b"b") for _, fields in entries], [group[:2] for group in groups]
    if name == "dead":
        # Burials of two calls may come in another order.
        entries = sorted((fields for _, fields in value[0]), key=lambda fields: fields[b"b"])
        return [_fields({field: said for field, said in fields.items() if field != b"at"}) for fields in entries]
    if name == "notify":  # a call that is made again has the next number; a file is noted with the time
        passing = {field for field in value if field in ("number", "beats") or field.startswith("file:")}
        return _fields({field: said for field, said in value.items() if field not in passing})
    if isinstance(value, dict):
        return _fields({field: said for field, said in value.items() if field != "call"})
    if isinstance(value, bytes):
        return blurred(unpacked(value))
    return blurred(value)


def _fields(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    # A list: a field may be an entry id, which is a moment and no key of a dict.
    return [(blurred(field), blurred(value[field])) for field in sorted(value)]


def _life(life_ms: int) -> Any:
    return None if life_ms < 0 else Moment(life_ms / 1000)


def unpacked(value: bytes) -> Any:
    """Msgpack as what it says; anything else as it is."""
    try:
        return msgpack.unpackb(value, raw=True, strict_map_key=False)
    except Exception:  # any bytes may stand there
        return value


def blurred(value: Any) -> Any:
    """With every time and version of today as a `Moment`."""
    if isinstance(value, (list, tuple)):
        return [blurred(one) for one in value]
    if isinstance(value, dict):
        return {key: blurred(one) for key, one in value.items()}
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return _moment(value) or value
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    number = _NUMBER.match(text)
    moment = _moment(int(number.group(1))) if number else None
    if moment is None or number is None:
        return value
    return (moment, number.group(2)) if number.group(2) else moment


def _moment(number: float) -> Moment | None:
    now = time.time()
    for per_s in (1_000, 1_000_000):
        if abs(number / per_s - now) < TODAY_S:
            return Moment(number / per_s - now)
    return None


class Follower:
    """A reader that lists now and then, and could go on from each of its lists, as informers do."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._seen: list[tuple[int, dict[str, Any]]] = []

    def look(self) -> None:
        """List, and keep the version."""
        self._seen.append(self._list())

    def disagreements(self) -> list[str]:
        """Every version it has listed at, and what following the changes from there would not show as it is."""
        _, now = self._list()
        found = []
        for version, items in self._seen:
            followed = self._followed(version, dict(items))
            if followed is not None and followed != now:
                others = {name for name in followed.keys() | now.keys() if followed.get(name) != now.get(name)}
                found.append(f"who has listed at {version} and followed never learns of {sorted(others)}")
        return found

    def _list(self) -> tuple[int, dict[str, Any]]:
        listed = self._partition.store.list()
        return int(listed.resource_version), {_name(event): _said(event) for event in listed.items}

    def _followed(self, version: int, items: dict[str, Any]) -> dict[str, Any] | None:
        """None: changes are missing, which is seen, and it lists again."""
        for change in self._partition.raw_changes():
            if change.version <= version:
                continue
            if change.version != version + 1:
                return None
            version = change.version
            if not change.packed:
                continue  # somebody took it away before its note was finished: only a version to count
            event = decode_stored(change.packed, View.SHOWN)
            if change.letter == "D":
                items.pop(_name(event), None)
            else:
                items[_name(event)] = _said(event)
        return items


def _name(event: Any) -> str:
    return f"{event.metadata.namespace}/{event.metadata.name}"


def _said(event: Any) -> Any:
    return (event.reason, event.message, event.type, event.count, event.last_timestamp)


def inconsistencies(partition: Partition, state: State) -> list[str]:
    """List where the indexes and the objects of events contradict each other."""
    keys = partition.keys
    objects = {name[-14:].encode(): unpacked(value) for name, (value, _) in state.items() if name.startswith(EVENT)}
    stored = {key for key, fields in objects.items() if len(fields) > COUNTS}
    remembered = objects.keys() - stored

    def members(index: bytes) -> list[bytes]:
        held, _ = state.get(index.removeprefix(keys.root).decode(), ({}, -1))
        return [one[-14:] for one in held]

    found = []
    for index in (keys.index_name, keys.index_object, keys.index_expiry):
        if sorted(members(index)) != sorted(stored):
            found.append(f"{index.decode()} has {members(index)}, stored are {stored}")
    if set(members(keys.index_forget)) != remembered:
        found.append(f"{keys.index_forget.decode()} has {members(keys.index_forget)}, counts are left of {remembered}")
    if not stored.issuperset(members(keys.index_refresh)):
        found.append(f"{keys.index_refresh.decode()} has {members(keys.index_refresh)}, stored are {stored}")
    found += [f"a note is left: {name}" for name in state if name.startswith("note:")]
    for name, (_, life_ms) in state.items():
        if name.startswith(("corr:", "producer:", "exported:", "occurrences:")) and life_ms < 0:
            found.append(f"{name} lives for ever")
    return found


def balance(partition: Partition) -> tuple[int, int]:
    """Events published, and what became of them: counted, buried, lost and told, or still pending. Group `sink`."""
    admin, keys = partition.admin, partition.keys
    meta = {field.decode(): value for field, value in admin.hgetall(keys.meta).items()}
    buried = sum(int(value) for field, value in meta.items() if field.startswith("buried:sink:"))
    group = next((each for each in admin.xinfo_groups(keys.incoming) if each["name"] == b"sink"), None)
    waiting = [entry for entry, _ in partition.pending()]
    if group:
        waiting += [entry for entry, _ in admin.xrange(keys.incoming, b"(" + group["last-delivered-id"])]
    left = 0
    for entry in waiting:
        left += int(admin.xrange(keys.incoming, entry, entry)[0][1][b"n"])
    counted = int(meta.get("events", 0)) + int(meta.get("lost:sink", 0))
    return int(admin.hget(keys.incoming_meta, "events") or 0), counted + buried + left
