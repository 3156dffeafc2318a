"""publish.lua: a batch is in the stream once, whatever its producer has to repeat, and what is missing is found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventbus.broker.functions import MOST_BATCHES, GroupPolicy, one_call
from eventbus.broker.transport import PRODUCER_LIFE_MS, PublishReply, PublishRequest, PublishStatus
from eventbus.errors import BusRefused, BusUnavailable, EventBusError
from tests.functions.partition import Partition, changed

STREAM, COUNTERS, PRODUCER = "incoming", "incoming:meta", "producer:p1"
OURS = "the generation of the stream"


def generation_of(partition: Partition) -> str:
    generation: bytes = partition.admin.hget(partition.keys.incoming_meta, "generation")
    return generation.decode()


def test_a_batch_is_one_entry_with_the_running_number_and_the_bytes_before_it(partition: Partition) -> None:
    partition.publish_raw(1, 3, b"abc")
    before = partition.state()
    partition.publish_raw(4, 64, b"defgh")

    after = partition.state()
    entries, _ = after[STREAM][0]
    assert [fields for _, fields in entries] == [
        {b"n": b"3", b"to": b"3", b"at": b"0", b"b": b"abc"},
        {b"n": b"64", b"to": b"67", b"at": b"3", b"b": b"defgh"},
    ]
    generation = generation_of(partition)
    counters = {"events": "67", "bytes": "8", "last": entries[-1][0].decode(), "length": "2"}
    assert after[COUNTERS] == ({"generation": generation, "bus": partition.bus.id} | counters, -1)
    value, life_ms = after[PRODUCER]
    assert value == {"last": "67", "generation": generation}
    assert PRODUCER_LIFE_MS - 5_000 < life_ms <= PRODUCER_LIFE_MS == 2 * 3600 * 1000
    assert changed(before, after) == {STREAM, COUNTERS, PRODUCER}


@pytest.mark.parametrize(
    ("before", "call", "answer", "last", "written"),
    [
        # A producer whose last sequence is 10 sends…
        ((10, OURS), {"first": 11, "n": 2}, PublishStatus.OK, 0, True),
        ((10, OURS), {"first": 10, "n": 1}, PublishStatus.DUP, 0, False),
        ((10, OURS), {"first": 1, "n": 10}, PublishStatus.DUP, 0, False),
        ((10, OURS), {"first": 12, "n": 1}, PublishStatus.GAP, 10, False),
        ((10, OURS), {"first": 10, "n": 2}, PublishStatus.GAP, 10, False),
        ((10, "another"), {"first": 11, "n": 1}, PublishStatus.LOST, 0, True),
        ((10, "another"), {"first": 10, "n": 1}, PublishStatus.DUP, 0, False),
        # A producer of which nothing is known sends…
        (None, {"first": 1, "n": 1}, PublishStatus.OK, 0, True),
        (None, {"first": 1, "n": 1, "generation": OURS}, PublishStatus.OK, 0, True),
        (None, {"first": 2, "n": 1}, PublishStatus.GAP, 0, False),
        (
            None,
            {"first": 2, "n": 1, "generation": "another", "silent_ms": PRODUCER_LIFE_MS},
            PublishStatus.GAP,
            0,
            False,
        ),
        (
            None,
            {"first": 2, "n": 1, "generation": OURS, "silent_ms": PRODUCER_LIFE_MS - 1},
            PublishStatus.GAP,
            0,
            False,
        ),
        (None, {"first": 2, "n": 1, "generation": OURS, "silent_ms": PRODUCER_LIFE_MS}, PublishStatus.OK, 0, True),
    ],
    ids=[
        "the next batch: taken",
        "the last one again: had it already",
        "all of them again: had them already",
        "a later one: there is a hole",
        "other borders: nothing is taken by halves",
        "the next to a stream made anew: taken, and told that the old one is lost",
        "an old one to a stream made anew: had it already",
        "its first batch: taken",
        "its first batch under a fresh id: taken",
        "a later one: the beginning is missing",
        "a later one after long silence to a stream made anew: the beginning is missing",
        "a later one after a silence too short to be forgotten: the server has lost it",
        "a later one after the state's life: it was forgotten, taken",
    ],
)
def test_what_a_producer_is_answered(
    partition: Partition,
    before: tuple[int, str] | None,
    call: dict[str, Any],
    answer: PublishStatus,
    last: int,
    written: bool,
) -> None:
    generation = generation_of(partition)
    if before:
        state = {"last": before[0], "generation": before[1].replace(OURS, generation)}
        partition.admin.hset(partition.keys.producer + b"p1", mapping=state)
    given = call | {"generation": call.get("generation", "").replace(OURS, generation)}
    found = partition.state()

    published = partition.publish_raw(**given)

    told = "" if answer is PublishStatus.GAP else generation
    if before and answer is PublishStatus.DUP:
        told = before[1].replace(OURS, generation)  # of the stream that had it
    assert published == PublishReply(answer, generation=told, last=last)
    assert changed(found, partition.state()) == ({STREAM, COUNTERS, PRODUCER} if written else set())


def batches(first: int, *sizes: int, body: bytes = b"body", **given: Any) -> list[PublishRequest]:
    """Consecutive batches of a producer with so many events each."""
    made = []
    for n in sizes:
        made.append(PublishRequest(0, "p1", first, n, body, given.get("generation", ""), 0, ()))
        first += n
    return made


def statuses(replies: list[PublishReply]) -> list[PublishStatus]:
    return [reply.status for reply in replies]


def test_a_call_with_several_batches_appends_what_a_call_for_each_appends(partition: Partition) -> None:
    answers = partition.publish_batches(*batches(1, 3, 64, 2, body=b"abc"))

    assert answers == [PublishReply(PublishStatus.OK, generation_of(partition))] * 3
    after = partition.state()
    entries, _ = after[STREAM][0]
    assert [fields for _, fields in entries] == [
        {b"n": b"3", b"to": b"3", b"at": b"0", b"b": b"abc"},
        {b"n": b"64", b"to": b"67", b"at": b"3", b"b": b"abc"},
        {b"n": b"2", b"to": b"69", b"at": b"6", b"b": b"abc"},
    ]
    counters = {"events": "69", "bytes": "9", "last": entries[-1][0].decode(), "length": "3"}
    assert counters.items() <= after[COUNTERS][0].items()
    assert after[PRODUCER][0]["last"] == "69"


@pytest.mark.parametrize(
    ("call", "answers", "stored"),
    [
        (batches(1, 4, 6, 2), "DUP DUP OK", [2]),
        (batches(1, 4, 6), "DUP DUP", []),
        (batches(1, 4, 5, 3), "DUP DUP GAP", []),
        (batches(12, 4, 5), "GAP GAP", []),
        (batches(11, 1, 1, 1, body=b"x" * 40), "OK OK FULL", [1, 1]),
        (batches(11, 1, 1, 1, 1, body=b"x" * 40), "OK OK FULL FULL", [1, 1]),
    ],
    ids=[
        "two of three again: the third is taken",
        "all again",
        "other borders in the third",
        "a hole",
        "the third finds no room",
        "nothing after a batch without room",
    ],
)
def test_a_call_stores_the_batches_up_to_the_first_that_it_refuses(
    partition: Partition, call: list[PublishRequest], answers: str, stored: list[int]
) -> None:
    partition.admin.hset(partition.keys.producer + b"p1", mapping={"last": 10, "generation": generation_of(partition)})

    replies = partition.publish_batches(*call, bound=100)

    assert statuses(replies) == [PublishStatus(each) for each in answers.split()]
    entries, _ = partition.state()[STREAM][0]
    assert [int(fields[b"n"]) for _, fields in entries] == stored
    assert partition.admin.hget(partition.keys.producer + b"p1", "last") == b"%d" % (10 + sum(stored))
    assert int(partition.admin.hget(partition.keys.incoming_meta, "full") or 0) == ("FULL" in answers)


def test_a_destroyed_stream_is_told_with_the_first_batch_of_a_call(partition: Partition) -> None:
    partition.publish_raw(1, 5)
    partition.admin.delete(partition.keys.incoming)
    partition.bus.open_partition(partition.admin, 0)

    replies = partition.publish_batches(*batches(1, 5, 1, 1))

    assert statuses(replies) == [PublishStatus.DUP, PublishStatus.LOST, PublishStatus.OK]
    now = generation_of(partition)
    assert replies[0].generation != now
    assert [reply.generation for reply in replies[1:]] == [now, now]


def test_a_call_has_the_consecutive_batches_of_one_producer_and_losses_with_the_first_only(
    partition: Partition,
) -> None:
    first, second, third = batches(1, 2, 3, 4)
    late = msgspec.structs.replace(second, losses=(("dropped", 1),))
    other = msgspec.structs.replace(second, producer="p2")

    assert one_call([first], second)
    assert one_call([first, second], third)
    assert one_call([late], third)
    assert not one_call([first], third)
    assert not one_call([first], late)
    assert not one_call([first], other)
    assert not one_call(batches(1, *[1] * MOST_BATCHES), batches(MOST_BATCHES + 1, 1)[0])
    many = batches(1, *[1] * (MOST_BATCHES + 1))
    with pytest.raises(EventBusError, match="1 to 64 batches"):
        partition.publish_batches(*many)
    assert partition.admin.xlen(partition.keys.incoming) == 0


@pytest.mark.parametrize("before", [0, 5], ids=["a new producer", "a known one"])
def test_a_batch_without_the_right_to_append_and_to_delete_is_stored_later(partition: Partition, before: int) -> None:
    if before:
        partition.publish_raw(1, before)
    partition.client.without = "-xadd -del"
    with pytest.raises(BusRefused):
        partition.publish_raw(before + 1, 2)

    partition.client.without = ""
    assert partition.publish_raw(before + 1, 2).status is PublishStatus.OK


def test_without_a_stream_nothing_is_made_it_has_to_be_opened(partition: Partition) -> None:
    partition.admin.delete(partition.keys.incoming)
    before = partition.state()

    assert partition.publish_raw(1) == PublishReply(PublishStatus.MISSING)
    assert changed(before, partition.state()) == set()

    partition.admin.hdel(partition.keys.incoming_meta, "generation")
    assert partition.publish_raw(1) == PublishReply(PublishStatus.MISSING)


def test_a_destroyed_stream_is_told_once_and_the_producer_goes_on(partition: Partition) -> None:
    partition.publish_raw(1, 5)
    partition.admin.delete(partition.keys.incoming)
    partition.bus.open_partition(partition.admin, 0)

    assert partition.publish_raw(6).status is PublishStatus.LOST
    assert partition.publish_raw(7).status is PublishStatus.OK
    assert partition.admin.xlen(partition.keys.incoming) == 2


def test_beyond_the_byte_bound_it_names_the_group_that_holds_the_stream(partition: Partition) -> None:
    partition.call.open("", "log", GroupPolicy.DROP, "0")
    partition.publish_raw(1, 1, b"x" * 60)
    reader = partition.reader(group="sink")
    reader.ack([delivery.id for delivery in reader.read(0)])
    partition.call.trim(partition.options)  # notes how far each group is
    before = partition.state()

    published = partition.publish_raw(2, 7, b"y" * 41, bound=100)

    assert published == PublishReply(PublishStatus.FULL, group="log")
    after = partition.state()
    assert changed(before, after) == {COUNTERS}
    assert after[COUNTERS][0] == before[COUNTERS][0] | {"full": "7"}
    assert partition.publish_raw(2, 7, b"y" * 40, bound=100).status is PublishStatus.OK


def test_what_was_trimmed_no_longer_counts_towards_the_bound(partition: Partition) -> None:
    partition.publish_raw(1, 1, b"x" * 90)
    assert partition.publish_raw(2, 1, b"x" * 90, bound=100).status is PublishStatus.FULL
    reader = partition.reader()
    reader.ack([delivery.id for delivery in reader.read(0)])
    partition.call.trim(partition.options)

    assert partition.publish_raw(2, 1, b"x" * 90, bound=100).status is PublishStatus.OK


def test_a_full_stream_without_groups_names_nobody(partition: Partition) -> None:
    partition.admin.xgroup_destroy(partition.keys.incoming, "sink")
    assert partition.publish_raw(1, 1, b"x" * 11, bound=10) == PublishReply(
        PublishStatus.FULL, group="sink"
    )  # its floor does
    partition.admin.hdel(partition.keys.meta, "floor:sink")
    assert partition.publish_raw(1, 1, b"x" * 11, bound=10) == PublishReply(PublishStatus.FULL, group="")


def test_losses_are_counted_with_the_batch_and_only_if_it_is_taken(partition: Partition) -> None:
    losses = [("dropped", 3), ("refused", 2)]
    partition.publish_raw(2, losses=losses)  # a hole
    assert "losses:dropped" not in partition.state()[COUNTERS][0]

    partition.publish_raw(1, losses=losses)
    partition.publish_raw(1, losses=losses)  # its reply was lost: it comes again

    counters = partition.state()[COUNTERS][0]
    assert (counters["losses:dropped"], counters["losses:refused"]) == ("3", "2")


def test_when_memory_is_full_it_is_refused_and_nothing_is_written(partition: Partition) -> None:
    partition.publish_raw(1)
    with partition.memory_full():
        before = partition.state()
        with pytest.raises(BusUnavailable, match="out of memory"):
            partition.publish_raw(2)
        assert changed(before, partition.state()) == set()
    assert partition.publish_raw(2).status is PublishStatus.OK
