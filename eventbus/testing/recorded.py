"""The events of a test, as they were recorded: no bus, no correlation, no waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

from eventbus.model.event import Event
from eventbus.model.reference import reference_to
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.testing.recorder import FakeRecorder

if TYPE_CHECKING:
    import pytest

#: Far more than a test records; a recorder that is full would make its caller wait.
_LINES = 1_000_000


class RecordedEvents(Sequence[Event]):
    """All events of the recorders that `recorder` made, in the order of the calls."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def recorder(self, component: str = "test", host: str = "") -> FakeRecorder:
        """Return a recorder that adds its events to this list."""
        return _Recorder(self._events, component, host)

    @property
    def lines(self) -> list[str]:
        """Return each as `Warning BackOff Pod/web-0: restarting`."""
        return [_line(event) for event in self._events]

    @property
    def reasons(self) -> list[str]:
        """Return the reason of each."""
        return [event.reason for event in self._events]

    def about(self, text: str) -> list[Event]:
        """Return those about KIND/NAME or NAMESPACE/KIND/NAME. Raises: InvalidEvent: it is neither."""
        wanted = reference_to(text)
        namespace = wanted.namespace if text.count("/") == 2 else ""  # without one, of any
        return [
            event
            for event in self._events
            if (event.involved_object.kind.lower(), event.involved_object.name) == (wanted.kind.lower(), wanted.name)
            and namespace in ("", event.involved_object.namespace)
        ]

    def clear(self) -> None:
        """Remove all events recorded so far."""
        self._events.clear()

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> list[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | list[Event]:
        return self._events[place]

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __repr__(self) -> str:
        return f"<RecordedEvents {self.lines}>"


class _Recorder(FakeRecorder):
    def __init__(self, events: list[Event], component: str, host: str) -> None:
        super().__init__(_LINES, component=component, host=host)
        self.recorded = events


def record_here(events: RecordedEvents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every recorder that is made from now on record into *events*, until *monkeypatch* is undone."""
    from eventbus.record import default

    def new_recorder(_broadcaster: EventBroadcaster, component: str, host: str | None = None) -> FakeRecorder:
        return events.recorder(component, host or "")

    monkeypatch.setattr(EventBroadcaster, "new_recorder", new_recorder)
    # Those of make_event_recorder are kept for the process: for the test there are others.
    monkeypatch.setattr(default, "_recorders", {})


def _line(event: Event) -> str:
    about = event.involved_object
    return f"{event.type} {event.reason} {about.kind}/{about.name}: {event.message}"


__all__ = ["RecordedEvents", "record_here"]
