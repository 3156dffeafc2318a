"""correlate_and_store.lua: aggregate, count, filter, write and acknowledge, all or nothing.

The rules of correlation themselves are held by tests/conformance; here it is what the call leaves behind."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
import pytest

from eventbus.model.encoding.wire import pack_batch, pack_event
from eventbus.model.event import ObjectMeta
from tests.builders import NOW, make_event, make_reference, make_similar_events
from tests.functions.conftest import MakePartition
from tests.functions.partition import MINUTE, T0, Partition, changed
from tests.stored_layout import form_of

NAME = make_event().metadata.name


def named(name: str, **overrides: Any) -> Any:
    return make_event(metadata=ObjectMeta(name=name, namespace="default"), **overrides)


# -- the keys of one event -----------------------------------------------------------------------------------------


def test_an_events_first_sight_writes_these_keys_with_these_lives(partition: Partition) -> None:
    deliveries = partition.deliver([make_event()])
    before = partition.state()

    assert partition.record_deliveries(deliveries) == ["c"]

    after = partition.state()
    (key,) = partition.answers()
    state = next(name for name in after if name.startswith("corr:"))
    stored = f"object:events:{key.decode()}"
    indexes = {"index:name:events", "index:object", "index:expiry"}
    minute = f"occurrences:{T0 // MINUTE}"
    written = {"incoming", "meta", "changes:events", "version:events", state, stored, minute}
    assert changed(before, after) == written | indexes
    lives = {name: life for name, (_, life) in after.items() if life != -1 and not name.startswith("producer:")}
    assert lives.keys() == {state, minute}
    assert after[minute][0] == {"default\0Pod\0Normal\0Started\0kubelet": "1"}
    assert 6 * 3_600_000 - 5_000 < lives[minute] <= 6 * 3_600_000
    hold_ms = 24 * 3_600_000
    life_ms = max(2 * 600_000, 2 * 1_000 * 1_000 / partition.options.qps)  # two intervals, or two refills of 1 000
    assert life_ms - 5_000 < lives[state] - hold_ms <= life_ms + 1_000

    assert after["index:name:events"][0] == {b"default/" + NAME.encode() + b"\0" + key: 0}
    assert after["index:object"][0] == {b"default/pod/web-0\0" + key: 0}
    assert after["index:expiry"][0].keys() == {key}
    due_ms = after["index:expiry"][0][key]
    assert abs(due_ms - datetime.now(UTC).timestamp() * 1000 - 3_600_000) < 10_000


def test_the_change_and_the_stored_event_are_the_event_with_its_version(partition: Partition) -> None:
    partition.record(make_event())

    ((kind, version, event),) = partition.changes()
    assert kind == "A"
    (stored,) = partition.stored()
    assert stored == event
    assert stored.metadata.resource_version == str(version) == str(partition.version())
    assert stored.metadata.uid == "p1:1"
    assert (stored.count, stored.message) == (1, make_event().message)
    assert (stored.first_timestamp, stored.last_timestamp) == (NOW, NOW)


def test_a_repeat_patches_count_and_last_time_and_keeps_name_and_first_time(partition: Partition) -> None:
    partition.record(named("first"))
    later = NOW + timedelta(minutes=1)

    assert partition.record(named("second", first_timestamp=later, last_timestamp=later)) == "p"

    (event,) = partition.stored()
    assert (event.metadata.name, event.count) == ("first", 2)
    assert (event.first_timestamp, event.last_timestamp) == (NOW, later)
    assert partition.letters() == "AM"
    assert partition.meta("events") == 2
    assert (partition.meta("created"), partition.meta("patched")) == (1, 1)


def test_many_events_of_one_object_in_one_call_are_one_change(partition: Partition) -> None:
    deliveries = partition.deliver([make_event()] * 10, [make_event()] * 20)

    assert partition.record_deliveries(deliveries) == ["c" + "p" * 9, "p" * 20]

    ((_, _, event),) = partition.changes()
    assert event.count == 30


def test_the_tenth_message_is_folded_and_the_fold_says_how_often(partition: Partition) -> None:
    events = make_similar_events(12)

    assert partition.record(*events) == "ccccccccc" + "CPP"

    (aggregate,) = [event for event in partition.stored() if event.message.startswith("(combined from")]
    assert (aggregate.count, aggregate.message) == (3, "(combined from similar events): message-11")
    assert aggregate.metadata.name == f"web-0.{T0 * 1_000_000:x}"
    assert partition.meta("aggregated") == 3
    counted, life_ms = partition.state()["suppressed"]
    assert counted == {"A\0kubelet\0Pod\0Normal\0Started": "3", "names\0A": "1"}
    assert life_ms == -1
    assert [form_of(change.packed) for change in partition.raw_changes()] == [""] * 9 + ["a"]


def test_a_set_with_a_digest_of_another_length_stays_as_it_is(make_partition: MakePartition) -> None:
    partition = make_partition(max_events=1)
    partition.record(make_event())
    (key,) = partition.admin.keys(partition.keys.correlation + b"*")
    before = msgpack.unpackb(partition.admin.get(key), raw=True)
    partition.admin.set(key, msgpack.packb([*before[:-1], [T0, b"not eight bytes"]], use_bin_type=False))
    partition.record(make_event(), at_ms=T0 + 1)
    assert msgpack.unpackb(partition.admin.get(key), raw=True)[-1] == [T0 + 1, b"not eight bytes"]


def test_a_source_and_object_keep_the_sets_of_their_latest_reasons(make_partition: MakePartition) -> None:
    partition = make_partition(max_events=2, burst=1000)
    kept, other = make_event(reason="Kept", message="one"), make_event(reason="Kept", message="two")
    partition.record(make_event(reason="Forgotten", message="one"), at_ms=T0)
    for number in range(40):
        partition.record(kept, make_event(reason=f"Reason{number}"), at_ms=T0 + 1 + number)
    (key,) = partition.admin.keys(partition.keys.correlation + b"*")
    assert len(msgpack.unpackb(partition.admin.get(key), raw=True)) == 5 + 2 * 32
    assert partition.record(other, make_event(reason="Forgotten", message="two"), at_ms=T0 + 50) == "Cc"


@pytest.fixture
def one_token(make_partition: MakePartition) -> Partition:
    """An event of count 0, which does not count as seen, is stored and has taken the only token."""
    partition = make_partition(burst=1, report_suppressed=False)
    assert partition.record(named("first", count=0)) == "c"
    return partition


def test_what_is_stored_stays_while_what_takes_its_place_is_held_back(one_token: Partition) -> None:
    before = one_token.stored()
    assert one_token.record(named("second", count=0), at_ms=T0 + 1) == "s"
    assert one_token.record(named("third", count=3), at_ms=T0 + 2) == "s"
    assert (one_token.letters(), one_token.stored()) == ("A", before)
    (answer,) = one_token.answers().values()
    assert (answer.count, answer.name) == (3, "third")

    assert one_token.record(named("fourth"), at_ms=T0 + 300_000) == "r"

    assert one_token.letters() == "ADA"
    assert [(event.metadata.name, event.count) for event in one_token.stored()] == [("third", 4)]


def test_what_takes_the_place_of_an_event_of_the_same_call_leaves_it_there_if_it_is_held_back(
    make_partition: MakePartition,
) -> None:
    partition = make_partition(burst=1, report_suppressed=False)
    assert partition.record(named("first", count=0), named("second", count=2), named("third")) == "css"
    assert partition.letters() == "A"
    assert [(event.metadata.name, event.count) for event in partition.stored()] == [("first", 0)]
    (answer,) = partition.answers().values()
    assert (answer.count, answer.name) == (3, "second")


@pytest.mark.parametrize("way", ["expire", "remove"])
def test_what_was_held_back_is_remembered_when_the_stored_one_goes(one_token: Partition, way: str) -> None:
    assert one_token.record(named("second", count=2), at_ms=T0 + 1) == "s"
    if way == "expire":
        assert one_token.expire(in_ms=2 * 3_600_000).expired == 1
    else:
        one_token.store.delete("default", "first")
    assert (one_token.letters(), one_token.stored()) == ("AD", [])
    (answer,) = one_token.answers().values()
    assert (answer.event, answer.count, answer.name) == (None, 2, "second")
    assert one_token.record(named("third"), at_ms=T0 + 300_000) == "r"
    assert [(event.metadata.name, event.count) for event in one_token.stored()] == [("second", 3)]


def by_source(partition: Partition, letter: str) -> dict[str, int]:
    """Reason → how many; `` is all without a name."""
    counted, _ = partition.state()["suppressed"]
    return {name.split("\0")[-1]: int(n) for name, n in counted.items() if name.startswith(f"{letter}\0")}


def test_each_way_not_to_be_written_has_names_of_its_own(partition: Partition) -> None:
    many = {f"S\0kubelet\0Pod\0Normal\0Reason{i}": 1 for i in range(500)}
    partition.admin.hset(partition.keys.suppressed, mapping=many)
    partition.record(*make_similar_events(11, reason="One"))
    assert by_source(partition, "A") == {"One": 2}
    assert len(by_source(partition, "S")) == 500


def test_the_source_that_counts_most_gets_a_name_when_there_are_none_left(make_partition: MakePartition) -> None:
    partition = make_partition(max_events=1, burst=10_000)
    earlier = {f"A\0kubelet\0Pod\0Normal\0Reason{i}": 1_000 + i for i in range(500)}
    partition.admin.hset(partition.keys.suppressed, mapping=earlier)

    for turn in range(20):
        fresh = [make_event(reason=f"Fresh{turn}-{n}") for n in range(40)]
        assert partition.record(*fresh, *[make_event(reason="Flood")] * 40).isupper()

    counted = by_source(partition, "A")
    assert counted["Flood"] == 20 * 40
    assert counted["Reason499"] == 1_499
    assert len(counted) <= 501
    assert sum(counted.values()) == sum(earlier.values()) + 20 * 80
    fields, _ = partition.state()["suppressed"]
    assert len(fields) <= 2 * 500 + 3


# -- whose batch it is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["acknowledged", "claimed"])
def test_a_batch_that_is_not_the_consumers_any_more_is_answered_with_a_dash(partition: Partition, how: str) -> None:
    deliveries = partition.deliver([make_event()])
    if how == "acknowledged":
        partition.reader().ack([deliveries[0].id])
    else:
        partition.admin.xclaim(partition.keys.incoming, "sink", "two", 0, [deliveries[0].id])
    before = partition.state()

    assert partition.record_deliveries(deliveries) == ["-"]

    assert changed(before, partition.state()) == set()


def test_of_several_batches_only_the_stale_one_is_left_out(partition: Partition) -> None:
    deliveries = partition.deliver([make_event()], [make_event(message="stale")], [make_event()] * 2)
    partition.admin.xclaim(partition.keys.incoming, "sink", "two", 0, [deliveries[1].id])

    assert partition.record_deliveries(deliveries) == ["c", "-", "pp"]

    assert [(event.message, event.count) for event in partition.stored()] == [(make_event().message, 3)]
    assert partition.pending() == [(deliveries[1].id, "two")]
    assert (partition.meta("events"), partition.meta("stale")) == (3, 1)


# -- batches that come late ----------------------------------------------------------------------------------------


def test_a_late_batch_counts_but_moves_neither_last_time_nor_message(make_partition: MakePartition) -> None:
    partition = make_partition(burst=1_000, max_events=1)  # everything is folded, so that the message moves
    first, second, third = partition.deliver(*([make_event(message=f"m{i}")] for i in range(3)))
    partition.record_deliveries([first], at_ms=T0)
    partition.record_deliveries([third], at_ms=T0 + 2 * MINUTE)

    assert partition.record_deliveries([second], at_ms=T0 + MINUTE) == ["P"]

    (event,) = partition.stored()
    assert (event.count, event.message) == (3, "(combined from similar events): m2")
    assert event.last_timestamp == datetime.fromtimestamp((T0 + 2 * MINUTE) / 1000, UTC)
    assert partition.meta("late") == 1


def test_of_two_batches_of_one_millisecond_the_one_with_the_lesser_sequence_is_late(partition: Partition) -> None:
    later = NOW + timedelta(minutes=1)
    for entry_id, moment in (("1700000000000-9", NOW), ("1700000000000-10", later)):
        body = pack_batch(entry_id, 1, [pack_event(make_event(last_timestamp=moment))])
        partition.admin.xadd(partition.keys.incoming, {"n": 1, "to": 1, "at": 0, "b": body}, id=entry_id)
    ninth, tenth = partition.reader().read(0)
    partition.record_deliveries([tenth])
    partition.record_deliveries([ninth])

    (event,) = partition.stored()
    assert (event.count, event.last_timestamp) == (2, later)


# -- names ---------------------------------------------------------------------------------------------------------


def test_a_taken_name_gets_a_suffix_and_both_events_live(partition: Partition) -> None:
    partition.record(named("same", message="one"))
    partition.record(named("same", message="two"))

    names = {event.message: event.metadata.name for event in partition.stored()}
    assert names["one"] == "same"
    assert re.fullmatch(r"same\.[0-9a-f]{8}", names["two"])  # an object of Kubernetes may have it


def test_a_name_taken_within_the_same_call_is_seen(partition: Partition) -> None:
    assert partition.record(named("same", message="one"), named("same", message="two")) == "cc"
    assert len({event.metadata.name for event in partition.stored()}) == 2


def test_a_name_taken_while_the_event_was_expired_is_not_given_twice(partition: Partition) -> None:
    partition.record(named("same", message="one"))
    partition.expire(in_ms=3_600_001)
    partition.record(named("same", message="two"))

    assert partition.record(named("other", message="one")) == "r"

    names = {event.message: event.metadata.name for event in partition.stored()}
    assert names["two"] == "same"
    assert names["one"].startswith("same.")


def test_an_object_of_another_namespace_may_have_the_same_name(partition: Partition) -> None:
    about = make_reference(namespace="other")
    elsewhere = make_event(metadata=ObjectMeta(name="same", namespace="other"), involved_object=about)
    partition.record(named("same"), elsewhere)
    assert [(e.metadata.namespace, e.metadata.name) for e in partition.stored()] == [
        ("default", "same"),
        ("other", "same"),
    ]


def test_what_counts_as_never_seen_is_replaced_with_both_changes(partition: Partition) -> None:
    """client-go: a count of 0 is not remembered, so the same event is created again."""
    partition.record(named("zero", count=0))
    partition.record(named("again", count=0))

    changes = [(kind, event.metadata.name, version) for kind, version, event in partition.changes()]
    versions = [version for _, _, version in changes]
    assert [change[:2] for change in changes] == [("A", "zero"), ("D", "zero"), ("A", "again")]
    assert versions == list(range(versions[0], versions[0] + 3))
    assert [int(event.metadata.resource_version) for _, _, event in partition.changes()] == versions
    assert [event.metadata.name for event in partition.stored()] == ["again"]
    assert len(partition.state()["index:object"][0]) == 1


# -- burials and isolation -----------------------------------------------------------------------------------------


def test_burials_are_written_in_the_same_call_and_the_neighbours_are_counted(partition: Partition) -> None:
    deliveries = partition.deliver([make_event(), make_event(message="other")])
    before = partition.state()

    replies = partition.record_deliveries(deliveries, burials=[("too-long", 0, b"12345"), ("unreadable", 2, b"6")])

    assert replies == ["cc"]
    buried, life_ms = partition.state()["dead"]
    assert [{**fields, b"id": None} for _, fields in buried[0]] == [
        {b"id": None, b"group": b"sink", b"cause": b"too-long", b"deaths": b"0", b"at": b"0", b"b": b"12345"},
        {b"id": None, b"group": b"sink", b"cause": b"unreadable", b"deaths": b"2", b"at": b"5", b"b": b"6"},
    ]
    assert {fields[b"id"] for _, fields in buried[0]} == {deliveries[0].id}
    assert life_ms == -1
    assert (partition.meta("buried:sink:too-long"), partition.meta("buried:sink:unreadable")) == (1, 1)
    assert partition.pending() == []
    assert "dead" not in before


def test_nothing_is_buried_of_a_stale_batch(partition: Partition) -> None:
    deliveries = partition.deliver([make_event()])
    partition.reader().ack([deliveries[0].id])
    assert partition.record_deliveries(deliveries, burials=[("unreadable", 0, b"x")]) == ["-"]
    assert "dead" not in partition.state()


def test_one_event_at_a_time_the_batch_is_acknowledged_with_the_last(partition: Partition) -> None:
    (delivery,) = partition.deliver([make_event(message=f"m{i}") for i in range(3)])
    reader = partition.reader()
    seen = []
    for position in range(3):
        assert reader.isolate(delivery.id, position)
        assert partition.record_deliveries([delivery], only=position) == ["c"]
        seen.append(([pending.next_position for pending in reader.own_pending()], len(partition.stored())))

    assert seen == [([1], 1), ([2], 2), ([], 3)]
    assert "attempts:sink" not in partition.state()


def test_what_was_recorded_one_event_at_a_time_is_never_counted_again_with_its_batch(partition: Partition) -> None:
    (delivery,) = partition.deliver([make_event(message=f"m{i}") for i in range(3)])
    assert partition.record_deliveries([delivery], only=0) == ["c"]
    assert partition.record_deliveries([delivery], only=1) == ["c"]
    before = partition.state()

    assert partition.record_deliveries([delivery]) == ["<"]
    assert partition.record_deliveries([delivery], only=1) == ["<"]

    assert changed(before, partition.state()) == set()
    assert partition.record_deliveries([delivery], only=2) == ["c"]
    assert partition.pending() == []


def test_the_deaths_of_a_batch_are_forgotten_when_it_is_acknowledged_and_no_others(partition: Partition) -> None:
    (delivery,) = partition.deliver([make_event()])
    attempts = partition.keys.attempts + b"sink"
    partition.admin.hset(attempts, mapping={delivery.id: 2, b"9-9": 1})
    partition.record_deliveries([delivery])
    assert partition.state()["attempts:sink"] == ({"9-9": "1"}, -1)


def test_a_batch_without_events_is_just_acknowledged(partition: Partition) -> None:
    partition.admin.xadd(partition.keys.incoming, {"n": 0, "to": 0, "at": 0, "b": pack_batch("p1", 1, [])})
    assert partition.record_deliveries(partition.reader().read(0)) == [""]
    assert partition.pending() == []
    assert partition.changes() == []
