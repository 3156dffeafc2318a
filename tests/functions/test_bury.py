"""bury.lua: an entry that nobody can handle goes to the dead letter, and out of its group's way."""

from __future__ import annotations

import pytest

from tests.builders import make_event
from tests.functions.partition import Partition, changed


@pytest.fixture
def entry(partition: Partition) -> bytes:
    """Delivered to `one`, and two workers have died of it."""
    (delivery,) = partition.deliver([make_event()])
    attempts = partition.keys.attempts + b"sink"
    partition.admin.hset(attempts, mapping={delivery.id: 2, delivery.id + b":next": 1, delivery.id + b":trying": 1})
    return delivery.id


def test_it_is_kept_whole_with_its_cause_and_acknowledged(partition: Partition, entry: bytes) -> None:
    before = partition.state()

    assert partition.call.bury("sink", "one", entry, "unreadable", 3, b"what it was")

    after = partition.state()
    (buried, _), life_ms = after["dead"]
    assert [fields for _, fields in buried] == [
        {
            **{b"id": entry, b"group": b"sink", b"cause": b"unreadable", b"deaths": b"3"},
            **{b"at": b"0", b"b": b"what it was"},
        }
    ]
    assert life_ms == -1
    assert partition.pending() == []
    assert partition.meta("buried:sink:unreadable") == 1
    assert changed(before, after) == {"incoming", "dead", "meta", "attempts:sink"}
    assert "attempts:sink" not in after


def test_one_event_of_a_batch_is_buried_while_the_batch_stays(partition: Partition, entry: bytes) -> None:
    before = partition.state()

    assert partition.call.bury("sink", "one", entry, "killed-worker", 3, b"event", whole=False)

    assert changed(before, partition.state()) == {"dead", "meta"}
    assert partition.pending() == [(entry, "one")]


def test_work_one_event_at_a_time_goes_on_behind_the_one_that_is_buried(partition: Partition, entry: bytes) -> None:
    assert partition.call.bury("sink", "one", entry, "killed-worker", 3, b"event", whole=False, next_position=2)
    assert partition.pending() == [(entry, "one")]
    assert partition.state()["attempts:sink"][0][f"{entry.decode()}:next"] == "2"


@pytest.mark.parametrize(
    ("consumer", "entry_id"), [("two", None), ("one", b"1-1")], ids=["another's entry", "no entry of the group"]
)
def test_who_does_not_hold_the_entry_buries_nothing(
    partition: Partition, entry: bytes, consumer: str, entry_id: bytes | None
) -> None:
    before = partition.state()
    assert not partition.call.bury("sink", consumer, entry_id or entry, "unreadable", 0, b"")
    assert changed(before, partition.state()) == set()


def test_bytes_add_up_so_that_the_dead_letter_can_be_bounded(partition: Partition) -> None:
    for delivery in partition.deliver([make_event()], [make_event()]):
        partition.call.bury("sink", "one", delivery.id, "unreadable", 0, b"12345")
    buried, _ = partition.state()["dead"][0]
    assert [fields[b"at"] for _, fields in buried] == [b"0", b"5"]
