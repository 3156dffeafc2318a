"""Nothing disappears silently: every event sent is written or counted, by source; and the bounds hold."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from eventbus.consume.housekeeper import Housekeeper
from eventbus.model.event import Event, EventSource
from eventbus.settings import MIB, Options
from eventbus.util.clock import SystemClock
from tests.builders import make_event, make_reference
from tests.conformance.model import time_of
from tests.conformance.recording import Entry, Recording
from tests.conformance.scenario import START_MS
from tests.support.harness import own_server

Source = tuple[str, ...]

events = st.builds(
    lambda name, message, reason, kind, component: make_event(
        involved_object=make_reference(name=name),
        message=message,
        reason=reason,
        type=kind,
        source=EventSource(component=component),
    ),
    name=st.sampled_from("ab"),
    message=st.sampled_from("stuvwxyz"),
    reason=st.sampled_from(["Pulled", "Failed"]),
    kind=st.sampled_from(["Normal", "Warning"]),
    component=st.sampled_from(["kubelet", "scheduler"]),
)
batches = st.lists(st.tuples(st.integers(0, 120_000), st.lists(events, min_size=1, max_size=30)), max_size=6)


@given(batches=batches, burst=st.integers(1, 4), max_events=st.integers(1, 4))
def test_written_and_suppressed_add_up_to_sent_in_total_and_by_source(
    embedded_url: str, batches: list[tuple[int, list[Event]]], burst: int, max_events: int
) -> None:
    with a_recording(embedded_url, Options(burst=burst, max_events=max_events)) as recording:
        now_ms, letters = START_MS, Counter[str]()
        by_source = Counter[Source]()
        for pause_ms, sent in batches:
            now_ms += pause_ms
            for letter, event in zip(recording.send(now_ms, sent), sent, strict=True):
                letters[letter] += 1
                if letter in "sS":
                    by_source["S", *source_of(event)] += 1
                elif letter.isupper():
                    by_source["A", *source_of(event)] += 1
        counters = Counter(recording.counters())
        assert counters["events"] == sum(len(sent) for _, sent in batches)
        assert counters["suppressed"] == letters["s"] + letters["S"]
        assert counters["created"] + counters["patched"] + counters["suppressed"] == counters["events"]
        assert counters["aggregated"] == sum(n for letter, n in letters.items() if letter.isupper() and letter != "S")
        assert recording.by_source() == by_source

        # A minute later, without another event, every bucket has told the last that it held back.
        expire(recording, in_ms=61_000)
        told = [event for event in recording.store.list().items if event.reason == "EventsSuppressed"]
        assert sum(event.count for event in told) == counters["suppressed"]


def test_beyond_the_bounds_the_least_recently_written_go_and_hot_objects_keep_exact_counts(embedded_url: str) -> None:
    """A mole digs 250 holes, each said once, while one pod says the same again and again."""
    options = Options(burst=10_000, max_stored=100, max_records=150)
    with a_recording(embedded_url, options) as recording:
        housekeeper = Housekeeper(bus=recording.bus, clock=SystemClock())
        for round in range(25):
            holes = [an_event("mole", f"hole-{round * 10 + n}") for n in range(10)]
            recording.send(START_MS + round, [*holes, an_event("kubelet", "hot")])
            housekeeper.sweep(recording.client, 0)

        stored = recording.store.list().items
        counters = recording.counters()
        assert len(stored) == options.max_stored
        assert recording.client.zcard(recording.keys.index_forget) == options.max_records - options.max_stored
        assert [event.count for event in stored if event.involved_object.name == "hot"] == [25]
        assert counters["evicted"] == counters["created"] - options.max_stored == 251 - 100
        assert counters["forgotten_early"] == 251 - options.max_records
        assert recording.by_source() == {("E", "mole", "Pod", "Normal", "Dug"): 151}, "who creates most is named"
        assert Counter(change.kind for change in recording.changes())["D"] == counters["evicted"]


def test_states_of_sources_beyond_the_bound_go_and_those_in_use_stay(embedded_url: str) -> None:
    with a_recording(embedded_url, Options(burst=2, max_records=200, max_stored=100)) as recording:
        housekeeper = Housekeeper(bus=recording.bus, clock=SystemClock())
        first = msgspec.structs.replace(an_event("kubelet", "hot"), reason="Once")
        assert recording.send(START_MS, [first, an_event("kubelet", "hot")]) == "cc"
        for number in range(300):
            recording.send(START_MS, [an_event("mole", f"hole-{number}"), an_event("kubelet", "hot")])
            if number % 50 == 49:
                housekeeper.sweep(recording.client, 0)

        states = list(recording.client.scan_iter(match=recording.keys.correlation + b"*", count=1000))
        assert len(states) <= 200
        assert recording.counters()["subjects_evicted"] == 301 - len(states)
        assert recording.send(START_MS, [first]) == "s", "the bucket is still empty"


def test_memory_stays_below_the_bound_of_the_docs(short_path: Path) -> None:
    """Objects that are heard of once: without bounds they would leave twice as much."""
    options = Options(max_stored=500, max_records=1_000, changes_bytes=MIB, report_suppressed=False)
    with own_server(short_path, appendonly="no") as server, a_recording(server.start(), options) as recording:
        housekeeper = Housekeeper(bus=recording.bus, clock=SystemClock())
        recording.send(START_MS, [an_event("mole", "first")])
        before = recording.client.info("memory")["used_memory"]
        for part in range(50):
            recording.send(START_MS, [an_event("mole", f"hole-{part}-{n}") for n in range(100)])
            if part % 10 == 9:
                housekeeper.sweep(recording.client, 0)
                recording.functions.trim(options)
        grown = recording.client.info("memory")["used_memory"] - before

    # docs/correlation.md, "Bounds"; buffers, fragments of tables and the stream of entries on top
    bound = 900 * options.max_stored + 350 * (options.max_records - options.max_stored) + 550 * options.max_records
    assert 1.5 * MIB < grown < bound + 1.5 * options.changes_bytes + 2 * MIB


@contextmanager
def a_recording(url: str, options: Options) -> Iterator[Recording]:
    recording = Recording(url, f"count-{secrets.token_hex(6)}", options)
    try:
        yield recording
    finally:
        recording.close()


def an_event(component: str, name: str) -> Event:
    return make_event(
        involved_object=make_reference(name=name, uid=name),
        source=EventSource(component=component),
        reason="Dug",
        message="digging",
    )


def source_of(event: Event) -> Source:
    return (event.source.component, event.involved_object.kind, event.type, event.reason)


def expire(recording: Recording, *, in_ms: int) -> None:
    due = recording.client.zrange(recording.keys.index_expiry, 0, 99)
    recording.functions.expire(recording.bus.options, due, time.time_ns() // 1_000_000 + in_ms)


# -- batches out of order ---------------------------------------------------------------------------------------------


PREFIX = "(combined from similar events): "


#: (object, message) of each event of a batch; few, so that batches meet.
small_batches = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=4)


#: Batches with the consumer that gets each, and the order in which they are recorded.
deliveries = st.lists(st.tuples(small_batches, st.sampled_from(["one", "two"])), min_size=2, max_size=8).flatmap(
    lambda given: st.tuples(st.just(given), st.permutations(range(len(given))))
)


Deliveries = tuple[list[tuple[list[tuple[str, str]], str]], list[int]]


@given(deliveries=deliveries, max_events=st.integers(1, 3))
def test_late_batches_add_up_and_never_move_the_last_timestamp_back(
    embedded_url: str, deliveries: Deliveries, max_events: int
) -> None:
    with a_recording(embedded_url, Options(burst=1_000, max_events=max_events)) as recording:
        entries = list(record_in_order(recording, deliveries))
        shown: dict[bytes, Event] = {}
        for change in recording.changes():
            assert change.key not in shown or last(shown[change.key]) <= last(change.event)
            shown[change.key] = change.event
        counted, sent, newest = Counter[str](), Counter[str](), dict[str, datetime]()
        for event in shown.values():
            counted[event.involved_object.name] += event.count
        for event in sorted((event for entry in entries for event in entry.events), key=last):
            sent[event.involved_object.name] += 1
            newest[event.involved_object.name] = last(event)
        assert counted == sent
        for name, moment in newest.items():
            assert max(last(event) for event in shown.values() if event.involved_object.name == name) == moment


@given(deliveries=deliveries)
def test_an_aggregate_shows_its_newest_batch_whenever_the_others_come(
    embedded_url: str, deliveries: Deliveries
) -> None:
    with a_recording(embedded_url, Options(burst=1_000, max_events=1)) as recording:
        counts, newest, late = Counter[str](), dict[str, tuple[datetime, str]](), 0
        for entry in record_in_order(recording, deliveries):
            for event in entry.events:
                name, seen = event.involved_object.name, (last(event), PREFIX + event.message)
                counts[name] += 1
                is_late = name in newest and newest[name][0] > seen[0]
                late += is_late
                newest[name] = newest[name] if is_late else seen
            stored = {event.involved_object.name: event for event in recording.store.list().items}
            assert {name: event.count for name, event in stored.items()} == counts
            assert {name: (last(event), event.message) for name, event in stored.items()} == newest
            assert recording.counters().get("late", 0) == late


def record_in_order(recording: Recording, deliveries: Deliveries) -> Iterator[Entry]:
    """Hand every entry out first, as to two workers that both are slow; then record them in the order given."""
    given, order = deliveries
    entries = [recording.append(at_ms(n), stamped(n, batch)) for n, (batch, _) in enumerate(given)]
    for _, consumer in given:
        recording.take(consumer)
    for n in order:
        (letters,) = recording.record(given[n][1], [entries[n]])
        assert len(letters) == len(entries[n].events)
        yield entries[n]


def stamped(number: int, batch: Sequence[tuple[str, str]]) -> list[Event]:
    """Events whose time tells their batch."""
    moment = time_of(at_ms(number))
    return [
        make_event(involved_object=make_reference(name=name), message=text, first_timestamp=moment)
        for name, text in batch
    ]


def at_ms(number: int) -> int:
    return START_MS + number * 1_000


def last(event: Event) -> datetime:
    assert event.last_timestamp is not None
    return event.last_timestamp
