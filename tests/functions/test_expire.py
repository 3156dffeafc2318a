"""expire.lua: an event goes when its hour is over, or when there are too many; its count stays for eight days."""

from __future__ import annotations

import time
from typing import Any

import pytest

from eventbus.broker.functions import Swept
from eventbus.broker.keys import bytes_in
from eventbus.model.event import ObjectMeta
from tests.builders import make_event, make_reference
from tests.functions.conftest import MakePartition
from tests.functions.partition import Partition, changed
from tests.stored_layout import changes_of_entry, form_of

HOUR = 3_600_000
EIGHT_DAYS = 8 * 24 * HOUR


def named(name: str, **overrides: Any) -> Any:
    return make_event(metadata=ObjectMeta(name=name, namespace="default"), message=name, **overrides)


def test_before_its_time_nothing_happens(partition: Partition) -> None:
    partition.record(make_event())
    before = partition.state()
    assert partition.expire(in_ms=HOUR - 10_000) == Swept()
    assert changed(before, partition.state()) == set()


def test_at_its_time_the_body_goes_with_a_deleted_change_and_the_count_stays(partition: Partition) -> None:
    partition.record(make_event(), make_event())
    (key,) = partition.answers()
    before = partition.state()

    assert partition.expire(in_ms=HOUR) == Swept(expired=1)

    after = partition.state()
    assert partition.letters() == "AD"
    added, deleted = partition.changes()
    assert deleted[1] == added[1] + 1 == partition.version()
    assert deleted[2].metadata.resource_version == str(deleted[1])
    assert (deleted[2].count, deleted[2].metadata.name) == (2, added[2].metadata.name)
    assert partition.stored() == []
    answer = partition.answers()[key]
    assert (answer.event, answer.count, answer.name) == (None, 2, added[2].metadata.name)
    assert not {"index:name:events", "index:object", "index:expiry"} & after.keys()
    forget_ms = after["index:forget"][0][key]
    assert abs(forget_ms - time.time() * 1000 - HOUR - EIGHT_DAYS) < 60_000
    gone, object_key = {"index:name:events", "index:object", "index:expiry"}, f"object:events:{key.decode()}"
    assert changed(before, after) == {*gone, "index:forget", "changes:events", "version:events", "meta", object_key}
    assert partition.meta("expired") == 1


@pytest.mark.parametrize("form", ["", "a", "s"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("Pod", "web-0"), ("Straße", "web-0"), ("ÄRGER", "straße/0"), ("İ", "x"), ("", ""), ("K", "a/b"), ("Pod", "\0")],
)
def test_it_goes_from_the_index_by_object_whatever_that_is_called(
    make_partition: MakePartition, kind: str, name: str, form: str
) -> None:
    """What an event is about stands in its body alone, if Lua and Python write its kind small in the same way."""
    partition = make_partition(max_events=1 if form == "a" else 9, burst=1 if form == "s" else 9)
    about = make_reference(kind=kind, name=name)
    partition.record(named("one", involved_object=about), named("two", involved_object=about))

    members = {member[:-15].decode() for member in partition.admin.zrange(partition.keys.index_object, 0, -1)}
    assert members == {f"default/{kind.lower()}/{name}"}
    forms = {form_of(packed) for packed in partition.admin.mget(partition.admin.keys(partition.keys.object + b"*"))}
    assert form in forms

    partition.expire(in_ms=HOUR)
    assert not partition.admin.exists(partition.keys.index_object)


def test_the_next_one_goes_on_counting_under_the_same_name(partition: Partition) -> None:
    partition.record(named("first"), named("first"))
    partition.expire(in_ms=HOUR)

    assert partition.record(named("first")) == "r"  # client-go: a patch finds nothing, so it is created

    (event,) = partition.stored()
    assert (event.metadata.name, event.count) == ("first", 3)
    assert partition.letters() == "ADA"
    assert "index:forget" not in partition.state()


def test_a_write_puts_the_hour_off(partition: Partition) -> None:
    partition.record(make_event())
    (key,) = partition.answers()
    partition.admin.zadd(partition.keys.index_expiry, {key: 1})  # long overdue
    partition.record(make_event())
    assert partition.expire() == Swept()


