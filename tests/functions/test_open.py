"""open.lua: what a partition stands on is made once, and found ever after."""

from __future__ import annotations

import pytest

from eventbus.broker.functions import GroupPolicy
from tests.builders import make_event
from tests.functions.partition import Partition, changed

ANY = "0123456789abcdef"


@pytest.fixture
def bare(partition: Partition) -> Partition:
    """The partition without anything that opening the bus has made."""
    keys = partition.keys
    partition.admin.delete(keys.incoming, keys.incoming_meta, keys.meta)
    return partition


def test_the_first_open_makes_an_empty_stream_and_its_counters_for_ever(bare: Partition) -> None:
    opened = bare.call.open(ANY)

    assert (opened.generation, opened.made_stream, opened.made_group) == (ANY, True, False)
    state = bare.state()
    assert state["incoming"] == (([], []), -1)
    assert state["incoming:meta"] == (
        {"generation": ANY, "events": "0", "bytes": "0", "last": "0-0", "length": "0"},
        -1,
    )


def test_a_second_open_finds_it_and_writes_nothing(bare: Partition) -> None:
    bare.call.open(ANY, "sink", GroupPolicy.WAIT, "0")
    before = bare.state()

    opened = bare.call.open("f" * 16, "sink", GroupPolicy.DROP, "$")

    assert (opened.generation, opened.made_stream, opened.made_group) == (ANY, False, False)
    assert changed(before, bare.state()) == set()


def test_a_generation_that_was_lost_is_given_anew_and_the_stream_stays(bare: Partition) -> None:
    bare.call.open(ANY)
    bare.publish(make_event())
    bare.admin.hdel(bare.keys.incoming_meta, "generation")

    opened = bare.call.open("f" * 16)

    assert (opened.generation, opened.made_stream) == ("f" * 16, False)
    assert bare.admin.xlen(bare.keys.incoming) == 1


@pytest.mark.parametrize(("start", "reads"), [("0", 2), ("$", 0)], ids=["from the oldest", "from now on"])
def test_a_group_starts_where_it_was_told(partition: Partition, start: str, reads: int) -> None:
    partition.publish(make_event())
    partition.publish(make_event())
    newest = partition.admin.xrevrange(partition.keys.incoming, count=1)[0][0]

    opened = partition.call.open(ANY, "log", GroupPolicy.DROP, start)

    assert (opened.made_stream, opened.made_group) == (False, True)
    assert len(partition.reader(group="log").read(0)) == reads
    meta = partition.admin.hgetall(partition.keys.meta)
    assert meta[b"policy:log"] == b"DROP"
    assert meta[b"floor:log"] == (newest if start == "$" else b"0-0")


def test_a_destroyed_group_is_made_anew_at_its_floor(partition: Partition) -> None:
    first, second, third = partition.deliver([make_event()], [make_event()], [make_event()])
    partition.reader().ack([first.id])
    partition.call.trim(partition.options)  # remembers the floor, and forgets the first entry
    partition.admin.xgroup_destroy(partition.keys.incoming, "sink")

    opened = partition.call.open(ANY, "sink", GroupPolicy.WAIT, "$")

    assert opened.made_group
    assert [delivery.id for delivery in partition.reader("two").read(0)] == [second.id, third.id]


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_what_is_gone_since_a_destroyed_group_s_floor_is_counted(partition: Partition, gone: int) -> None:
    deliveries = partition.deliver([make_event()] * 5, [make_event()] * 7, [make_event()] * 9, [make_event()] * 11)
    partition.reader().ack([deliveries[0].id])
    partition.call.trim(partition.options)
    partition.admin.xgroup_destroy(partition.keys.incoming, "sink")
    partition.admin.xtrim(partition.keys.incoming, maxlen=3 - gone, approximate=False)

    for _ in range(2):
        partition.call.open(ANY, "sink")

    assert partition.meta("lost:sink") == sum([7, 9, 11][:gone])


def test_what_every_group_loses_with_the_stream_is_counted(partition: Partition) -> None:
    partition.call.open(ANY, "log", GroupPolicy.DROP, "0")
    first, _ = partition.deliver([make_event()] * 5, [make_event()] * 7)
    partition.reader().ack([first.id])
    partition.call.trim(partition.options)
    for _ in range(2):
        partition.publish(make_event())
        partition.admin.delete(partition.keys.incoming)
        partition.call.open(ANY, "sink")
        partition.call.open(ANY, "log")

    # 13 events, of which the sink had five; then one more
    assert (partition.meta("lost:sink"), partition.meta("lost:log")) == (9, 14)
    assert (partition.meta("floor_to:sink"), partition.meta("floor_to:log")) == (0, 0)


def test_a_group_that_begins_now_has_lost_nothing(partition: Partition) -> None:
    partition.deliver([make_event()] * 5)
    partition.call.open(ANY, "log", GroupPolicy.DROP, "$")
    partition.admin.delete(partition.keys.incoming)
    partition.call.open(ANY, "log")
    assert (partition.meta("lost:sink"), partition.meta("lost:log")) == (5, 0)


def test_a_destroyed_group_is_made_anew_as_often_as_it_takes(partition: Partition) -> None:
    """Its floor may be the last id of a millisecond, which has no successor in it."""
    (delivery,) = partition.deliver([make_event()])
    for _ in range(3):
        partition.call.trim(partition.options)
        partition.admin.xgroup_destroy(partition.keys.incoming, "sink")
        assert partition.call.open(ANY, "sink").made_group
    partition.call.trim(partition.options)

    assert [again.id for again in partition.reader("two").read(0)] == [delivery.id]


def test_a_destroyed_stream_gets_another_generation_and_fresh_counters(partition: Partition) -> None:
    partition.record(make_event())
    partition.call.trim(partition.options)
    assert partition.admin.hexists(partition.keys.incoming_meta, "trimmed")
    partition.admin.delete(partition.keys.incoming)

    opened = partition.call.open(ANY, "sink")

    assert (opened.generation, opened.made_stream, opened.made_group) == (ANY, True, True)
    assert partition.state()["incoming:meta"] == (
        {"generation": ANY, "events": "0", "bytes": "0", "last": "0-0", "length": "0"},
        -1,
    )
    assert partition.admin.hget(partition.keys.meta, "floor:sink") == b"0-0"
