"""spool.py: what is in the file is what waits, under the numbers that it has now, whatever Redis answered."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker.transport import PublishReply, PublishStatus
from eventbus.errors import BusUnavailable
from eventbus.record.losses import Losses
from eventbus.record.resend import Producer
from eventbus.record.spool.journal import Claim, Journal, folders, read_file
from eventbus.record.spool.spool import BusName, Spool
from eventbus.testing.clock import FakeClock

OK = PublishReply(PublishStatus.OK, generation="g")
BUS = BusName("redis://h", "eb", "bus", 2)
ALL = math.inf


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def spool(root: Path, clock: FakeClock) -> Iterator[Spool]:
    made = make(root, clock)
    yield made
    made.release()


def make(root: Path, clock: FakeClock, *, limit_bytes: int = 10_000, always: bool = False) -> Spool:
    return Spool(root=root, bus=BUS, limit_bytes=limit_bytes, always=always, clock=clock, losses=Losses(clock))


def producers(clock: FakeClock, ring_bytes: int = 1_000_000) -> list[Producer]:
    return [Producer(clock=clock, losses=Losses(clock), ring_bytes=ring_bytes) for _ in range(2)]


def add(producer: Producer, *events: bytes) -> None:
    """Each a batch of its own."""
    for event in events:
        producer.add(event)
        producer.seal()


def on_disk(root: Path) -> dict[tuple[int, str], dict[int, list[bytes]]]:
    """By partition and producer id: first sequence → events."""
    found = [read_file(folder) for folder in folders(root)] if root.exists() else []
    return {
        (partition, identity.id): {batch.first: batch.packed.events() for batch in line.in_order()}
        for contents in found
        for (partition, identity), line in contents.lines.items()
        if line.batches
    }


def test_only_what_is_late_is_written(spool: Spool, root: Path, clock: FakeClock) -> None:
    ours = producers(clock)
    add(ours[0], b"a")
    clock.advance(1)
    late = clock.monotonic()
    clock.advance(1)
    add(ours[0], b"b")
    assert spool.keep(ours, sealed_before=late - 2)
    assert not root.exists()
    assert spool.keep(ours, sealed_before=late)
    assert on_disk(root) == {(0, ours[0].id): {1: [b"a"]}}
    assert spool.count(ours) == 1


def test_what_is_acknowledged_goes(spool: Spool, root: Path, clock: FakeClock) -> None:
    ours = producers(clock)
    add(ours[0], b"a", b"b")
    add(ours[1], b"c")
    assert spool.keep(ours, sealed_before=ALL)
    assert ours[0].settle(OK)
    spool.settle(ours)
    assert on_disk(root) == {(0, ours[0].id): {2: [b"b"]}, (1, ours[1].id): {1: [b"c"]}}
    assert ours[0].settle(OK)
    assert ours[1].settle(OK)
    spool.settle(ours)
    assert on_disk(root) == {}
    assert not spool.in_use
    assert spool.release() is None
    assert list(root.iterdir()) == []


def test_what_redis_has_lost_is_written_again(spool: Spool, root: Path, clock: FakeClock) -> None:
    ours = producers(clock)
    add(ours[0], b"a", b"b", b"c")
    assert spool.keep(ours, sealed_before=ALL)
    for _ in range(2):
        ours[0].settle(OK)
    spool.settle(ours)
    ours[0].settle(PublishReply(PublishStatus.GAP, last=1))
    spool.settle(ours)
    assert spool.keep(ours, sealed_before=-ALL)
    assert on_disk(root) == {(0, ours[0].id): {2: [b"b"], 3: [b"c"]}}


def test_under_a_fresh_id_nothing_is_left_under_the_old_one(spool: Spool, root: Path, clock: FakeClock) -> None:
    ours = producers(clock, ring_bytes=0)
    add(ours[0], b"a", b"b", b"c")
    assert spool.keep(ours, sealed_before=ALL)
    ours[0].settle(OK)
    old = ours[0].id
    ours[0].settle(PublishReply(PublishStatus.GAP, last=0))
    assert ours[0].id != old
    assert spool.keep(ours, sealed_before=-ALL)
    assert on_disk(root) == {(0, ours[0].id): {1: [b"b"], 2: [b"c"]}}


def test_what_cannot_be_written_under_its_new_numbers_is_not_left_under_the_old(root: Path, clock: FakeClock) -> None:
    spool = make(root, clock, limit_bytes=2_000)
    ours = producers(clock, ring_bytes=0)
    add(ours[0], b"a", os.urandom(1_000))
    assert spool.keep(ours, sealed_before=ALL)
    ours[0].settle(OK)
    ours[0].settle(PublishReply(PublishStatus.GAP, last=0))
    add(ours[0], os.urandom(1_500))
    assert not spool.keep(ours, sealed_before=ALL)
    assert on_disk(root) == {}
    assert spool.count(ours) == 0


def test_a_file_without_room_is_written_anew_when_most_of_it_is_acknowledged(root: Path, clock: FakeClock) -> None:
    spool = make(root, clock, limit_bytes=8_000)
    ours = producers(clock)
    for _ in range(40):
        add(ours[0], b"x" * 400)
        assert spool.keep(ours, sealed_before=ALL)
        if ours[0].pending > 2:
            ours[0].settle(OK)
            spool.settle(ours)
    assert sorted(on_disk(root)[0, ours[0].id]) == [39, 40]
    spool.release()


def test_events_without_a_number_are_replaced_by_those_with_one(spool: Spool, root: Path, clock: FakeClock) -> None:
    assert spool.keep([], [b"a", b"b"], sealed_before=ALL)
    assert spool.keep([], [b"a", b"b", b"c"], sealed_before=ALL)
    assert [read_file(folder).unplaced for folder in folders(root)] == [[b"a", b"b", b"c"]]
    assert spool.count([]) == 3
    ours = producers(clock)
    add(ours[1], b"a", b"b", b"c")
    assert spool.keep(ours, sealed_before=-ALL)
    assert on_disk(root) == {(1, ours[1].id): {1: [b"a"], 2: [b"b"], 3: [b"c"]}}
    assert [read_file(folder).unplaced for folder in folders(root)] == [[]]


def test_an_adopted_file_that_cannot_be_written_stops_its_sending(root: Path, clock: FakeClock) -> None:
    first = make(root, clock)
    assert first.keep([], [b"a" * 500], sealed_before=ALL)
    folder = first.release()
    assert folder is not None
    claim = Claim.take(folder)
    assert claim is not None
    journal, contents = Journal.adopt(claim, limit_bytes=100)
    heir = Spool(
        root=root,
        bus=BUS,
        limit_bytes=100,
        always=False,
        clock=clock,
        losses=Losses(clock),
        adopted=journal,
        whole=not contents.unplaced,
    )
    ours = producers(clock)
    add(ours[0], *contents.unplaced)
    with pytest.raises(BusUnavailable, match="cannot be written"):
        heir.keep(ours, sealed_before=-ALL)
    assert heir.release() == folder
    assert read_file(folder).unplaced == [b"a" * 500]


def test_always_writes_before_anything_is_sent(root: Path, clock: FakeClock) -> None:
    spool = make(root, clock, always=True)
    ours = producers(clock)
    add(ours[0], b"a")
    assert spool.keep(ours, sealed_before=-ALL)
    assert on_disk(root) == {(0, ours[0].id): {1: [b"a"]}}
    spool.release()
