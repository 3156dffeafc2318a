"""Watchers of this process's own recorders: a bounded queue and a thread each, without Redis.

A recorder puts each event into the queue of every watcher. The first watcher that handles it builds the `Event`, so the
caller does not wait for that. Logging this process's own events is such a watcher: `log_line`, `log_structured`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from eventbus.consume.handler import Handler, call_handler
from eventbus.errors import ConfigError, InvalidEvent
from eventbus.model.event import Event, ObjectReference
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending, build
from eventbus.util.text import printable

#: events that wait in one watcher's queue: client-go's number
QUEUE_LENGTH = 1_000


class LocalWatchers:
    """The watchers of one broadcaster, which all get the same events in the same order.

    A watcher gets every event that is put after it was started and before it is stopped. If its queue is full it misses
    the event, which is counted; the others get it, and no call of a recorder waits. Its thread starts with it, so a
    broadcaster without local watchers has none.

    Args:   counts_refused: count events that cannot be built; False: the outbox does.
    Source: apimachinery `pkg/watch/mux.go`. Departures: docs/decisions/0015-mux-departures.md.
    """

    def __init__(self, *, losses: Losses, counts_refused: bool) -> None:
        self._losses = losses
        self._counts_refused = counts_refused
        self._closed = False
        #: those that get the next event
        self.running: tuple[LocalWatcher, ...] = ()
        self._renew_locks()

    def start(self, handler: Handler, queue_length: int) -> LocalWatcher:
        """Start a watcher. After `close` it gets nothing.

        Raises: ConfigError: *queue_length* is less than 1.
        """
        if queue_length < 1:
            raise ConfigError(f"queue_length must be 1 or more, not {queue_length}")
        watcher = LocalWatcher(self, handler, queue_length)
        watcher.start()
        with self._lock:
            if not self._closed:
                self.running = (*self.running, watcher)
                return watcher
        self.remove(watcher)
        return watcher

    def put(self, pending: Pending) -> bool:
        """Give *pending* to all watchers. Never blocks; safe in a signal handler. False: they are closed."""
        item = _Item(pending)
        missed = 0
        with self._lock:
            if self._closed:
                return False
            for watcher in self.running:
                missed += not watcher.offer(item)
        if missed:
            self._losses.count("missed", missed, "too many queued events for the local watchers")
        return True

    def remove(self, watcher: LocalWatcher) -> None:
        """Give *watcher* nothing more."""
        with self._lock:
            self.running = tuple(each for each in self.running if each is not watcher)
            watcher.stopped = True
        watcher.wake()

    def close(self) -> None:
        """Take no more events; the watchers handle the queued ones, and end."""
        with self._lock:
            self._closed = True
        for watcher in self.running:
            self.remove(watcher)

    def reset_after_fork(self) -> None:
        """In a child, forget the parent's watchers, before anything else uses them."""
        self._renew_locks()
        for watcher in self.running:
            watcher.forget()
        self.running = ()

    def build(self, item: _Item) -> Event | None:
        """Build the event of *item* once, for the first watcher that asks. None: it cannot be built, and is counted."""
        with self._build_lock:
            if item.event is None and not item.refused:
                try:
                    item.event = build(item.pending)
                except Exception as error:  # a field of an unexpected type must not stop a watcher
                    item.refused = True
                    if self._counts_refused:
                        detail = str(error) if isinstance(error, InvalidEvent) else f"{type(error).__name__}: {error}"
                        self._losses.count("refused", 1, detail)
            return item.event

    def _renew_locks(self) -> None:
        # Reentrant: a signal handler or a finalizer may record an event while its own thread holds the lock.
        self._lock = threading.RLock()
        self._build_lock = threading.RLock()


