"""stream_reader.py against real servers: members of a group share its entries, a position is its reader's own."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from eventbus.broker.stream_reader import READ_COUNT, Delivery, Position
from tests.builders import make_event
from tests.functions.partition import Partition


@pytest.fixture
def partition(any_server_url: str, prefix: str) -> Iterator[Partition]:
    made = Partition(any_server_url, prefix)
    yield made
    made.close()


def publish(partition: Partition, *sizes: int) -> None:
    """Entries of so many events each."""
    for size in sizes:
        partition.publish(*[make_event()] * size)


def ids(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.id for delivery in deliveries]


def position_of(partition: Partition) -> Position:
    return Position(bus=partition.bus, client=partition.admin, partition=0)


# -- members of a group ---------------------------------------------------------------------------------------------


def test_a_delivery_says_what_was_published_and_when(partition: Partition) -> None:
    before_ms = time.time_ns() // 1_000_000
    publish(partition, 3, 2)
    first, second = partition.reader().read(0)
    assert (first.events, first.to, second.events, second.to) == (3, 3, 2, 5)
    assert before_ms - 1_000 <= first.clock_ms <= time.time_ns() // 1_000_000 + 1_000
    assert not first.again
    assert first.deaths == 0


def test_one_round_trip_beats_and_reads(partition: Partition) -> None:
    publish(partition, 1, 1)
    reader = partition.reader()
    reader.ack(ids(reader.read(0)))
    publish(partition, 1)
    (third,) = reader.read(0, beat=True)
    assert [entry for entry, _ in partition.pending()] == [third.id]
    assert reader.heartbeats() == {"one": "1"}


def test_a_read_blocks_no_longer_than_told(partition: Partition) -> None:
    start = time.monotonic()
    assert partition.reader().read(50) == []
    assert time.monotonic() - start > 0.04
    with partition.admin.monitor() as monitor:
        assert partition.reader().read(0) == []
        said = next(line["command"] for line in monitor.listen() if "XREADGROUP" in line["command"])
    assert "BLOCK" not in said


def test_what_was_given_and_not_acknowledged_is_found_again(partition: Partition) -> None:
    publish(partition, *[1] * (READ_COUNT + 5))
    reader = partition.reader()
    given = [*reader.read(0), *reader.read(0)]  # whose replies were lost
    again = reader.own_pending()
    assert ids(again) == ids(given)[:READ_COUNT]
    assert all(delivery.again for delivery in again)
    assert again[0].body == given[0].body
    reader.ack(ids(again))
    assert ids(reader.own_pending()) == ids(given)[READ_COUNT:]


def test_what_is_pending_and_no_longer_in_the_stream_is_counted_and_not_in_the_way(partition: Partition) -> None:
    publish(partition, *[1] * (READ_COUNT + 5))
    reader = partition.reader()
    given = [*reader.read(0), *reader.read(0)]
    partition.admin.hset(partition.keys.attempts + b"sink", given[0].id, 2)
    partition.admin.xtrim(partition.keys.incoming, minid=given[READ_COUNT].id, approximate=False)

    assert ids(reader.own_pending()) == ids(given)[READ_COUNT:]

    assert partition.meta("lost_batches:sink") == READ_COUNT
    assert not partition.admin.exists(partition.keys.attempts + b"sink")


def test_what_another_has_taken_over_is_no_longer_ones_own(partition: Partition) -> None:
    publish(partition, 1, 1, 1)
    slow, quick = partition.reader("slow"), partition.reader("quick")
    first, second, third = slow.read(0)
    partition.admin.xclaim(partition.keys.incoming, "sink", "quick", 0, [second.id])
    slow.ack([first.id])
    assert slow.still_own([first.id, second.id, third.id]) == {third.id}
    assert quick.still_own([second.id]) == {second.id}


def test_heartbeats_tell_every_member_also_one_that_never_beat(partition: Partition) -> None:
    publish(partition, 1)
    partition.reader("silent").read(0)
    partition.reader("beating").read(0, beat=True)
    partition.reader("beating").beat()
    partition.reader("elsewhere", group="log").open()
    partition.reader("elsewhere", group="log").read(0, beat=True)
    assert partition.reader().heartbeats() == {"beating": "2", "silent": ""}


def test_who_leaves_with_nothing_pending_is_forgotten_and_with_something_is_kept_without_its_counter(
    partition: Partition,
) -> None:
    publish(partition, 1)
    holder, other = partition.reader("holder"), partition.reader("other")
    holder.read(0, beat=True)
    other.read(0, beat=True)
    holder.leave()
    other.leave()
    assert other.heartbeats() == {"holder": ""}


@pytest.mark.parametrize(
    "fields",
    [{"x": "y"}, {"b": "", "n": "many", "to": "-1"}, {"n": "9" * 18}],
    ids=["no fields of ours", "odd", "no body"],
)
def test_an_entry_that_somebody_else_has_added_is_delivered_as_it_is(
    partition: Partition, fields: dict[str, str]
) -> None:
    partition.admin.xadd(partition.keys.incoming, fields)
    (delivery,) = partition.reader().read(0)
    assert delivery.body == b""
    assert delivery.to == 0


# -- positions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ms", "seen"), [(0, 4), (1, 4), (99, 4), (100, 3), (101, 1), (102, 0)])
def test_from_a_time_it_sees_what_was_taken_then_or_later(partition: Partition, ms: int, seen: int) -> None:
    for entry_id in ("99-3", "100-0", "100-1", "101-0"):
        partition.admin.xadd(partition.keys.incoming, {"n": 1, "to": 1, "at": 0, "b": "x"}, id=entry_id)
    position = position_of(partition)
    position.at_time(ms)
    assert len(position.read(1)) == seen


def test_what_was_before_its_beginning_is_not_missed(partition: Partition) -> None:
    publish(partition, 5, 3)
    newest = partition.admin.xrevrange(partition.keys.incoming, count=1)[0][0]
    partition.admin.xtrim(partition.keys.incoming, minid=newest, approximate=False)
    position = position_of(partition)
    position.read(1)
    assert position.missed == 0


def test_an_entry_without_a_running_number_is_not_taken_for_a_loss(partition: Partition) -> None:
    publish(partition, 5)
    position = position_of(partition)
    position.read(1)
    partition.admin.xadd(partition.keys.incoming, {"x": "y"})
    publish(partition, 3)
    assert [delivery.to for delivery in position.read(1)] == [0, 8]
    assert position.missed == 0


def test_after_the_stream_was_destroyed_it_goes_on(partition: Partition) -> None:
    publish(partition, 5)
    position = position_of(partition)
    position.read(1)
    partition.admin.delete(partition.keys.incoming)
    time.sleep(0.002)  # ids are times, not a wait: what is added within the same millisecond would look like the old
    partition.bus.open_partition(partition.admin, 0)
    publish(partition, 1)
    assert [delivery.to for delivery in position.read(1)] == [1]
    assert position.missed == 0
