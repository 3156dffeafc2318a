"""Judges every fault: compares what was acknowledged with the stream, and the stream with the store.

The stream is held whole by a group that never acknowledges (`hold_stream`), so that it can be read at the end: what is
not in it is lost, what is twice in it is a duplicate. The store is compared with the stream by correlation key.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack
import msgspec

from eventbus.broker.bus import Bus
from eventbus.errors import PoisonBatch
from eventbus.model.encoding.wire import Batch, unpack_batch, unpack_wire
from tests.faults.producer import NAMESPACE, OBJECTS, TAG

#: never acknowledges, so nothing is trimmed
HOLDER = "holder"

#: tag, uid and object of an event in the stream
Found = tuple[str, str, str]


class Verdict(msgspec.Struct, kw_only=True):
    """The result of a fault. *lost*: acknowledged and not to be found; *missing*: in the stream and not counted."""

    accepted: int = 0
    events: int = 0  #: in the stream
    lost: int = 0
    duplicate: int = 0
    phantom: int = 0  #: nobody recorded them, or their uid is not the one that was acknowledged
    disorder: int = 0  #: later than one recorded after it, about the same object
    missing: int = 0  #: of the stream, never counted in the store
    double: int = 0  #: counted in the store more often than they are in the stream
    told: int = 0  #: of all those, what somebody has counted or said; taken out of *lost* and *missing* by `tell`
    recovery_s: float | None = None  #: None: not measured
    settled: bool = True  #: False: the store's group stood still before it had finished

    def tell(self, n: int) -> None:
        """So many of those that are missing were counted or said to be: they are not silently lost."""
        self.told += n
        self.missing -= n

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicate or self.phantom or self.disorder or self.missing or self.double)

    @property
    def harm(self) -> str:
        """In words; what there always is comes first, the rarer kinds only where they are."""
        rarer = {"once more under another uid": self.phantom, "out of order": self.disorder}
        more = [f"{n} {what}" for what, n in rarer.items() if n]
        return ", ".join(
            [f"{self.lost + self.missing} lost", f"{self.duplicate + self.double} duplicate", *more],
        )


class Accepted:
    """The accept-logs of all producers: tag → uids it was acknowledged under, and how many each has recorded.

    A tag has several uids where it was lost with the server and sent again under a fresh producer id.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.uids_of: dict[str, tuple[str, ...]] = {}
        self._recorded: dict[str, int] = {}  #: by those that ended tidily
        self._killed: set[str] = set()
        for file in files:
            for line in file.read_text().split("\n")[:-1] if file.exists() else []:
                self._add(line)
            end = file.with_suffix(".end")
            if end.exists():
                self._recorded |= json.loads(end.read_text())["recorded_by"]
            else:
                self._killed.add(file.stem.rpartition("-")[2])

    def _add(self, line: str) -> None:
        producer, first, _, *tags = line.split()
        for position, tag in enumerate(tags):
            uid, before = f"{producer}:{int(first) + position}", self.uids_of.get(tag, ())
            if uid not in before:
                self.uids_of[tag] = (*before, uid)

    def knows(self, tag: str) -> bool:
        """Return True if a producer may have recorded it. What a killed one has recorded, nobody can say."""
        name, _, number = tag.rpartition("-")
        if not number.isdecimal():
            return False
        if name in self._recorded:
            return int(number) < self._recorded[name]
        return re.sub(r"[xc]\d+$", "", name) in self._killed  # its recorders and children


def hold_stream(bus: Bus, client: Any) -> None:
    """Keep every entry from now on, whoever has finished with it."""
    for keys in bus.keys:
        client.xgroup_create(keys.incoming, HOLDER, "0")


def stream_of(bus: Bus, client: Any) -> list[Found]:
    """(tag, uid, object) of everything of ours that the streams hold, in their order."""
    found: list[Found] = []
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


def _events(batch: Batch) -> list[Found]:
    found: list[Found] = []
    for position, packed in enumerate(batch.events):
        try:
            event = unpack_wire(packed)
        except PoisonBatch:
            continue
        if tag := (event.annotations or {}).get(TAG):
            found.append((tag, batch.uid(position), event.involved_object[2]))
    return found


def counts_of(bus: Bus, client: Any) -> Counter[str]:
    """Count how often each object's event has happened, by the store; those that have expired included."""
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
    counted = counts_of(bus, client) if stored else None
    return compare(accepted, stream_of(bus, client) if held else None, counted)


def compare(accepted: Accepted, stream: Sequence[Found] | None, counted: Counter[str] | None) -> Verdict:
    """Compare what was acknowledged with what the *stream* holds and what the store has *counted* of each object.

    None: not looked at; without a stream the store is compared with what was acknowledged.
    """
    if stream is None:
        found = [(tag, uids[0], about_of(tag)) for tag, uids in accepted.uids_of.items()]
    else:
        found = [event for event in stream if not _is_phantom(event, accepted)]
    times = Counter(tag for tag, _, _ in found)
    verdict = Verdict(accepted=len(accepted.uids_of), events=len(found) if stream is None else len(stream))
    verdict.lost = sum(tag not in times for tag in accepted.uids_of)
    verdict.duplicate = sum(n - 1 for n in times.values())
    verdict.phantom = verdict.events - len(found)
    verdict.disorder = 0 if stream is None else _disorder(found)
    if counted is not None:
        expected = Counter(about for _, _, about in (found if stream is None else stream))
        verdict.missing = (expected - counted).total()
        verdict.double = (counted - expected).total()
    return verdict


def about_of(tag: str) -> str:
    """The object of an event of a producer with the usual number of objects."""
    name, _, number = tag.rpartition("-")
    return f"{name}-{int(number) % OBJECTS}"


def _is_phantom(event: Found, accepted: Accepted) -> bool:
    tag, uid, about = event
    if not accepted.knows(tag) or about.rpartition("-")[0] != tag.rpartition("-")[0]:
        return True
    acknowledged = accepted.uids_of.get(tag)
    # One that is in the stream and was not acknowledged: its producer died, or gave up, before it heard of it.
    return acknowledged is not None and uid not in acknowledged


def _disorder(stream: Sequence[Found]) -> int:
    """Events that come behind a later one of the same producer and object."""
    last: dict[str, int] = {}
    found = 0
    for tag, _, about in stream:
        number = int(tag.rpartition("-")[2])
        found += number < last.get(about, -1)
        last[about] = max(number, last.get(about, -1))
    return found
