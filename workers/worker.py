"""Runs a worker process: opens the bus, runs a `Part`, and stops with a deadline."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.function_library import ANNOUNCE_EVERY_S
from eventbus.consume.consumer import consumer_name
from eventbus.consume.heartbeat import LoopHealth
from eventbus.errors import BusRefused, BusUnavailable, EventBusError
from eventbus.model.event import ObjectReference
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.recorder import EventRecorder
from eventbus.settings import Settings
from eventbus.util.clock import Clock, SystemClock
from eventbus.util.log import log
from eventbus.util.log_output import log_to_stderr
from eventbus.workers.metrics_server import MetricsServer, hanging, readiness
from eventbus.workers.opening import Opener, explicit_options
from eventbus.workers.parent_watch import follow_starter
from eventbus.workers.signals import Signals
from eventbus.workers.systemd import Systemd

#: Namespace of the workers' own events.
NAMESPACE = "eventbus-system"
#: Reasons that export workers and housekeepers report, once for each partition, with the type of the event.
OTHER_REASONS = {
    "SinkUnreachable": "Warning",
    "SinkThrottled": "Normal",
    "SinkReachable": "Normal",
    "ClusterUnreachable": "Warning",
    "ClusterReachable": "Normal",
    "GroupReleased": "Warning",
    "NotificationFailed": "Warning",
    "NotificationsResumed": "Normal",
    "RulesRejected": "Warning",
    "RulesRestored": "Normal",
}
#: Seconds for a part to stop: longer than any drain.
STOP_S = 100_000.0
#: Seconds between comparisons of the options with those of the bus. The first intervals are shorter, because a worker
#: is usually ready within milliseconds.
LOOK_EVERY_S, FIRST_LOOK_S = 1.0, 0.01


class Part(Protocol):
    """The work of a worker process: threads of its own, from `start` until `stop`."""

    def start(self) -> None: ...

    def stop(self, timeout_s: float) -> object:
        """Finish started work, then stop; blocks for about *timeout_s* at most."""
        ...

    def loop_health(self) -> Sequence[LoopHealth]:
        """Return the health of each loop. Thread-safe."""
        ...


class Running:
    """The current part of a worker process: none while it waits for Redis, a new one after a change of options."""

    part: Part | None = None
    stopping = False

    def loop_health(self) -> Sequence[LoopHealth]:
        """Return the health of the part's loops. Thread-safe."""
        part = self.part
        return part.loop_health() if part else ()


