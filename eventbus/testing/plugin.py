"""The pytest plugin: the events of the tested program, without a bus (`recorded_events`) or with one (`bus`).

Imports only light modules, so that test suites without these fixtures start as fast as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from eventbus.testing.bus import Bus
    from eventbus.testing.recorder import RecordedEvents


@pytest.fixture
def recorded_events(monkeypatch: pytest.MonkeyPatch) -> RecordedEvents:
    """The events that recorders record during the test, in order. Nothing leaves the process.

    Not those of a recorder that an `EventBroadcaster` of the program has made before the test.
    """
    from eventbus.record.losses import Losses
    from eventbus.testing.recorder import RecordedEvents, redirect
    from eventbus.util.clock import SystemClock

    events = RecordedEvents()
    redirect(monkeypatch, events.put, Losses(SystemClock()))
    return events


@pytest.fixture(scope="session")
def _eventbus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The url of one embedded server for all tests of the session that take `bus`."""
    from eventbus.testing.bus import a_server

    folder: Path = tmp_path_factory.mktemp("eventbus")
    with a_server(folder) as url:
        yield url


@pytest.fixture
def bus(_eventbus_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    """A bus of the test's own, with a worker that stores; EVENTBUS_REDIS_URL and EVENTBUS_PREFIX name it.

    The recorders of `make_event_recorder` and `make_events_recorder` record on it during the test.
    """
    from eventbus.testing.bus import a_bus
    from eventbus.testing.recorder import redirect

    with a_bus(_eventbus_server) as made:
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        redirect(monkeypatch, made.broadcaster._accept, made.broadcaster.losses, every=False)
        yield made