class LocalWatcher:
    """Calls *handler* with each event, one at a time, in a thread of its own. Made by `LocalWatchers.start`."""

    def __init__(self, watchers: LocalWatchers, handler: Handler, queue_length: int) -> None:
        self.handler = handler
        self.stopped = False
        self.missed = 0  #: events that its queue had no room for
        self._watchers = watchers
        self._queue: deque[_Item] = deque()
        self._queue_length = queue_length
        self._waiting = False
        self._wake = threading.Lock()
        self._wake.acquire()
        self._thread = threading.Thread(target=self._run, name="eventbus-local-watcher", daemon=True)

    def __repr__(self) -> str:
        return f"<LocalWatcher: {'stopped' if self.stopped else 'running'}, {self.missed} missed>"

    @property
    def ended(self) -> bool:
        """Return True if it was stopped and its last handler has returned."""
        return self.stopped and not self._thread.is_alive()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the events that are queued; waits at most *timeout_s*, in the handler not at all."""
        self._watchers.remove(self)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, item: _Item) -> bool:
        """Queue *item*. False: there is no room, and it is counted. The caller holds the lock of `LocalWatchers`."""
        if len(self._queue) >= self._queue_length:
            self.missed += 1
            return False
        self._queue.append(item)
        if self._waiting:
            self.wake()
        return True

    def wake(self) -> None:
        """Wake the thread. Takes no lock."""
        try:  # noqa: SIM105  # `suppress` is Python code, which a signal may interrupt half-way
            self._wake.release()
        except RuntimeError:
            pass  # it is awake

    def forget(self) -> None:
        """In a child after fork, which has no thread of its parent's, empty the queue."""
        self.stopped = True
        self._queue.clear()

    def _run(self) -> None:
        try:
            while (item := self._next()) is not None:
                event = item.event or self._watchers.build(item)
                if event is not None:
                    call_handler(self.handler, event)
        except SystemExit:  # of the handler
            self.stop()

    def _next(self) -> _Item | None:
        """Take the next event of the queue; wait for one. None: the watcher is stopped, and its queue is empty."""
        while True:
            stopped = self.stopped  # before the queue: nothing is queued after it
            if self._queue:
                return self._queue.popleft()
            if stopped:
                return None
            self._waiting = True
            if not self._queue and not self.stopped:
                self._wake.acquire()
            self._waiting = False


class _Item:
    """A recorded event in the queues of all watchers, and the `Event` when it is built."""

    __slots__ = ("event", "pending", "refused")

    def __init__(self, pending: Pending) -> None:
        self.pending = pending
        self.event: Event | None = None
        self.refused = False


_GO_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_GO_ESCAPES |= {'"': '\\"', "\\": "\\\\"}
_GO_FIELDS = {
    "uid": "UID",
    "api_version": "APIVersion",
    "resource_version": "ResourceVersion",
    "field_path": "FieldPath",
}


def log_line(logf: Callable[..., object], event: Event) -> None:
    """Call *logf* with client-go's `Event(%#v): type: '%v' reason: '%v' %v`; always one line."""
    about, words = _go_syntax(event.involved_object), (event.type, event.reason, event.message)
    logf("Event(%s): type: '%s' reason: '%s' %s", about, *map(printable, words))


def log_structured(logger: Any, event: Event) -> None:
    """Log `Event occurred` with client-go's keys in its order. Values are printable: a console renderer shows them."""
    ref = event.involved_object
    values = {
        "object": f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name,
        "fieldPath": ref.field_path,
        "kind": ref.kind,
        "apiVersion": ref.api_version,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
    }
    logger.info("Event occurred", **{key: printable(value) for key, value in values.items()})


def _go_syntax(reference: ObjectReference) -> str:
    values = msgspec.structs.asdict(reference).items()
    fields = ", ".join(f"{_GO_FIELDS.get(name, name.capitalize())}:{_go_quoted(value)}" for name, value in values)
    return f"v1.ObjectReference{{{fields}}}"


def _go_quoted(text: str) -> str:
    """Quote *text* as Go's strconv.Quote does: names come from outside, and must not begin a line of their own."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_go_character, text))}"'


def _go_character(character: str) -> str:
    if character in _GO_ESCAPES:
        return _GO_ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
