"""A recorder for the tests of programs that record events: lines to compare instead of a bus."""

from __future__ import annotations

import queue

from eventbus.model.event import Event
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending, build
from eventbus.record.recorder import EventRecorder
from eventbus.util.clock import Clock, SystemClock

#: Real seconds that a full recorder waits for a reader before it raises. client-go's waits without a limit.
PATIENCE_S = 5.0


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
            held = self.events.maxsize
            raise AssertionError(f"FakeRecorder is full with {held} lines: read them, or make it larger") from None
        self.recorded.append(event)

    def _line(self, event: Event) -> str:
        about, annotations = event.involved_object, event.metadata.annotations
        line = f"{event.type} {event.reason} {event.message}"
        if self._include_object:
            line += f" involvedObject{{kind={about.kind},apiVersion={about.api_version}}}"
        if annotations:
            line += f" map[{' '.join(f'{key}:{annotations[key]}' for key in sorted(annotations))}]"
        return line


__all__ = ["FakeRecorder"]
