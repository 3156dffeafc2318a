"""One judge for every fault: what was acknowledged, against what is in the stream, against what is in the store.

The stream is held whole by a group that never acknowledges (`hold_stream`), so that it can be read at the end: what is
not in it is lost, what is twice in it is a duplicate. The store is compared with the stream by correlation key.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgpack
import msgspec

from eventbus.broker.bus import Bus
from eventbus.errors import PoisonBatch
from eventbus.wire import Batch, unpack_batch, unpack_wire
from tests.faults.producer import NAMESPACE, OBJECTS, TAG

#: never acknowledges, so nothing is trimmed
HOLDER = "holder"


class Verdict(msgspec.Struct, kw_only=True):
    """What a fault has done. *lost*: acknowledged and not to be found; *missing*: in the stream and not counted."""

    accepted: int = 0
    events: int = 0  #: in the stream
    lost: int = 0
    duplicate: int = 0
    phantom: int = 0  #: nobody recorded them
    disorder: int = 0  #: later than one recorded after it, about the same object
    missing: int = 0  #: of the stream, never counted in the store
    double: int = 0  #: counted in the store more often than they are in the stream
    told: int = 0  #: of all those, what somebody has counted or said; taken out of *lost* and *missing* by `tell`
    recovery_s: float = 0.0

    def tell(self, n: int) -> None:
        """So many of those that are missing were counted or said to be: they are not silently lost."""
        self.told += n
        self.missing -= n

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicate or self.phantom or self.disorder or self.missing or self.double)


class Accepted:
    """The accept-logs of all producers: tag → uid it was first acknowledged under."""

    def __init__(self, files: list[Path]) -> None:
        self.uid_of: dict[str, str] = {}
        self.batches = 0
        self.answers: Counter[str] = Counter()
        for file in files:
            for line in file.read_text().split("\n")[:-1] if file.exists() else []:
                producer, first, answer, *tags = line.split(" ")
                self.batches += 1
                self.answers[answer] += 1
                for position, tag in enumerate(tags):
                    self.uid_of.setdefault(tag, f"{producer}:{int(first) + position}")


def hold_stream(bus: Bus, client: Any) -> None:
    """Keep every entry from now on, whoever has finished with it."""
    for keys in bus.keys:
        client.xgroup_create(keys.incoming, HOLDER, "0")


def stream_of(bus: Bus, client: Any) -> list[tuple[str, str, str]]:
    """(tag, uid, object) of everything of ours that the streams hold, in their order."""
    found: list[tuple[str, str, str]] = []
    for keys in bus.keys:
        after = "-"
        while page := client.xrange(keys.incoming, after, "+", 1000):
            for _, fields in page:
                try:
                    batch = unpack_batch(fields[b"b"])
                except (PoisonBatch, KeyError):
                    continue
                found += _events(batch)
            after = f"({page[-1][0].decode()}"
    return found


def _events(batch: Batch) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for position, packed in enumerate(batch.events):
        try:
            event = unpack_wire(packed)
        except PoisonBatch:
            continue
        if tag := (event.annotations or {}).get(TAG):
            found.append((tag, batch.uid(position), event.involved_object[2]))
    return found


def counts_of(bus: Bus, client: Any) -> Counter[str]:
    """How often the store says each object's event has happened; those that have expired included."""
    counts: Counter[str] = Counter()
    for keys in bus.keys:
        found = client.zrange(keys.index_expiry, 0, -1) + client.zrange(keys.index_forget, 0, -1)
        for low in range(0, len(found), 1000):
            for value in client.mget([keys.object + key for key in found[low : low + 1000]]):
                count, _, name, namespace = msgpack.unpackb(value, raw=True)[:4]
                if namespace == NAMESPACE.encode():
                    counts[name.partition(b".")[0].decode()] += count
    return counts


def judge(bus: Bus, client: Any, accepted: Accepted, *, stored: bool = True, held: bool = True) -> Verdict:
    """The verdict as things are now; let everything settle before.

    Args: stored: also look at the store.  held: False: the stream is trimmed, so the store is compared with what was
          acknowledged (let every producer end tidily).
    """
    stream = stream_of(bus, client) if held else [(tag, uid, about_of(tag)) for tag, uid in accepted.uid_of.items()]
    times = Counter(tag for tag, _, _ in stream)
    verdict = Verdict(accepted=len(accepted.uid_of), events=len(stream))
    verdict.lost = sum(tag not in times for tag in accepted.uid_of)
    verdict.duplicate = sum(n - 1 for n in times.values())
    verdict.phantom = sum(_is_phantom(tag, about) for tag, _, about in stream)
    verdict.disorder = _disorder(stream) if held else 0
    if stored:
        expected, counted = Counter(about for _, _, about in stream), counts_of(bus, client)
        verdict.missing = (expected - counted).total()
        verdict.double = (counted - expected).total()
    return verdict


def about_of(tag: str) -> str:
    """The object of an event of a producer with the usual number of objects."""
    name, _, number = tag.rpartition("-")
    return f"{name}-{int(number) % OBJECTS}"


def _is_phantom(tag: str, about: str) -> bool:
    name, _, number = tag.rpartition("-")
    return not (number.isdecimal() and about.rpartition("-")[0] == name)


def _disorder(stream: list[tuple[str, str, str]]) -> int:
    """Events that come behind a later one of the same producer and object."""
    last: dict[str, int] = {}
    found = 0
    for tag, _, about in stream:
        number = int(tag.rpartition("-")[2])
        found += number < last.get(about, -1)
        last[about] = max(number, last.get(about, -1))
    return found