def test_after_eight_days_the_count_is_forgotten_without_a_change(partition: Partition) -> None:
    partition.record(make_event())
    partition.expire(in_ms=HOUR)

    assert partition.expire(in_ms=HOUR + EIGHT_DAYS - 10_000) == Swept()
    assert partition.expire(in_ms=HOUR + EIGHT_DAYS + 10_000) == Swept(forgotten=1)

    assert partition.answers() == {}
    assert partition.letters() == "AD"
    assert "index:forget" not in partition.state()
    assert partition.record(make_event()) == "c"
    assert partition.stored()[0].count == 1


def test_counts_of_what_was_held_back_are_kept_and_forgotten_likewise(make_partition: MakePartition) -> None:
    partition = make_partition(burst=1, report_suppressed=False)
    assert partition.record(named("taken"), named("held back")) == "cs"
    held = next(key for key, answer in partition.answers().items() if answer.event is None)
    forget_ms = partition.state()["index:forget"][0][held]
    assert abs(forget_ms - time.time() * 1000 - EIGHT_DAYS) < 60_000

    assert partition.expire(in_ms=EIGHT_DAYS + 10_000, keys=[held]) == Swept(forgotten=1)
    assert held not in partition.answers()


def test_beyond_max_stored_the_least_recently_written_go(make_partition: MakePartition) -> None:
    partition = make_partition(burst=1_000, max_stored=100, max_events=1_000)
    partition.record(*(named(f"e{i:03}") for i in range(103)))
    order = {answer.event.metadata.name: key for key, answer in partition.answers().items() if answer.event}
    for age, name in enumerate(["e050", "e010", "e020", "e030"]):  # least recently written first
        partition.admin.zincrby(partition.keys.index_expiry, -1_000_000 + age, order[name])

    assert partition.expire() == Swept(evicted=3)

    names = {event.metadata.name for event in partition.stored()}
    assert len(names) == 100
    assert names.isdisjoint({"e050", "e010", "e020"})
    assert partition.letters() == "A" * 103 + "DDD"
    assert partition.meta("evicted") == 3
    counted, _ = partition.state()["suppressed"]
    assert counted == {"E\0kubelet\0Pod\0Normal\0Started": "3", "names\0E": "1"}
    assert partition.record(named("e050")) == "r"  # its count was kept


def test_beyond_max_records_counts_are_forgotten_and_stored_events_are_not(make_partition: MakePartition) -> None:
    partition = make_partition(burst=1_000, max_records=100, max_events=1_000)
    partition.record(*(named(f"e{i:03}") for i in range(104)))
    order = {answer.event.metadata.name: key for key, answer in partition.answers().items() if answer.event}
    first = [order[f"e{i:03}"] for i in range(10)]
    assert partition.expire(in_ms=HOUR, keys=first) == Swept(expired=10)

    assert partition.expire(keys=first) == Swept(forgotten_early=4)

    assert len(partition.answers()) == 100
    assert len(partition.stored()) == 94
    assert partition.meta("forgotten_early") == 4


def test_the_bytes_of_all_changes_are_summed_up_so_that_they_can_be_bounded(partition: Partition) -> None:
    partition.record(make_event(), named("two"), named("three"))
    partition.record(make_event())
    first, second, _ = partition.answers()
    partition.expire(in_ms=HOUR, keys=[first])
    partition.call.remove_event(partition.options, second)

    total = 0
    for _, fields in partition.admin.xrange(partition.keys.changes_of("events")):
        assert int(fields[b"at"]) == total
        total += 60 + sum(40 + len(change.packed) for change in changes_of_entry(fields))
    assert bytes_in(partition.admin.get(partition.keys.version_of("events"))) == total
    assert partition.letters() == "AAAMDD"


@pytest.mark.parametrize("key", [b"f" * 14, b"0" * 14])
def test_candidates_that_are_not_there_are_passed_over(partition: Partition, key: bytes) -> None:
    partition.record(make_event())
    before = partition.state()
    assert partition.expire(in_ms=HOUR, keys=[key]) == Swept()
    assert changed(before, partition.state()) == set()


def test_an_index_entry_without_its_object_is_cleared_away(partition: Partition) -> None:
    partition.record(make_event())
    (key,) = partition.answers()
    partition.admin.delete(partition.keys.object + key)
    assert partition.expire(in_ms=HOUR) == Swept()
    assert "index:expiry" not in partition.state()
