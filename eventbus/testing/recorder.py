"""Recorders for the tests of programs that record events: lines or events to compare, without a bus."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, overload

from eventbus.model.event import Event
from eventbus.model.reference import reference_to
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending, build
from eventbus.record.recorder import EventRecorder, EventsRecorder
from eventbus.util.clock import Clock, SystemClock

#: Real seconds that a full recorder waits for a reader before it raises. client-go's waits without a limit.
PATIENCE_S = 5.0

R = TypeVar("R", EventRecorder, EventsRecorder)


class FakeRecorder(EventRecorder):
    """An `EventRecorder` that puts lines `<type> <reason> <message>` into the queue `events`. Thread-safe.

        recorder = FakeRecorder(10)
        reconcile(pod, recorder)
        assert recorder.lines() == ["Warning BackOff restarting failed container"]

    Invalid calls are refused by the real recorder's rules: no line, a log message, and one more in `refused`. A message
    with line breaks makes a line with line breaks.

    Args:   buffer_size: the queue's maximum number of lines. If it is full, the caller waits 5 s for a reader, then
            gets an AssertionError, because a test must not lose events silently. 0 discards everything.
            include_object: add ` involvedObject{kind=…,apiVersion=…}` to every line.
            component, host: the source of the events in `recorded`.  clock: for their times and names.
    Source: client-go tools/record/fake.go. Departures: that deadline; a `%` in type or reason is never interpreted.
    """

    def __init__(
        self,
        buffer_size: int = 100,
        *,
        include_object: bool = False,
        component: str = "fake",
        host: str = "",
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        super().__init__(component, host, put=self._write, losses=Losses(clock), clock=clock)
        self._include_object = include_object
        self._discard = buffer_size == 0
        #: The unread lines, oldest first; `get` waits for the next one.
        self.events: queue.Queue[str] = queue.Queue(max(0, buffer_size))
        #: The complete events, in the order of `events`; reading lines does not remove them.
        self.recorded: list[Event] = []

    def lines(self) -> list[str]:
        """Take all lines there are, oldest first, without waiting."""
        found: list[str] = []
        while True:
            try:
                found.append(self.events.get_nowait())
            except queue.Empty:
                return found

    @property
    def refused(self) -> int:
        """Return how many calls the real recorder would have refused."""
        return self._losses.counts.get("refused", 0)

    def _write(self, pending: Pending) -> None:
        if self._discard:
            return
        event = build(pending)
        try:
            self.events.put(self._line(event), timeout=PATIENCE_S)
        except queue.Full:
            size = self.events.maxsize
            raise AssertionError(f"FakeRecorder is full with {size} lines: read them, or make it larger") from None
        self.recorded.append(event)

    def _line(self, event: Event) -> str:
        about, annotations = event.involved_object, event.metadata.annotations
        line = f"{event.type} {event.reason} {event.message}"
        if self._include_object:
            line += f" involvedObject{{kind={about.kind},apiVersion={about.api_version}}}"
        if annotations:
            line += f" map[{' '.join(f'{key}:{annotations[key]}' for key in sorted(annotations))}]"
        return line


if TYPE_CHECKING:
    import pytest

#: Far more than a test records; a recorder that is full would make its caller wait.
_LINES = 1_000_000


class RecordedEvents(Sequence[Event]):
    """The events of recorders in a test, in the order of the calls."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def recorder(self, component: str = "test", host: str = "") -> FakeRecorder:
        """Return a recorder that adds its events to this list."""
        return _Recorder(self._events, component, host)

    def events_recorder(self, controller: str = "example.com/test", instance: str = "test") -> EventsRecorder:
        """Return a recorder of events.k8s.io that adds each of its events to this list; they form no series."""
        clock = SystemClock()
        return EventsRecorder(controller, instance, put=self.put, losses=Losses(clock), clock=clock)

    def put(self, pending: Pending) -> None:
        """Add the event that a recorder has made."""
        self._events.append(build(pending))

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


def redirect(
    monkeypatch: pytest.MonkeyPatch, put: Callable[[Pending], None], losses: Losses, *, every: bool = True
) -> None:
    """Have recorders pass their events to *put* until *monkeypatch* is undone; afterwards they record as before.

    Also those that exist, such as a global variable of the tested program, if `make_event_recorder` or
    `make_events_recorder` has made them.  *every*: also those that other broadcasters make from now on.
    """
    from eventbus.record import default

    new_recorder, new_events_recorder = EventBroadcaster.new_recorder, EventBroadcaster.new_events_recorder

    def redirected(recorder: R, broadcaster: EventBroadcaster | None) -> R:
        if every or broadcaster is default._broadcaster:
            monkeypatch.setattr(recorder, "_put", put)
            monkeypatch.setattr(recorder, "_losses", losses)
        return recorder

    def make_recorder(broadcaster: EventBroadcaster, component: str, host: str | None = None) -> EventRecorder:
        return redirected(new_recorder(broadcaster, component, host), broadcaster)

    def make_events_recorder(
        broadcaster: EventBroadcaster, controller: str, *, instance: str | None = None
    ) -> EventsRecorder:
        return redirected(new_events_recorder(broadcaster, controller, instance=instance), broadcaster)

    monkeypatch.setattr(EventBroadcaster, "new_recorder", make_recorder)
    monkeypatch.setattr(EventBroadcaster, "new_events_recorder", make_events_recorder)
    for recorder in default._recorders.values():
        redirected(recorder, default._broadcaster)
    for events_recorder in default._events_recorders.values():
        redirected(events_recorder, default._broadcaster)


def _line(event: Event) -> str:
    about = event.involved_object
    return f"{event.type} {event.reason} {about.kind}/{about.name}: {event.message}"
