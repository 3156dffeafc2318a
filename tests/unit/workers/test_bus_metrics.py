"""The metrics of the whole bus: bounded series, counters that only grow, no old numbers while Redis is away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.core import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from eventbus.broker.health.status import BusStatus, Group, Level, Partition, Worker
from eventbus.errors import BusRefused, BusUnavailable
from eventbus.store.occurrences import Occurrences
from eventbus.workers import bus_metrics
from eventbus.workers.bus_metrics import (
    COUNTERS,
    MOST_MINUTES,
    MOST_REASONS,
    READ_EVERY_S,
    BusCollector,
    BusReader,
    OccurrenceCounts,
    Reading,
)

NOW = datetime(2026, 1, 1, 12, 30, 30, tzinfo=UTC)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def row(reason: str, count: int, *, minute: int = 30, event_type: str = "Normal", namespace: str = "a") -> Occurrences:
    return Occurrences(NOW.replace(minute=minute, second=0), namespace, "Pod", event_type, reason, "test", count)


def status(**changed: Any) -> BusStatus:
    half = Level(50, 100)
    partition = Partition(0, 7, 1, half, half, half, half, half, 3, "", ())
    fuller = Partition(1, 7, 1, half, half, Level(90, 100), half, half, 3, "", ())
    workers = (Worker("w1", "sink", 0.1, 0, alive=True), Worker("w2", "sink", 99.0, 0, alive=False))
    sink = Group("sink", "wait", 5, True, 61.5, 1, workers, 0, 0, ())
    given: dict[str, Any] = {
        "url": "redis://host",
        "prefix": "eb",
        "server": "Redis 7.0",
        "memory": Level(1000, None),
        "options_version": 1,
        "partitions": (partition, fuller),
        "groups": (sink, Group("log", "wait", None, False, 0.0, 0, (), 4, 0, ())),
        "counters": dict.fromkeys(COUNTERS, 1) | {"recorded": 5},
        "losses": {"dropped": 2},
        "buried": {"too-long": 1},
    }
    return BusStatus(**given | changed)


class Fixed:
    """A reader of one reading."""

    def __init__(self, reading: Reading) -> None:
        self.read = lambda: reading


def served(reading: Reading) -> dict[str, Any]:
    """Return the samples of a scrape by name and labels."""
    registry = CollectorRegistry()
    registry.register(BusCollector(Fixed(reading)))  # type: ignore[arg-type]  # it has all that is called
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert all(family.documentation for family in families)
    return {
        sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_scrape_has_the_lag_and_workers_of_each_group_and_the_fullest_partition() -> None:
    found = served(Reading(at=0.0, took_s=0.25, status=status(), occurrences={("Warning", "Failed"): 3}))
    expected = {
        "eventbus_bus_up": 1,
        "eventbus_bus_read_seconds": 0.25,
        "eventbus_group_lag_events sink": 5,
        "eventbus_group_lag_seconds sink": 61.5,
        "eventbus_group_workers sink": 1,
        "eventbus_group_lost_events_total log": 4,
        "eventbus_fill_ratio dead": 0.9,
        "eventbus_fill_ratio incoming": 0.5,
        "eventbus_incoming_bytes": 100,
        "eventbus_dead_letters": 6,
        "eventbus_lost_events_total dropped": 2,
        "eventbus_dead_letter_events_total too-long": 1,
        "eventbus_redis_memory_bytes": 1000,
        "eventbus_occurrences_total Failed Warning": 3,
    }
    assert expected.items() <= found.items()
    assert "eventbus_group_lag_events log" not in found, "its lag is not known"
    assert "eventbus_redis_memory_limit_bytes" not in found, "the server has no limit"


def test_causes_begin_at_zero_so_that_the_first_loss_is_an_increase() -> None:
    found = served(Reading(at=0.0, took_s=0.0, status=status(losses={}, buried={})))
    assert found["eventbus_lost_events_total unsent"] == found["eventbus_dead_letter_events_total rejected"] == 0


def test_without_redis_a_scrape_has_no_old_numbers() -> None:
    assert set(served(Reading(at=0.0, took_s=0.0))) == {"eventbus_bus_up", "eventbus_bus_read_seconds"}


def test_the_page_lists_every_metric() -> None:
    registry = CollectorRegistry()
    everything = Reading(at=0.0, took_s=0.0, status=status(memory=Level(1, 2)))
    registry.register(BusCollector(Fixed(everything)))  # type: ignore[arg-type]  # it has all that is called
    names = set(re.findall(r"^# TYPE (\w+)", generate_latest(registry).decode(), re.MULTILINE))
    assert names == set(re.findall(r"`(eventbus_(?!build|worker)\w+)(?:\{\w+(?:, \w+)?\})?`", PAGE.read_text("utf-8")))


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A bus that counts its reads, and fails with *error*."""
    found = SimpleNamespace(reads=0, error=None, now_s=1000.0)

    @contextmanager
    def opened() -> Iterator[Any]:
        found.reads += 1
        if found.error is not None:
            raise found.error
        yield SimpleNamespace(bus=None, client=None)

    monkeypatch.setattr(bus_metrics, "open_session", opened)
    monkeypatch.setattr(bus_metrics, "read_status", lambda _bus, _client: status())
    monkeypatch.setattr(bus_metrics, "export_status", lambda _bus, _client: ())
    monkeypatch.setattr(bus_metrics, "read_occurrences", lambda *_asked: SimpleNamespace(rows=()))
    monkeypatch.setattr(bus_metrics, "time", SimpleNamespace(monotonic=lambda: found.now_s, time=lambda: 0.0))
    return found


