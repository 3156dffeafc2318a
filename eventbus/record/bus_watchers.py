"""Starts a broadcaster's threads on the bus: watchers, the sink worker, exports. Programs may start before Redis.

Everything is imported late: a program that only records loads none of it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from eventbus.broker.functions import GroupPolicy
from eventbus.consume.handler import Handler, Watcher, call_handler
from eventbus.errors import BusUnavailable, ConfigError, EventBusError, GroupMissing
from eventbus.record import process_hooks
from eventbus.record.losses import Losses
from eventbus.util.backoff import Backoff
from eventbus.util.clock import Clock
from eventbus.util.log import log

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus
    from eventbus.client.watch import RemoteStream
    from eventbus.consume.group_runner import Runner
    from eventbus.export.rules import ExportOptions
    from eventbus.export.sinks.contract import EventSink
    from eventbus.export.worker import ExportRunner

#: pauses between two attempts to open the bus
BACKOFF = Backoff(first_s=0.1, last_s=5.0, at_least=0.5)


def start_watcher(
    bus: Bus, handler: Handler, *, group: str | None, since: datetime | None, clock: Clock, block_ms: int
) -> Watcher:
    """Watch the stream: with *group* as a member of it, else without a name. *since* is aware; None: from now on.

    Raises: BusUnavailable, BusRefused.
    """
    with process_hooks.no_fork():  # these imports are not needed for recording
        from eventbus.consume.watchers import GroupWatcher, StreamWatcher

    since_ms = None if since is None else int(since.timestamp() * 1000)
    if group is None:
        stream = StreamWatcher(bus=bus, handler=handler, since_ms=since_ms, block_ms=block_ms)
        stream.start()
        return stream
    watcher = GroupWatcher(
        bus=bus,
        group=group,
        handler=handler,
        clock=clock,
        policy=GroupPolicy.WAIT,
        start="$" if since_ms is None else f"{max(0, since_ms - 1)}-18446744073709551615",
        block_ms=block_ms,
    )
    watcher.start()
    return watcher


def start_store_sink(open_bus: Callable[[], Bus], *, clock: Clock, block_ms: int, losses: Losses) -> Watcher:
    """Run the store's sink worker once the bus can be opened."""
    from eventbus.correlate.store_recorded_events import sink_worker

    runner = DeferredStart(
        "the sink worker",
        open_bus=open_bus,
        make=lambda bus: sink_worker(bus=bus, clock=clock, block_ms=block_ms),
        losses=losses,
    )
    runner.start()
    return runner


def start_export(
    sink: EventSink,
    options: ExportOptions,
    open_bus: Callable[[], Bus],
    *,
    clock: Clock,
    block_ms: int,
    losses: Losses,
) -> Watcher:
    """Run an export to *sink* once the bus can be opened. Raises: ConfigError: no sink, or an invalid name."""
    from eventbus.export.sinks.contract import EventSink
    from eventbus.export.sinks.registry import check_name
    from eventbus.export.worker import ExportRunner

    if not isinstance(sink, EventSink):
        raise ConfigError(f"{sink!r} is no sink: see eventbus.export.sinks.EventSink")
    name = check_name(sink.name)

    def make(bus: Bus) -> ExportRunner:
        return ExportRunner(
            bus=bus, make_sink=lambda: sink, shared=True, clock=clock, options=options, block_ms=block_ms
        )

    runner = DeferredStart(f"the export to {name}", open_bus=open_bus, make=make, losses=losses, give_up=sink.close)
    runner.start()
    return runner


class DeferredStart:
    """Runs the result of *make*, called with the bus: at once, or from a thread that waits while Redis is away.

    Args: give_up: called by the waiting thread if it is stopped before the bus is open.
    """

    def __init__(
        self,
        title: str,
        *,
        open_bus: Callable[[], Bus],
        make: Callable[[Bus], Runner],
        losses: Losses,
        give_up: Callable[[], None] | None = None,
    ) -> None:
        self._title = title
        self._open_bus = open_bus
        self._make = make
        self._losses = losses
        self._give_up = give_up
        self._runner: Runner | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start it, or begin to wait. Raises: BusRefused, ConfigError: a later try would fail, too."""
        try:
            self._run()
        except (BusUnavailable, GroupMissing) as error:
            self._log(error)
            self._thread = threading.Thread(target=self._wait_and_run, name="eventbus-patient", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop the waiting or the worker; waits at most *timeout_s* (0: not at all). Idempotent."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._stop.set()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        if self._runner:
            self._runner.stop(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        bus = self._open_bus()
        with self._lock:  # `stop` comes before, and nothing is started, or after, and finds the runner
            if not self._stop.is_set():
                runner = self._make(bus)
                runner.start()
                self._runner = runner

    def _wait_and_run(self) -> None:
        tries = 0
        while self._runner is None:
            tries += 1
            if self._stop.wait(BACKOFF.pause_s(tries)):
                if self._give_up is not None:
                    self._give_up()
                return
            try:
                self._run()
            except EventBusError as error:  # also a refusal: Redis may have started, and not be configured yet
                self._log(error)

    def _log(self, error: EventBusError) -> None:
        self._losses.log(self._title, f"{self._title} waits for Redis: {error}")


#: Pauses between two attempts to connect over HTTP.
RECONNECT = Backoff(first_s=0.1, last_s=10.0, at_least=0.25)


class RemoteWatcher:
    """A `StreamWatcher` over HTTP. It reconnects by itself, and continues after the last event it has received."""

    def __init__(self, *, stream: RemoteStream, handler: Handler) -> None:
        self._stream = stream
        self._handler = handler
        self._stop = threading.Event()
        self.skipped = 0
        self._thread = threading.Thread(target=self._run, name="eventbus-watch-http", daemon=True)

    def __repr__(self) -> str:
        state = "stopped" if self._stop.is_set() else "running"
        return f"<RemoteWatcher: {state}, {self.missed} missed, {self.skipped} skipped>"

    @property
    def missed(self) -> int:
        """Return how many events were trimmed before this watcher could read them."""
        return self._stream.missed

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the event that is being handled; waits at most *timeout_s*, in the handler not at all."""
        self._stop.set()
        self._stream.close()
        if timeout_s and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    @property
    def ended(self) -> bool:
        """Return True if it was stopped and its last handler has returned."""
        return self._stop.is_set() and not self._thread.is_alive()

    def _run(self) -> None:
        ends = 0  # in a row: streams that ended without an event and before the longest pause
        logged = False
        while not self._stop.is_set():
            began_s, retry_after_s = time.monotonic(), 0.0
            try:
                for event in self._stream.read():
                    ends, logged = 0, False
                    if self._stop.is_set():
                        return
                    if not call_handler(self._handler, event):
                        self.skipped += 1
            except SystemExit:  # of the handler
                self.stop()
                return
            except Exception as error:
                if self._stop.is_set():
                    return
                if not logged:
                    unforeseen = None if isinstance(error, EventBusError) else error
                    log.warning("watcher waits: %s", error, exc_info=unforeseen)
                logged = True
                retry_after_s = (error.retry_after_s or 0.0) if isinstance(error, BusUnavailable) else 0.0
            if time.monotonic() - began_s >= RECONNECT.last_s:
                ends = 0
            # A regular end counts, too: a worker that stops ends its streams, but so does a proxy that refuses them.
            ends += 1
            self._stop.wait(max(RECONNECT.pause_s(ends), random.uniform(retry_after_s, 1.25 * retry_after_s)))
