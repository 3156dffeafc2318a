"""replay.lua and discard.lua: back from the dead letter, to the one group that buried it, or gone for good."""

from __future__ import annotations

import pytest

from eventbus.broker.functions import GroupPolicy
from eventbus.broker.groups import delete_group
from tests.builders import make_event
from tests.functions.conftest import MakePartition
from tests.functions.partition import Partition, changed

MIB = 1024 * 1024


@pytest.fixture
def dead(partition: Partition) -> bytes:
    """An entry that the group `sink` has buried; the group `log` has it too."""
    partition.call.open("", "log", GroupPolicy.DROP, "0")
    (delivery,) = partition.deliver([make_event()])
    assert partition.call.bury("sink", "one", delivery.id, "unreadable", 3, delivery.body)
    partition.reader("two", group="log").read(0)
    ((entry_id, _),) = partition.admin.xrange(partition.keys.dead)
    return bytes(entry_id)


def test_a_replayed_entry_reaches_the_group_that_buried_it(partition: Partition, dead: bytes) -> None:
    ((_, buried),) = partition.admin.xrange(partition.keys.dead)

    assert partition.call.replay(partition.options, dead) == "OK"

    (delivery,) = partition.reader("three").read(0)
    assert (delivery.body, delivery.only_for) == (buried[b"b"], "sink")
    assert partition.admin.xlen(partition.keys.dead) == 0
    assert partition.meta("replayed") == 1


def test_other_groups_acknowledge_a_replayed_entry_unseen(partition: Partition, dead: bytes) -> None:
    log = partition.reader("two", group="log")
    log.ack([entry for entry, _ in partition.pending("log")])
    partition.call.replay(partition.options, dead)
    assert log.read(0) == []
    assert partition.pending("log") == []


def test_an_entry_is_replayed_once_however_often_it_is_asked_for(partition: Partition, dead: bytes) -> None:
    partition.call.replay(partition.options, dead)
    before = partition.state()
    assert partition.call.replay(partition.options, dead) == "MISSING"
    assert not partition.call.discard(dead)
    assert changed(before, partition.state()) == set()


def test_a_full_stream_takes_no_replay_and_keeps_the_entry(make_partition: MakePartition) -> None:
    partition = make_partition(incoming_bytes=MIB)
    (delivery,) = partition.deliver([make_event()])
    partition.call.bury("sink", "one", delivery.id, "unreadable", 3, delivery.body)
    partition.admin.hset(partition.keys.incoming_meta, "bytes", MIB)
    ((entry_id, _),) = partition.admin.xrange(partition.keys.dead)
    before = partition.state()
    assert partition.call.replay(partition.options, entry_id) == "FULL"
    assert changed(before, partition.state()) == set()


def test_an_entry_of_a_deleted_group_is_kept(partition: Partition, dead: bytes) -> None:
    delete_group(partition.bus, partition.admin, "sink")
    before = partition.state()
    assert partition.call.replay(partition.options, dead) == "NOGROUP"
    assert changed(before, partition.state()) == set()


def test_an_entry_of_a_destroyed_group_waits_above_its_floor(partition: Partition, dead: bytes) -> None:
    partition.call.trim(partition.options)
    partition.admin.xgroup_destroy(partition.keys.incoming, "sink")
    assert partition.call.replay(partition.options, dead) == "OK"
    partition.call.trim(partition.options)
    partition.call.open("", "sink")
    assert [delivery.only_for for delivery in partition.reader().read(0)] == ["sink"]
    assert partition.meta("lost:sink") == 0


def test_a_discarded_entry_is_gone_and_counted(partition: Partition, dead: bytes) -> None:
    before = partition.state()
    assert partition.call.discard(dead)
    assert changed(before, partition.state()) == {"dead", "meta"}
    assert partition.admin.xlen(partition.keys.dead) == 0
    assert partition.meta("discarded") == 1
