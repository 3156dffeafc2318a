"""publish_once.lua: events of one batch are stored once each, however the requests with them repeat and overlap."""

from __future__ import annotations

import pytest

from eventbus.broker.transport import PublishReply, PublishStatus
from eventbus.errors import BusRefused
from tests.functions.partition import Partition, changed

STREAM, COUNTERS = "incoming", "incoming:meta"
OK = PublishReply(PublishStatus.OK)


def test_a_batch_of_new_events_is_one_entry_and_a_state_for_each(partition: Partition) -> None:
    before = partition.state()

    assert partition.publish_once("a", "b", body=b"both") == OK

    after = partition.state()
    entries, _ = after[STREAM][0]
    assert [fields for _, fields in entries] == [{b"n": b"2", b"to": b"2", b"at": b"0", b"b": b"both"}]
    assert (after[COUNTERS][0]["events"], after[COUNTERS][0]["bytes"], after[COUNTERS][0]["length"]) == ("2", "4", "1")
    for name in ("producer:a", "producer:b"):
        value, life_ms = after[name]
        assert value == {"last": "1", "generation": after[COUNTERS][0]["generation"]}
        assert 55_000 < life_ms <= 60_000
    assert changed(before, after) == {STREAM, COUNTERS, "producer:a", "producer:b"}


@pytest.mark.parametrize(
    ("producers", "stored"),
    [(("a",), (0,)), (("a", "b"), (0, 1)), (("b", "c", "a"), (0, 2)), (("c", "b"), (1,))],
    ids=["one of them", "all", "in another order with a new one", "one, after a new one"],
)
def test_a_batch_with_events_that_are_stored_names_them_and_changes_nothing(
    partition: Partition, producers: tuple[str, ...], stored: tuple[int, ...]
) -> None:
    partition.publish_once("a", "b")
    before = partition.state()

    assert partition.publish_once(*producers) == PublishReply(PublishStatus.DUP, stored=stored)
    assert changed(before, partition.state()) == set()


def test_the_state_of_an_event_is_that_of_a_producer_of_one(partition: Partition) -> None:
    partition.publish_raw(1, producer="old")
    assert partition.publish_once("old").status is PublishStatus.DUP
    partition.publish_once("new")
    assert partition.publish_raw(1, producer="new").status is PublishStatus.DUP


def test_a_full_stream_takes_none_and_counts_them_all(partition: Partition) -> None:
    before = partition.state()

    assert partition.publish_once("a", "b", body=b"x" * 11, bound=10).status is PublishStatus.FULL

    after = partition.state()
    assert changed(before, after) == {COUNTERS}
    assert after[COUNTERS][0] == before[COUNTERS][0] | {"full": "2"}
    assert partition.publish_once("a", "b", body=b"x" * 10, bound=10) == OK


def test_a_batch_without_the_right_to_append_and_to_delete_is_stored_later(partition: Partition) -> None:
    partition.client.without = "-xadd -del"
    with pytest.raises(BusRefused):
        partition.publish_once("a", "b")

    partition.client.without = ""
    assert partition.publish_once("a", "b") == OK


def test_without_a_stream_nothing_is_made_it_has_to_be_opened(partition: Partition) -> None:
    partition.admin.delete(partition.keys.incoming)
    before = partition.state()

    assert partition.publish_once("a", "b").status is PublishStatus.MISSING
    assert changed(before, partition.state()) == set()
