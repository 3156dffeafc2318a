"""Runs a worker process: opens the bus, runs a `Part`, and stops with a deadline."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from eventbus.broker.builds import ANNOUNCE_EVERY_S
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.clock import Clock, SystemClock
from eventbus.consume.consumer import consumer_name
from eventbus.consume.health import LoopHealth
from eventbus.errors import BusUnavailable, EventBusError
from eventbus.event import ObjectReference
from eventbus.log import log
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.recorder import EventRecorder
from eventbus.settings import Settings
from eventbus.workers.metrics import MetricsServer
from eventbus.workers.opening import Opener, explicit_options
from eventbus.workers.parent_watch import follow_starter
from eventbus.workers.plain_log import log_plainly
from eventbus.workers.signals import Signals

#: Where workers speak of themselves.
NAMESPACE = "eventbus-system"
#: What exporters to an external sink and housekeepers tell, once a partition, and the type of event that it is.
OTHER_REASONS = {
    "SinkUnreachable": "Warning",
    "SinkThrottled": "Normal",
    "SinkReachable": "Normal",
    "GroupReleased": "Warning",
}
#: How long a part is given to stop: longer than any drain.
STOP_S = 100_000.0
#: How often the options are compared with those of the bus.
LOOK_EVERY_S = 1.0


class Part(Protocol):
    """The work of a worker process: threads of its own, from `start` until `stop`."""

    def start(self) -> None: ...

    def stop(self, timeout_s: float) -> None:
        """Finish what is begun, and end; blocks for about *timeout_s* at most."""
        ...

    def loop_health(self) -> Sequence[LoopHealth]:
        """Return the health of each of its loops; safe to call from any thread."""
        ...


class Running:
    """The part that a worker process runs now: none while it waits for Redis, another one after a change of options."""

    part: Part | None = None
    stopping = False

    def loop_health(self) -> Sequence[LoopHealth]:
        """Return the health of the part's loops; safe to call from any thread."""
        part = self.part
        return part.loop_health() if part else ()


class Context(NamedTuple):
    """The things that a part is built of.

    *on_change*: for consumers.  *end*: ends the worker with an exit code.  *ending*: it ends, and is not begun anew.
    """

    bus: Bus
    settings: Settings
    clock: Clock
    name: str
    on_change: Callable[[str, str], None]
    end: Callable[[int], None]
    ending: Callable[[], bool] = lambda: False


Build = Callable[[Context], Part]


def run(component: str, build: Build, *, metrics: str = "", doing: str = "", signals: Signals | None = None) -> int:
    """Run what *build* makes until a signal, and return the exit code. Call it in the main thread.

    SIGTERM and SIGINT drain for at most `drain_s`; a second one ends the process at once. Without Redis it waits.
    The end of the `eventbus up` that started it drains as well.

    Args:   component: who speaks in the worker's own events, like `eventbus-sink`.
            metrics: the port of `--metrics-port`, "": none. It answers while the worker waits for Redis, too.
            doing: what the line that says where it works adds, like ` and writes to stdout:`.
            signals: installed already; None: the usual ones.
    Raises: ConfigError, BusRefused: this worker cannot work with this bus; nothing was begun, or all was stopped.
    """
    log_plainly()
    if signals is None:
        signals = Signals()
        signals.install()
    follow_starter(lambda: signals.end(0))
    settings = Settings.from_environ(os.environ)
    running = Running()
    server = open_metrics(metrics, component, running.loop_health, draining=lambda: running.stopping)
    try:
        return _run(component, build, settings, signals, running, doing)
    finally:
        if server:
            server.stop()


def open_metrics(
    address: str, component: str, loop_health: Callable[[], Sequence[LoopHealth]], *, draining: Callable[[], bool]
) -> MetricsServer | None:
    """Start serving the metrics of what *loop_health* tells; None for no *address*. Raises: ConfigError."""
    if not address:
        return None
    server = MetricsServer(address, component=component, loop_health=loop_health, draining=draining)
    server.start()
    return server


def _run(component: str, build: Build, settings: Settings, signals: Signals, running: Running, doing: str) -> int:
    opener = Opener(settings, explicit_options(os.environ), wait=signals.wait)
    bus = opener.open()
    if bus is None:
        return 0
    signals.idle = False
    return Worker(
        component,
        build,
        bus=bus,
        settings=settings,
        opener=opener,
        signals=signals,
        running=running,
        doing=doing,
    ).run()