def test_scrapes_within_five_seconds_cost_one_read(bus: SimpleNamespace) -> None:
    reader = BusReader()
    for _ in range(5):
        assert reader.read().status is not None
    assert bus.reads == 1
    bus.now_s += READ_EVERY_S
    reader.read()
    assert bus.reads == 2


def test_a_bus_that_is_away_is_not_ready_and_is_read_again(bus: SimpleNamespace) -> None:
    bus.error = BusUnavailable("connection refused")
    reader = BusReader()
    reader.check()
    assert not reader.loop_health()[0].ready
    bus.error, bus.now_s = None, bus.now_s + READ_EVERY_S
    assert reader.loop_health()[0].ready
    bus.error, bus.now_s = BusUnavailable("connection reset"), bus.now_s + READ_EVERY_S
    assert not reader.loop_health()[0].ready, "old numbers would look current"
    bus.error, bus.now_s = None, bus.now_s + READ_EVERY_S
    assert reader.loop_health()[0].ready


def test_a_user_without_the_right_is_refused_at_the_start(bus: SimpleNamespace) -> None:
    bus.error = BusRefused("role metrics")
    with pytest.raises(BusRefused):
        BusReader().check()


def test_occurrences_count_from_the_start_of_the_exporter() -> None:
    counts = OccurrenceCounts()
    counts.add((row("Pulled", 40), row("Pulled", 2, namespace="b")), NOW)
    assert counts.totals == {("Normal", "Pulled"): 0}
    counts.add((row("Pulled", 41), row("Pulled", 2, namespace="b"), row("Failed", 1, event_type="Warning")), NOW)
    assert counts.totals == {("Normal", "Pulled"): 1, ("Warning", "Failed"): 1}


def test_minutes_that_sink_workers_fill_late_are_counted_once() -> None:
    counts = OccurrenceCounts()
    counts.add((row("Pulled", 5, minute=20), row("Pulled", 1)), NOW)
    counts.add((row("Pulled", 2),), NOW)  # the sink workers are not late: only the last minutes are read
    assert counts.begins(NOW, 0.0) > NOW - timedelta(minutes=5)
    counts.add((row("Pulled", 8, minute=20), row("Pulled", 2)), NOW)
    assert counts.begins(NOW, 700.0) < NOW - timedelta(seconds=700)
    assert counts.totals == {("Normal", "Pulled"): 4}


def test_a_read_of_late_minutes_is_bounded() -> None:
    counts = OccurrenceCounts()
    assert counts.begins(NOW, 0.0) == NOW - timedelta(minutes=MOST_MINUTES), "the first read covers them all"
    counts.add((), NOW)
    assert counts.begins(NOW, 1e6) == NOW - timedelta(minutes=MOST_MINUTES)


def test_a_counter_never_goes_down_when_redis_has_lost_counts() -> None:
    counts = OccurrenceCounts()
    counts.add((), NOW)
    for n in (10, 3, 4):
        counts.add((row("Pulled", n),), NOW)
    assert counts.totals == {("Normal", "Pulled"): 11}


def test_the_number_of_reasons_is_bounded_and_types_are_only_the_known_ones() -> None:
    counts = OccurrenceCounts()
    counts.add((), NOW)
    counts.add((row("Odd", 1, event_type="Strange"), row("", 2, event_type="")), NOW)
    counts.add(tuple(row(f"Reason{number}", 1) for number in range(3 * MOST_REASONS)), NOW)
    assert counts.totals["other", "Odd"] == 1
    assert counts.totals["other", "other"] == 2
    assert len(counts.totals) <= MOST_REASONS + 3  # "other" of each type
    assert sum(counts.totals.values()) == 3 * MOST_REASONS + 3
