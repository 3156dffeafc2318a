"""Occurrences a minute, as the sink workers count them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from eventbus.model.event import ObjectReference
from eventbus.model.kinds import EVENT
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.store.object_store import ObjectStore
from eventbus.store.occurrences import Occurrences, OccurrencesRead, read_occurrences
from tests.builders import make_reference
from tests.support.fleet import make_one
from tests.support.harness import bus_with, settings_of
from tests.thin import one
from tests.waiting import eventually


def total(found: OccurrencesRead) -> int:
    return sum(row.count for row in found.rows)


@pytest.mark.parametrize("partitions", one([4, 1]))
def test_every_occurrence_is_counted_in_its_minute_also_what_is_held_back(
    embedded_url: str, prefix: str, partitions: int
) -> None:
    settings = settings_of(prefix, partitions=partitions)
    bus = bus_with(embedded_url, settings)
    before = datetime.now(UTC)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster, bus.client() as client:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("c")
        for number in range(60):
            recorder.event(make_reference(name=f"web-{number % 3}"), "Normal", "Said", "the same")
        recorder.event(ObjectReference("Node", "", "n1"), "Warning", "NotReady", "gone")
        assert broadcaster.flush(60)
        eventually(lambda: total(read_occurrences(bus, client, before, datetime.now(UTC))) == 61)
        found = read_occurrences(bus, client, before - timedelta(days=1), datetime.now(UTC) + timedelta(days=1))
        earlier = read_occurrences(bus, client, before - timedelta(hours=2), before - timedelta(hours=1))
    sums: dict[tuple[str, ...], int] = {}
    for row in found.rows:
        assert before.replace(second=0, microsecond=0) <= row.minute <= datetime.now(UTC)
        words = (row.namespace, row.kind, row.type, row.reason, row.source)
        sums[words] = sums.get(words, 0) + row.count
    assert sums == {("default", "Pod", "Normal", "Said", "c"): 60, ("default", "Node", "Warning", "NotReady", "c"): 1}
    assert earlier.rows == ()
    assert timedelta(hours=5, minutes=58) < before - found.begins <= timedelta(hours=6)


@pytest.mark.parametrize("partitions", one([4, 1]))
def test_what_others_write_is_counted_and_so_are_its_repeats_but_no_other_change(
    embedded_url: str, prefix: str, partitions: int
) -> None:
    bus = bus_with(embedded_url, settings_of(prefix, partitions=partitions))
    before = datetime.now(UTC)
    with bus.client() as client, ObjectStore(bus, client) as store:
        events = store.objects(EVENT)

        def counts() -> dict[tuple[str, ...], int]:
            """Over all minutes: one may end meanwhile."""
            found: Counter[tuple[str, ...]] = Counter()
            for row in read_occurrences(bus, client, before, datetime.now(UTC)).rows:
                found[row.namespace, row.kind, row.type, row.reason, row.source] += row.count
            return found

        written = events.create(make_one("Pod/shop/web-0", "Failed", "exit code 1", before, count=3))
        events.create(make_one("Pod/shop/web-1", "Started", "Started web", before))
        failed, started = (("shop", "Pod", "Normal", reason, "kubelet") for reason in ("Failed", "Started"))
        assert counts() == {failed: 3, started: 1}
        written = events.update(msgspec.structs.replace(written, count=5))
        assert counts() == {failed: 5, started: 1}
        labelled = msgspec.structs.replace(written.metadata, labels={"seen": "yes"})
        written = events.update(msgspec.structs.replace(written, metadata=labelled))
        events.update(msgspec.structs.replace(written, count=1))
        assert counts() == {failed: 5, started: 1}
        life_ms = [client.pttl(key) for keys in bus.keys for key in client.keys(keys.occurrences + b"*")]
        assert all(0 < life <= bus.options.occurrences_s * 1000 for life in life_ms)


def test_rows_are_summed_over_partitions_and_what_has_no_name_is_one_row(embedded_url: str, prefix: str) -> None:
    bus = bus_with(embedded_url, settings_of(prefix, partitions=2), occurrences_s=600)
    now = datetime.now(UTC)
    minute = int(now.timestamp()) // 60
    with bus.client() as client:
        for keys in bus.keys:
            client.hset(
                keys.occurrences + b"%d" % minute, mapping={"a\0Pod\0Normal\0R\0c": "2", "other": "5", "x\0y": "1"}
            )
            earlier = {"b\0P\0N\0R\0c": "?"}
            client.hset(keys.occurrences + b"%d" % (minute - 1), mapping=earlier)
            client.hset(keys.occurrences + b"%d" % (minute - 30), mapping={"too\0old\0to\0tell": "1"})
        found = read_occurrences(bus, client, now - timedelta(hours=1), now)
    this = datetime.fromtimestamp(minute * 60, UTC)
    assert found.rows == (
        Occurrences(this - timedelta(minutes=1), "b", "P", "N", "R", "c", 0),
        Occurrences(this, "", "", "", "", "", 12),
        Occurrences(this, "a", "Pod", "Normal", "R", "c", 4),
    )


def test_a_bus_that_counts_none_has_none(embedded_url: str, prefix: str) -> None:
    bus = bus_with(embedded_url, settings_of(prefix), occurrences_s=0)
    now = datetime.now(UTC)
    with bus.client() as client:
        found = read_occurrences(bus, client, now - timedelta(hours=1), now)
    assert found.rows == ()
    assert now - found.begins < timedelta(minutes=1, seconds=1)
