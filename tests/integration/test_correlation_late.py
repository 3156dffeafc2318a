"""Batches that two workers of a group record out of order: all count, none moves anything back."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from eventbus.model.event import Event
from eventbus.settings import Options
from tests.builders import make_event, make_reference
from tests.conformance.model import time_of
from tests.conformance.recording import Entry, Recording
from tests.conformance.scenario import START_MS

PREFIX = "(combined from similar events): "
#: (object, message) of each event of a batch; few, so that batches meet.
batches = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=4)
#: Batches with the consumer that gets each, and the order in which they are recorded.
deliveries = st.lists(st.tuples(batches, st.sampled_from(["one", "two"])), min_size=2, max_size=8).flatmap(
    lambda given: st.tuples(st.just(given), st.permutations(range(len(given))))
)
Deliveries = tuple[list[tuple[list[tuple[str, str]], str]], list[int]]


@given(deliveries=deliveries, max_events=st.integers(1, 3))
def test_late_batches_add_up_and_never_move_the_last_timestamp_back(
    embedded_url: str, deliveries: Deliveries, max_events: int
) -> None:
    with a_recording(embedded_url, max_events) as recording:
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
    with a_recording(embedded_url, max_events=1) as recording:
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


@contextmanager
def a_recording(url: str, max_events: int) -> Iterator[Recording]:
    recording = Recording(url, f"late-{secrets.token_hex(6)}", Options(burst=1_000, max_events=max_events))
    try:
        yield recording
    finally:
        recording.close()


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