class Worker:
    """One process of workers with its bus open. It records events about itself as Worker/<name>."""

    def __init__(
        self,
        component: str,
        build: Build,
        *,
        bus: Bus,
        settings: Settings,
        opener: Opener,
        signals: Signals,
        running: Running,
        doing: str,
    ) -> None:
        self._component = component
        self._doing = doing
        self._build = build
        self._bus = bus
        self._settings = settings
        self._opener = opener
        self._signals = signals
        self._running = running
        self._name = consumer_name()
        self._broadcaster = EventBroadcaster(bus.url, settings=settings)
        self._events = WorkerEvents(self._broadcaster.new_recorder(component), self._name)

    def run(self) -> int:
        """Run until the end; blocks. See `run` above."""
        self._events.write("Starting", f"Starting {self._component}.")
        log.info("%s %s works on %s%s", self._component, self._name, self._bus, self._doing)
        deadline = 0.0
        try:
            while True:
                # Before it takes events: an upgrade of the format must not overlook a worker that has just started.
                with self._bus.client(name="eventbus-options") as client:
                    self._announce(client)
                part, changed = self._start_part(), ""
                try:
                    changed = self._look_after()
                finally:
                    deadline = time.monotonic() + self._settings.drain_s
                    if not changed:
                        # While the consumers still run: they are told of it too.
                        self._say_stopping()
                    drained = drain(part, deadline)
                if not drained:
                    log.error("not finished within %g s: what is left will be taken over", self._settings.drain_s)
                    return 1
                if not changed:
                    return self._signals.exit_code or 0
                log.warning("%s: restarting the consumers", changed)
                bus = self._opener.open()
                if bus is None:
                    return 0
                self._bus = bus
        finally:
            # What was not sent by now is counted and told; it must not hold up the end.
            self._broadcaster.shutdown(max(0.2, min(self._settings.flush_s, deadline - time.monotonic())))

    def _start_part(self) -> Part:
        part = self._build(
            Context(
                self._bus,
                self._settings,
                SystemClock(),
                self._name,
                self._events.on_change(),
                self._signals.end,
                lambda: self._running.stopping,
            )
        )
        part.start()
        self._running.part = part
        return part

    def _look_after(self) -> str:
        """Wait for the end, or for a change of options, which it then describes."""
        client = self._bus.client(name="eventbus-options")
        announce_at = 0.0  # again at once: the functions were missing, perhaps, until the consumers loaded them
        try:
            while not self._signals.wait(LOOK_EVERY_S):
                try:
                    if changed := self._opener.news(self._bus, client):
                        return changed
                except BusUnavailable:
                    continue  # the consumers wait for it, and say so
                if time.monotonic() >= announce_at and self._announce(client):
                    announce_at = time.monotonic() + ANNOUNCE_EVERY_S
            return ""
        finally:
            client.close()

    def _announce(self, client: Client) -> bool:
        """Say that this build is in use. False: functions or rights are missing; the consumers say so."""
        try:
            self._bus.functions(client, 0).announce("worker", f"{self._component} {self._name}")
        except EventBusError as error:
            log.debug("the build is not announced: %s", error)
            return False
        return True

    def _say_stopping(self) -> None:
        self._running.stopping = True
        log.info("%s stops: finishing its work", self._component)
        self._events.write("Stopping", f"Stopping {self._component}.")


def drain(part: Part, deadline: float) -> bool:
    """Stop *part* until *deadline* of the monotonic clock; False if it did not manage in time."""
    # In a thread, which gives up long after we do: a part that gave up first would look as if it had finished.
    stopper = threading.Thread(target=part.stop, args=(STOP_S,), name="eventbus-stop", daemon=True)
    stopper.start()
    stopper.join(max(0.0, deadline - time.monotonic()))
    return not stopper.is_alive()


class WorkerEvents:
    """Records a worker's events about itself."""

    def __init__(self, recorder: EventRecorder, name: str) -> None:
        self._recorder = recorder
        self._about = ObjectReference(kind="Worker", namespace=NAMESPACE, name=name)
        self._lock = threading.Lock()

    def write(self, reason: str, message: str, event_type: str = "Normal") -> None:
        """Record one event about this worker."""
        self._recorder.event(self._about, event_type, reason, message)

    def on_change(self) -> Callable[[str, str], None]:
        """Return a callback for one part's consumers that records LostRedis and Reconnected.

        LostRedis is recorded when the first consumer loses Redis, Reconnected when the last has it again."""
        lost = 0

        def note(reason: str, message: str) -> None:
            nonlocal lost
            if reason in OTHER_REASONS:
                self.write(reason, message, OTHER_REASONS[reason])
                return
            with self._lock:
                lost += 1 if reason == "LostRedis" else -1
                if reason == "LostRedis" and lost == 1:
                    self.write(reason, message, "Warning")
                elif reason != "LostRedis" and lost == 0:
                    self.write(reason, message)

        return note
