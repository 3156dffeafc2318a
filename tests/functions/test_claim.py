"""claim.lua, beat.lua, try.lua: who is alive, who takes over from the dead, and what is known of the cause."""

from __future__ import annotations

import pytest

from tests.builders import make_event
from tests.functions.partition import Partition, changed


def test_what_a_dead_worker_left_goes_to_the_claimer_with_one_more_death_each(partition: Partition) -> None:
    first, second = partition.deliver([make_event()], [make_event()], consumer="dead")
    partition.admin.hset(partition.keys.workers, "sink/dead", 7)
    partition.admin.hset(partition.keys.attempts + b"sink", first.id, 1)
    before = partition.state()

    deaths = partition.call.claim("sink", "one", "dead", "7")

    assert deaths == {first.id: 2, second.id: 1}
    assert partition.pending() == [(first.id, "one"), (second.id, "one")]
    after = partition.state()
    assert after["attempts:sink"] == ({first.id.decode(): "2", second.id.decode(): "1"}, -1)
    assert after["workers"] == ({"sink/dead": "7", "sink/one": "1"}, -1)  # who claims lives
    # Whose the entries are does not show in the stream's own summary.
    assert changed(before, after) == {"attempts:sink", "workers"}


def test_two_that_have_just_come_back_do_not_go_on_robbing_each_other(partition: Partition) -> None:
    for name in ("one", "two"):
        partition.deliver([make_event()], consumer=name)
        partition.admin.hset(partition.keys.workers, f"sink/{name}", 7)
    assert len(partition.call.claim("sink", "one", "two", "7")) == 1
    assert partition.call.claim("sink", "two", "one", "7") == {}


@pytest.mark.parametrize(("counter", "seen"), [("8", "7"), ("1", ""), (None, "7")])
def test_a_worker_that_has_moved_meanwhile_keeps_what_it_holds(
    partition: Partition, counter: str | None, seen: str
) -> None:
    (delivery,) = partition.deliver([make_event()], consumer="slow")
    if counter:
        partition.admin.hset(partition.keys.workers, "sink/slow", counter)
    before = partition.state()

    assert partition.call.claim("sink", "one", "slow", seen) == {}

    assert partition.pending() == [(delivery.id, "slow")]
    assert changed(before, partition.state()) == set()


def test_what_a_worker_left_pending_when_it_left_is_taken_over_without_a_death(partition: Partition) -> None:
    """It has no counter: it took that away itself."""
    first, second = partition.deliver([make_event()], [make_event()], consumer="gone")
    partition.admin.hset(partition.keys.attempts + b"sink", first.id, 2)
    before = partition.state()

    assert partition.call.claim("sink", "one", "gone", "") == {first.id: 2, second.id: 0}

    assert partition.pending() == [(first.id, "one"), (second.id, "one")]
    assert changed(before, partition.state()) == {"workers"}


def test_with_nothing_left_the_dead_is_forgotten(partition: Partition) -> None:
    (delivery,) = partition.deliver([make_event()], consumer="dead")
    partition.admin.hset(partition.keys.workers, "sink/dead", 7)
    partition.call.claim("sink", "one", "dead", "7")

    assert partition.call.claim("sink", "one", "dead", "7") == {}

    consumers = partition.admin.xinfo_consumers(partition.keys.incoming, "sink")
    assert [info["name"] for info in consumers] == [b"one"]
    assert partition.state()["workers"] == ({"sink/one": "1"}, -1)
    assert partition.pending() == [(delivery.id, "one")]


def test_a_call_takes_as_many_as_it_was_told_oldest_first(partition: Partition) -> None:
    deliveries = partition.deliver(*([make_event()] for _ in range(5)), consumer="dead")
    ids = [delivery.id for delivery in deliveries]
    assert list(partition.call.claim("sink", "one", "dead", "", limit=3)) == ids[:3]
    assert list(partition.call.claim("sink", "one", "dead", "", limit=3)) == ids[3:]


def test_the_living_of_the_group_keep_theirs(partition: Partition) -> None:
    (theirs,) = partition.deliver([make_event()], consumer="living")
    (left,) = partition.deliver([make_event()], consumer="dead")
    assert list(partition.call.claim("sink", "one", "dead", "")) == [left.id]
    assert partition.pending() == [(theirs.id, "living"), (left.id, "one")]


def test_the_event_that_was_tried_is_accused_when_a_worker_has_died_and_not_before(partition: Partition) -> None:
    (delivery,) = partition.deliver([make_event()], consumer="one")
    partition.reader("one").beat()
    partition.reader("one").isolate(delivery.id, 5)
    (again,) = partition.reader("one").own_pending()  # it had only lost its line
    assert (again.next_position, again.suspect_position) == (5, None)

    (heirs,) = partition.reader("two").claim("one", "1")
    assert (heirs.deaths, heirs.next_position, heirs.suspect_position) == (1, 5, 5)


def test_a_worker_that_was_taken_over_notes_nothing(partition: Partition) -> None:
    (delivery,) = partition.deliver([make_event()], consumer="zombie")
    partition.reader("heir").claim("zombie", "")
    partition.reader("heir").isolate(delivery.id, 3)
    before = partition.state()

    assert not partition.reader("zombie").isolate(delivery.id, 1)
    assert changed(before, partition.state()) == set()

    partition.reader("heir").ack([delivery.id])
    assert not partition.reader("heir").isolate(delivery.id, 4)


def test_what_was_noted_of_a_batch_is_forgotten_when_it_is_acknowledged(partition: Partition) -> None:
    (delivery,) = partition.deliver([make_event()], consumer="dead")
    heir = partition.reader("heir")
    assert heir.claim("dead", "")
    heir.isolate(delivery.id, 3)
    heir.ack([delivery.id])
    assert "attempts:sink" not in partition.state()
