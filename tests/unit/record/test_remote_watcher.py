"""RemoteWatcher: how it comes back when its stream ends, in good order and otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from eventbus.errors import BusUnavailable
from eventbus.model.event import Event
from eventbus.record import bus_watchers
from eventbus.record.bus_watchers import RemoteWatcher
from eventbus.util.backoff import Backoff
from tests.waiting import eventually


class Stream:
    """Ends as it is told, once a reading, and then in good order."""

    def __init__(self, *ends: Exception | None) -> None:
        self.missed = 0
        self.readings = 0
        self._ends = iter(ends)

    def read(self) -> Iterator[Event]:
        self.readings += 1
        yield from ()
        if (error := next(self._ends, None)) is not None:
            raise error

    def close(self) -> None: ...


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For which end in a row each pause was reckoned; no pause is longer than a millisecond."""
    ends: list[int] = []

    class Told(Backoff, frozen=True):
        def pause_s(self, failures: int, uniform: object = None) -> float:
            ends.append(failures)
            return 0.001

    monkeypatch.setattr(bus_watchers, "RECONNECT", Told(first_s=0.1, last_s=10.0))
    return ends


def run_until(stream: Stream, readings: int) -> None:
    remote: Any = stream
    watcher = RemoteWatcher(stream=remote, handler=lambda event: None)
    watcher.start()
    eventually(lambda: stream.readings >= readings)
    watcher.stop()


def test_streams_that_end_in_good_order_at_once_are_asked_for_less_and_less_often(asked: list[int]) -> None:
    stream = Stream()
    run_until(stream, 5)
    assert asked[:4] == [1, 2, 3, 4]


def test_the_first_failure_is_told_also_behind_an_end_in_good_order(
    asked: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(None, BusUnavailable("away"), BusUnavailable("still away"))
    with caplog.at_level(logging.WARNING, "eventbus"):
        run_until(stream, 5)
    assert [record.getMessage() for record in caplog.records] == ["watcher waits: away"]


def test_no_pause_is_shorter_than_the_api_asks_for(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        drawn.append((low, high))
        return 0.001

    monkeypatch.setattr("eventbus.record.bus_watchers.random.uniform", draw)
    stream = Stream(BusUnavailable("too much", retry_after_s=8.0))
    run_until(stream, 2)
    assert drawn[0] == (8.0, 10.0)
