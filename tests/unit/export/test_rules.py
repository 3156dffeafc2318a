"""The rules of exporting: how often an event is written, where it begins, how changes are batched, the rate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eventbus.errors import ConfigError
from eventbus.export.deliveries import make_rounds
from eventbus.export.rules import BEGINNING, NOW, RateLimit, parse_repeats, parse_start
from eventbus.model.event import Event, ObjectMeta
from eventbus.store.changes import Change
from eventbus.store.storage import ChangeType
from eventbus.testing.clock import FakeClock
from tests.builders import NOW as NOON
from tests.builders import make_event


@pytest.mark.parametrize(
    ("text", "every_ms"), [("every", 0), ("at-most-every=5m", 300_000), ("at-most-every=1d", 86_400_000)]
)
def test_a_rule_for_repeats_is_the_shortest_pause_between_two_writes(text: str, every_ms: int) -> None:
    assert parse_repeats(text) == every_ms


@pytest.mark.parametrize("text", ["", "Every", "every=1", "at-most-every=5", "at-most-every", "never", "first"])
def test_a_rule_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"give every or at-most-every=5m$"):
        parse_repeats(text)


def test_where_a_new_sink_begins() -> None:
    clock = FakeClock(int(NOON.timestamp()) * 10**9)
    old, new = make_event(last_timestamp=NOON - timedelta(minutes=11)), make_event()
    assert parse_start("now", clock) == NOW
    assert parse_start("beginning", clock) == BEGINNING
    assert BEGINNING.takes(old)
    for text in ("10m", "2024-01-01T11:50:00Z", "2024-01-01T12:50:00+01:00"):
        start = parse_start(text, clock)
        assert start.since == datetime(2024, 1, 1, 11, 50, tzinfo=UTC)
        assert (start.takes(old), start.takes(new)) == (False, True)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "10", "2024-01-01T11:50:00", "-5m", "999999d", "0001-01-01T00:00:00+14:00"]
)
def test_a_beginning_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="how long ago"):
        parse_start(text, FakeClock())


def changes(*rows: str) -> list[Change[Event]]:
    """`A x 1`: ADDED, the event's name and key, its count."""
    kinds = {"A": ChangeType.ADDED, "M": ChangeType.MODIFIED, "D": ChangeType.DELETED}
    found = []
    for version, row in enumerate(rows, 1):
        kind, name, count = row.split()
        event = make_event(metadata=ObjectMeta(name=name, resource_version=str(version)), count=int(count))
        found.append(Change(kinds[kind], event, name, 0))
    return found


def shape(rounds: list[list]) -> list[list[str]]:  # type: ignore[type-arg]
    return [
        [
            f"{d.key} {d.event.count}{' added' * d.added}{' forget' * d.forget}{' only' * d.only_forget}"
            for d in deliveries
        ]
        for deliveries in rounds
    ]


@pytest.mark.parametrize(
    ("rows", "rounds"),
    [
        ([], []),
        (["A x 1", "M x 2", "A y 1", "M x 3"], [["x 3 added", "y 1 added"]]),
        (["M x 2"], [["x 2"]]),
        (["A x 1", "M x 2", "D x 2"], [["x 2 added forget"]]),
        (["D x 2"], [["x 2 forget only"]]),
        (["M x 2", "D x 2", "A x 3", "M x 4"], [["x 2 forget"], ["x 4 added"]]),
        (["D x 2", "A x 3", "A y 1"], [["x 2 forget only", "y 1 added"], ["x 3 added"]]),
    ],
)
def test_an_event_is_written_once_a_batch_in_its_newest_state(rows: list[str], rounds: list[list[str]]) -> None:
    found = make_rounds(changes(*rows), coalesce=True)
    assert sorted(map(sorted, shape(found))) == sorted(map(sorted, rounds))
    assert [sorted(deliveries) for deliveries in shape(found)] == [sorted(deliveries) for deliveries in rounds]


def test_without_coalescing_every_change_is_a_round_of_its_own() -> None:
    found = make_rounds(changes("A x 1", "M x 2", "A y 1", "D x 2", "A x 3"), coalesce=False)
    assert shape(found) == [["x 1 added"], ["x 2 forget"], ["y 1 added"], ["x 3 added"]]


def test_a_rate_is_kept_over_time_and_a_second_of_it_goes_at_once() -> None:
    clock = FakeClock()
    limit = RateLimit(100, clock)
    assert limit.take(100) == 0
    assert limit.take(50) == pytest.approx(0.5)
    clock.advance(0.5)
    assert limit.take(10) == pytest.approx(0.1)
    clock.advance(3600)
    assert limit.take(100) == 0
    assert limit.take(1) > 0
    assert RateLimit(0, clock).take(10**9) == 0
