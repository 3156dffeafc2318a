"""correlate_and_store.lua's one event of its own: EventsSuppressed says how much a token bucket has held back."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest

from eventbus.broker.functions import Swept
from eventbus.model.event import Event
from eventbus.store.stored import decode_stored
from tests.builders import make_event, make_reference
from tests.functions.conftest import MakePartition
from tests.functions.partition import MINUTE, T0, Partition

HOUR = 3_600_000
#: with one token every 300 s
REFILL = 300_000


@pytest.fixture
def one_token(make_partition: MakePartition) -> Partition:
    """A bucket holds one token; the bus has recorded the event that took it."""
    partition = make_partition(burst=1, max_events=100)
    assert partition.record(make_event(message="taken")) == "c"
    return partition


def state_of_source(partition: Partition) -> list[Any]:
    (key,) = partition.admin.keys(partition.keys.correlation + b"*")
    state: list[Any] = msgpack.unpackb(partition.admin.get(key), raw=True)
    return state


def report(partition: Partition) -> Event | None:
    events = [answer.event for answer in partition.answers().values() if answer.event is not None]
    found = [event for event in events if event.reason == "EventsSuppressed"]
    assert len(found) <= 1, "one a bucket"
    return found[0] if found else None


def reported(partition: Partition) -> tuple[str, int]:
    """The kinds of the report's changes so far, and its count as it is written (0: there is none)."""
    kinds = "".join(kind for kind, _, event in partition.changes() if event.reason == "EventsSuppressed")
    event = report(partition)
    return kinds, event.count if event else 0


def test_the_first_that_is_held_back_is_told_at_once(one_token: Partition) -> None:
    before = {field: one_token.meta(field) for field in ("events", "created", "patched")}

    assert one_token.record(make_event(message="too much"), at_ms=T0 + 1) == "s"

    event = report(one_token)
    assert event is not None
    moment = datetime.fromtimestamp((T0 + 1) / 1000, UTC)
    assert (event.count, event.first_timestamp, event.last_timestamp) == (1, moment, moment)
    assert event.metadata.name == f"web-0.{(T0 + 1) * 1_000_000:x}"
    assert event.metadata.namespace == "default"
    taken = next(stored for stored in one_token.stored() if stored.message == "taken")
    assert event.involved_object == taken.involved_object
    assert (event.source, event.type) == (taken.source, taken.type)
    assert "suppressed" in event.message
    # it is no event of anybody's: only the one that was held back is counted
    after = {field: one_token.meta(field) for field in ("events", "created", "patched")}
    assert after == before | {"events": before["events"] + 1}
    assert one_token.meta("suppressed") == 1


def test_it_is_rewritten_at_most_once_a_minute(one_token: Partition) -> None:
    told = []
    for after_ms in (0, 1, MINUTE - 1, MINUTE, MINUTE + 1, 2 * MINUTE - 1, 2 * MINUTE):
        assert one_token.record(make_event(message="too much"), at_ms=T0 + after_ms) == "s"
        told.append(reported(one_token))

    assert told == [("A", 1), ("A", 1), ("A", 1), ("AM", 4), ("AM", 4), ("AM", 4), ("AMM", 7)]


def test_the_next_accepted_event_closes_it_with_the_whole_number(one_token: Partition) -> None:
    assert one_token.record(*[make_event(message="too much")] * 5) == "sssss"
    assert reported(one_token) == ("A", 5)  # one call is one write
    assert one_token.record(make_event(message="too much"), at_ms=T0 + 1) == "s"
    assert reported(one_token) == ("A", 5)

    assert one_token.record(make_event(message="fine again"), at_ms=T0 + REFILL) == "c"

    assert reported(one_token) == ("AM", 6)
    assert one_token.record(make_event(message="fine again"), at_ms=T0 + 2 * REFILL) == "p"
    assert reported(one_token) == ("AM", 6)  # closed once