class Context(NamedTuple):
    """The inputs for building a part.

    *on_change*: for consumers.  *end*: ends the worker with an exit code.  *ending*: the worker shuts down for good.
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
    """Run the part from *build* until a signal, and return the exit code. Call it in the main thread.

    SIGTERM and SIGINT drain for at most `drain_s`; a second signal ends the process at once. Without Redis it waits.
    The worker also drains when the `eventbus up` that started it ends.

    Args:   component: the source of the worker's own events, such as `eventbus-sink`.
            metrics: the value of `--metrics-port`; "": none. The port also answers while the worker waits for Redis.
            doing: an addition to the log line at start, such as ` and writes to stdout:`.
            signals: already installed; None: install the usual handlers.
    Raises: ConfigError, BusRefused: this worker cannot use this bus; nothing was started, or all was stopped.
    """
    settings = Settings.from_environ(os.environ)
    if signals is None:
        signals = Signals()
        signals.install()
    running = Running()
    with worker_process(component, settings, signals, running, metrics=metrics) as systemd:
        worker = Worker(
            component, build, settings=settings, signals=signals, systemd=systemd, running=running, doing=doing
        )
        return worker.run()


@contextmanager
def worker_process(
    component: str, settings: Settings, signals: Signals, running: Running, *, metrics: str
) -> Iterator[Systemd]:
    """Log to stderr, serve *metrics*, and end with the `eventbus up` that started this process, during the block.

    Yields: the reports to systemd. Raises: ConfigError: the metrics cannot be served.
    """
    log_to_stderr(settings)
    follow_starter(lambda: signals.end(0))
    systemd = Systemd()
    if not metrics:
        yield systemd
        return
    server = MetricsServer(
        metrics, component=component, loop_health=running.loop_health, draining=lambda: running.stopping
    )
    server.start()
    try:
        yield systemd
    finally:
        server.stop()


def wait_for_exit(signals: Signals, systemd: Systemd, loop_health: Callable[[], Sequence[LoopHealth]]) -> None:
    """Wait until an exit is requested. Meanwhile, report to systemd as long as each loop makes progress."""
    # Each wait is short: a signal just before a wait does not interrupt it, because its handler runs after the wait.
    while not signals.wait(LOOK_EVERY_S):
        report_alive(systemd, loop_health())
    systemd.stopping()


def report_alive(systemd: Systemd, loops: Sequence[LoopHealth]) -> None:
    """Report to systemd that this process is alive, if each of *loops* makes progress."""
    if not hanging(loops, time.monotonic()):
        systemd.alive()


class Worker:
    """A worker process on one bus. It records events about itself as Worker/<name>."""

    def __init__(
        self,
        component: str,
        build: Build,
        *,
        settings: Settings,
        signals: Signals,
        systemd: Systemd,
        running: Running,
        doing: str,
    ) -> None:
        self._component = component
        self._doing = doing
        self._build = build
        self._settings = settings
        self._signals = signals
        self._systemd = systemd
        self._running = running
        self._name = consumer_name()
        self._reported_ready = False
        self._opener = Opener(settings, explicit_options(os.environ), wait=self._wait_for_redis)

    def run(self) -> int:
        """Run until the exit; blocks. See `run` above."""
        bus = self._opener.open()
        if bus is None:
            return 0
        self._signals.idle = False
        self._bus = bus
        self._broadcaster = EventBroadcaster(bus.url, settings=self._settings)
        self._events = WorkerEvents(self._broadcaster.new_recorder(self._component), self._name)
        self._events.write("Starting", f"Starting {self._component}.")
        deadline = 0.0
        try:
            while True:
                # Before it reads events, so that a format upgrade notices a worker that has just started.
                with self._bus.client(name="eventbus-options") as client:
                    self._announce(client)
                part, changed = self._start_part(), ""
                try:
                    changed = self._look_after()
                finally:
                    deadline = time.monotonic() + self._settings.drain_s
                    if not changed:
                        # While the consumers still run, so that they receive this event too.
                        self._say_stopping()
                    drained = drain(part, deadline)
                if not drained:
                    log.error("not finished within %g s: other workers will take over the rest", self._settings.drain_s)
                    return 1
                if not changed:
                    return self._signals.exit_code or 0
                log.warning("%s: restarting the consumers", changed)
                bus = self._opener.open()
                if bus is None:
                    return 0
                self._bus = bus
        finally:
            # Events that are still unsent are counted and logged. They must not delay the exit.
            self._broadcaster.shutdown(max(0.2, min(self._settings.flush_s, deadline - time.monotonic())))

    def _wait_for_redis(self, seconds: float) -> bool:
        self._systemd.ready("waits for Redis")  # or systemd would end the worker after a minute and a half
        self._systemd.alive()
        return self._signals.wait(seconds)

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
        """Wait for an exit request or a change of options. Returns: a description of the change; "": exit."""
        client = self._bus.client(name="eventbus-options")
        announce_at = 0.0  # at once, because the functions may have been missing until the consumers loaded them
        look_s = FIRST_LOOK_S
        try:
            while not self._signals.wait(look_s):
                look_s = min(2 * look_s, LOOK_EVERY_S)
                report_alive(self._systemd, self._running.loop_health())
                if not self._reported_ready:
                    self._report_ready(is_late=look_s == LOOK_EVERY_S)
                try:
                    if changed := self._opener.news(self._bus, client):
                        return changed
                except (BusUnavailable, BusRefused) as error:  # the consumers wait too, and log it
                    log.debug("the options are not compared: %s", error)
                    continue
                if time.monotonic() >= announce_at and self._announce(client):
                    announce_at = time.monotonic() + ANNOUNCE_EVERY_S
            return ""
        finally:
            client.close()

    def _report_ready(self, *, is_late: bool) -> None:
        """Report once that the worker works, after every loop is ready.

        A group misses the events that other groups have finished before it was created, because those are trimmed.
        After "works on" it receives all events.
        """
        self._reported_ready, _ = readiness(self._running.loop_health(), draining=False)
        if self._reported_ready:
            log.info("%s %s works on %s%s", self._component, self._name, self._bus, self._doing)
            self._systemd.ready(f"works on {self._bus}")
        elif is_late:  # systemd ends a worker that does not report for a minute and a half
            self._systemd.ready("waits for Redis")

    def _announce(self, client: Client) -> bool:
        """Announce that this build is in use. False: functions or rights are missing; the consumers report it."""
        try:
            self._bus.functions(client, 0).announce("worker", f"{self._component} {self._name}")
        except EventBusError as error:
            log.debug("the build is not announced: %s", error)
            return False
        return True

    def _say_stopping(self) -> None:
        self._running.stopping = True
        self._systemd.stopping()
        log.info("%s stops: finishing its work", self._component)
        self._events.write("Stopping", f"Stopping {self._component}.")


def drain(part: Part, deadline: float) -> bool:
    """Stop *part* by *deadline* on the monotonic clock; False if it timed out."""
    # In a thread with a much longer timeout: a part that timed out first would look as if it had finished.
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
        """Record an event about this worker."""
        self._recorder.event(self._about, event_type, reason, message)

    def on_change(self) -> Callable[[str, str], None]:
        """Return a callback for one part's consumers that records LostRedis and Reconnected.

        LostRedis is recorded when the first consumer loses Redis, Reconnected when the last one is connected again."""
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