def refresh(partition: Partition, in_ms: int) -> int:
    due = partition.admin.zrange(partition.keys.index_refresh, 0, -1)
    return partition.call.refresh(partition.options, due, time.time_ns() // 1_000_000 + in_ms)


def test_without_a_later_event_refresh_closes_it_after_a_minute_and_it_goes_in_time(
    one_token: Partition,
) -> None:
    one_token.record(make_event(message="too much"), at_ms=T0)
    one_token.record(make_event(message="too much"), at_ms=T0 + 1)
    assert reported(one_token) == ("A", 1)

    assert refresh(one_token, MINUTE - 10_000) == 1  # shown, and not written
    assert reported(one_token) == ("AR", 1)
    assert refresh(one_token, MINUTE - 9_000) == 0
    assert refresh(one_token, MINUTE + 1_000) == 1
    assert reported(one_token) == ("ARM", 2)
    event = report(one_token)
    assert event is not None
    assert event.last_timestamp == datetime.fromtimestamp((T0 + 1) / 1000, UTC)
    assert refresh(one_token, 2 * MINUTE) == 0
    assert one_token.expire(in_ms=HOUR + 1_000) == Swept(expired=2)  # the event that took the token, and the report
    assert reported(one_token) == ("ARMD", 0)


def test_a_watch_is_told_of_it_every_time_and_exports_once_a_minute(one_token: Partition) -> None:
    refresh_ms = one_token.options.refresh_s * 1000
    one_token.record(make_event(message="too much"), at_ms=T0)
    for n in range(1, 4):
        one_token.record(make_event(message="too much"), at_ms=T0 + n)
        assert refresh(one_token, 0) == 0
        assert refresh(one_token, n * (refresh_ms + 100)) == 1
        assert [event.count for event in one_token.stored() if event.reason == "EventsSuppressed"] == [n + 1]
    assert reported(one_token) == ("ARRR", 1)
    assert refresh(one_token, MINUTE + 1_000) == 1
    assert reported(one_token) == ("ARRRM", 4)
    assert refresh(one_token, 2 * MINUTE) == 0


def test_what_refresh_has_no_time_for_is_told_before_it_expires(one_token: Partition) -> None:
    one_token.record(make_event(message="too much"), at_ms=T0)
    one_token.record(make_event(message="too much"), at_ms=T0 + 1)
    assert one_token.expire(in_ms=HOUR + 1_000) == Swept(expired=1)
    assert reported(one_token) == ("AM", 2)


def test_a_report_with_something_to_tell_is_not_evicted_before_what_was_written_earlier(
    make_partition: MakePartition,
) -> None:
    partition = make_partition(burst=1, max_stored=100, max_records=1000)
    for n in range(3):
        partition.record(*(make_event(involved_object=make_reference(name=f"w{n}-{m}")) for m in range(33)))
    time.sleep(0.005)  # whoever is recorded in the same ms is evicted in the order of its key
    partition.record(make_event(message="taken"))
    partition.record(make_event(message="too much"), at_ms=T0)
    partition.record(make_event(message="too much"), at_ms=T0 + 1)
    oldest = partition.admin.zrange(partition.keys.index_expiry, 0, 0)

    assert partition.expire(keys=oldest) == Swept(evicted=1)
    assert reported(partition) == ("A", 1)
    assert len(partition.stored()) == 100
    refresh(partition, MINUTE + 1_000)
    assert reported(partition) == ("AM", 2)


def test_a_report_is_evicted_in_its_turn(make_partition: MakePartition) -> None:
    partition = make_partition(burst=1, max_stored=100, max_records=1000)
    partition.record(make_event(message="taken"))
    partition.record(make_event(message="too much"), at_ms=T0)
    partition.record(make_event(message="too much"), at_ms=T0 + 1)
    time.sleep(0.005)
    for n in range(10):
        partition.record(*(make_event(involved_object=make_reference(name=f"w{n}-{m}")) for m in range(10)))
    oldest = partition.admin.zrange(partition.keys.index_expiry, 0, 1)
    assert partition.expire(keys=oldest) == Swept(evicted=2)
    assert report(partition) is None


def test_a_report_that_is_closed_in_the_call_that_opened_it_lives_its_hour(one_token: Partition) -> None:
    """A worker that catches up has minutes of a bucket in one call."""
    held, more, accepted = one_token.deliver(
        [make_event(message="too much")], [make_event(message="too much")], [make_event(message="fine again")]
    )
    clocks = [T0, T0 + 1, T0 + REFILL]
    assert one_token.record_deliveries([held, more, accepted], at_ms=clocks) == ["s", "s", "c"]
    assert reported(one_token) == ("A", 2)

    assert one_token.expire(in_ms=HOUR - 10_000) == Swept()


def test_it_goes_on_counting_after_it_has_expired(one_token: Partition) -> None:
    one_token.record(make_event(message="too much"))
    name = (report(one_token) or make_event()).metadata.name
    one_token.expire(in_ms=HOUR + MINUTE)
    assert report(one_token) is None

    one_token.record(make_event(message="too much"), at_ms=T0 + MINUTE)

    event = report(one_token)
    assert event is not None
    assert (event.count, event.metadata.name) == (2, name)


def test_it_stops_at_the_largest_count_there_is(one_token: Partition) -> None:
    one_token.record(make_event(message="too much"))
    ((key, packed),) = [
        (key, packed)
        for key in one_token.admin.scan_iter(match=one_token.keys.object + b"*", count=10_000)
        if (event := decode_stored(packed := one_token.admin.get(key))) and event.reason == "EventsSuppressed"
    ]
    one_token.admin.set(key, msgpack.packb([2**31 - 2, *msgpack.unpackb(packed, raw=True)[1:]], use_bin_type=False))

    for minute in (1, 2, 3):
        assert one_token.record(make_event(message="too much"), at_ms=T0 + minute * MINUTE) == "s"

    assert reported(one_token) == ("AMMM", 2**31 - 1)


def test_each_bucket_has_its_own(one_token: Partition) -> None:
    other = make_reference(name="web-1")
    one_token.record(make_event(message="too much"), make_event(message="x", involved_object=other))
    one_token.record(make_event(message="too much", involved_object=other), at_ms=T0)

    names = [e.involved_object.name for e in one_token.stored() if e.reason == "EventsSuppressed"]
    assert names == ["web-0", "web-1"]


def test_events_of_all_reasons_share_their_buckets_report(one_token: Partition) -> None:
    one_token.record(*(make_event(message="too much", reason=reason) for reason in ("One", "Two", "Three")))
    assert reported(one_token) == ("A", 3)
    counted, _ = one_token.state()["suppressed"]
    names = {f"S\0kubelet\0Pod\0Normal\0{reason}": "1" for reason in ("One", "Two", "Three")}
    assert counted == names | {"names\0S": "3"}


def test_it_neither_takes_a_token_nor_joins_an_aggregate(one_token: Partition) -> None:
    before = state_of_source(one_token)
    one_token.record(make_event(message="too much", reason="Other"))
    after = state_of_source(one_token)
    assert after[:2] == before[:2]  # tokens, time of the last accepted event
    assert len(after) == len(before) + 2  # the set of similar ones of the event that was held back


def test_it_can_be_switched_off(make_partition: MakePartition) -> None:
    partition = make_partition(burst=1, report_suppressed=False)
    assert partition.record(make_event(), make_event(), make_event()) == "css"
    assert report(partition) is None
    assert partition.letters() == "A"
    assert partition.meta("suppressed") == 2  # counted all the same
