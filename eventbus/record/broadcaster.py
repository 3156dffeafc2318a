"""The broadcaster: ties recorders to the bus, to watchers, logs and sinks. One a process is usual."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import threading
import weakref
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

from eventbus.clock import Clock, SystemClock
from eventbus.errors import BroadcasterStopped, ConfigError, InvalidEvent
from eventbus.event import Event
from eventbus.record.handler import Handler, Watcher
from eventbus.record.local_watcher import LocalWatcher
from eventbus.record.log_lines import log_line, log_structured
from eventbus.record.losses import Losses
from eventbus.record.mux import QUEUE_LENGTH, FullQueue, Mux
from eventbus.record.outbox import Outbox
from eventbus.record.pending import Pending, build
from eventbus.record.recorder import EventRecorder
from eventbus.settings import Settings

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus
    from eventbus.record.export import ExportOptions
    from eventbus.sinks.sink import EventSink

log = logging.getLogger("eventbus")

Scope = Literal["bus", "local"]
W = TypeVar("W", bound=Watcher)

#: seconds that watchers have for the events they are handling, even if the flush has taken all the time of a shutdown
LAST_HANDLER_S = 2.0

#: Held while redis is imported, and what opening a bus imports: a fork in the middle would leave the child half a
#: module for ever.
_importing = threading.RLock()
#: Every broadcaster of this process, so that a child after fork finds and empties them.
_ALL: weakref.WeakSet[EventBroadcaster] = weakref.WeakSet()


class EventBroadcaster:
    """Carries this process's events to the bus, and the bus's events to handlers. Also a context manager.

    Args:     url: where Redis is; None: EVENTBUS_REDIS_URL, else the embedded server.  settings: None: from the
              environment.  clock: for tests.  full_queue: for local watchers that are slower than the recorders.
    Nothing is sent or started before the first event or watcher.

    Source: client-go tools/record EventBroadcaster. Departures: events cross processes; a bus-wide watcher is added.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        full_queue: FullQueue = FullQueue.DROP,
    ) -> None:
        self.settings = settings or Settings.from_environ(os.environ)
        self._url = url or self.settings.redis_url or None
        self._clock = clock or SystemClock()
        self.losses = Losses(self._clock)
        self._mux: Mux[Pending | Event] = Mux(full_queue=full_queue, prepare=self._built)
        self._publishing = (self._url or "").lower() != "none"
        self._outbox = Outbox(open_bus=self._open_bus, settings=self.settings, clock=self._clock, losses=self.losses)
        self._stopped = False
        self._sent = False  #: whether everything was, once it is shut down
        self._bus: Any = None
        self._bus_lock = threading.Lock()
        self._watchers: list[Watcher] = []
        self._watchers_lock = threading.Lock()
        self._loggers: list[LocalWatcher] = []
        self._silent: list[Handler] = []
        self._log_lock = threading.RLock()
        self._put: Callable[[Pending], None] = self._outbox.put if self._publishing else self._put_locally
        self._register()

    def new_recorder(self, component: str, host: str | None = None) -> EventRecorder:
        """A recorder for *component*. *host*: None is this machine's name."""
        host = socket.gethostname() if host is None else host
        return EventRecorder(component, host, put=self._accept, losses=self.losses, clock=self._clock)

    def start_event_watcher(
        self,
        handler: Handler,
        *,
        scope: Scope = "bus",
        group: str | None = None,
        since: datetime | None = None,
        queue_length: int = QUEUE_LENGTH,
    ) -> Watcher:
        """Call *handler* with every event recorded from now on, one at a time and in order, in a thread of its own.

        Args:     scope: `bus` all processes, `local` this process's own recorders, without Redis.
                  group: a consumer group: workers of one group share its events, each reaches one of them.
                  since: aware; begin with what was recorded then (bus only, as far as the stream reaches back).
                  queue_length: how far a local watcher may be behind the recorders; then *full_queue* decides.
        Returns:  a Watcher; `stop` it, or `shutdown` the broadcaster.
        It sees nothing recorded by this process before the call returned, and everything after. A handler that raises
        is tried 3 times, logged with the event's uid, then the event is buried (group) or skipped.
        Raises:   BusUnavailable, BusRefused: the bus cannot be opened. BroadcasterStopped.
                  ConfigError: it cannot be opened, or the arguments do not go together.
        """
        if self._stopped:
            raise BroadcasterStopped
        if not callable(handler):
            raise ConfigError(f"the handler must be callable with an event; a {type(handler).__name__} is not")
        if scope not in get_args(Scope):
            raise ConfigError(f"scope must be 'bus' or 'local', not {scope!r}")
        if scope == "local":
            if group is not None or since is not None:
                raise ConfigError("group and since go with scope='bus': a local watcher has neither group nor past")
            return self._watch_locally(handler, queue_length)
        if not self._publishing:
            raise ConfigError("no bus is configured (EVENTBUS_REDIS_URL=none); only scope='local' can be watched")
        if since is not None and since.utcoffset() is None:
            raise ConfigError("since must be an aware datetime; say datetime.now(UTC), not utcnow()")
        bus = self._open_bus()
        from eventbus.record.watcher import GroupWatcher, StreamWatcher

        self._outbox.flush(self.settings.flush_s)
        since_ms = None if since is None else int(since.timestamp() * 1000)
        if group is not None:
            start = "$" if since_ms is None else f"{max(0, since_ms - 1)}-18446744073709551615"
            watcher = GroupWatcher(
                bus=bus,
                group=group,
                handler=handler,
                clock=self._clock,
                policy="WAIT",
                start=start,
                block_ms=self.settings.worker_block_ms,
            )
            watcher.start()
            return self._keep(watcher)
        stream = StreamWatcher(
            bus=bus, handler=handler, clock=self._clock, since_ms=since_ms, block_ms=self.settings.worker_block_ms
        )
        stream.start()
        return self._keep(stream)

    def start_logging(self, logf: Callable[..., object]) -> Watcher:
        """Log this process's own events, raw, with *logf* (`logger.info`): one line each, client-go's words."""
        return self._log(lambda event: log_line(logf, event))

    def start_structured_logging(self, logger: Any = None) -> Watcher:
        """Log this process's own events with key-values through structlog. Message `Event occurred`."""
        if logger is None:
            import structlog

            logger = structlog.get_logger("eventbus")
        return self._log(lambda event: log_structured(logger, event))

    def start_recording_to_sink(
        self,
        sink: EventSink | None = None,
        *,
        start: str = "beginning",
        repeats: str = "every",
        outage: str = "pause",
        batch: int = 500,
        rate: float = 0.0,
    ) -> Watcher:
        """Run the store's sink worker in this process, or, with *sink*, an export to it. Returns at once.

        Without *sink* it is what `eventbus worker sink` does, with it what `eventbus worker export` does: every
        correlated event of the bus, from the beginning at first. An export needs a sink worker somewhere, and closes
        *sink* at its end.

        Args:   start, repeats, outage, batch, rate: of an export, as the command's --from, --repeats, --outage, --batch
                and --rate.
        While Redis is away it waits in the background, and the log says so.

        Raises: ConfigError: *sink* is none, or its name or an option will not do.
                BusRefused: Redis will never do; the message says what to do. BroadcasterStopped.
        """
        if self._stopped:
            raise BroadcasterStopped
        if sink is not None:
            from eventbus.record.export import make_options

            options = make_options(
                self._clock, start=start, repeats=repeats, outage=outage, batch_events=batch, rate_per_s=rate
            )
            return self._keep(self._start_export(sink, options))
        from eventbus.record.patient import PatientRunner
        from eventbus.record.sink_runner import SinkRunner

        runner = PatientRunner(
            "the sink worker",
            open_bus=self._open_bus,
            make=lambda bus: SinkRunner(bus=bus, clock=self._clock, block_ms=self.settings.worker_block_ms),
            losses=self.losses,
        )
        runner.start()
        return self._keep(runner)

    def _start_export(self, sink: EventSink, options: ExportOptions) -> Watcher:
        from eventbus.record.export_runner import ExportRunner
        from eventbus.record.patient import PatientRunner
        from eventbus.sinks.opening import check_name
        from eventbus.sinks.shared import share
        from eventbus.sinks.sink import EventSink

        if not isinstance(sink, EventSink):
            raise ConfigError(f"{sink!r} is no sink: see eventbus.sinks.EventSink")
        name = check_name(sink.name)

        def make(bus: Bus) -> ExportRunner:
            shared = share(sink, bus.partitions)
            return ExportRunner(
                bus=bus,
                make_sink=lambda: shared,
                clock=self._clock,
                options=options,
                block_ms=self.settings.worker_block_ms,
            )

        runner = PatientRunner(
            f"the export to {name}", open_bus=self._open_bus, make=make, losses=self.losses, give_up=sink.close
        )
        runner.start()
        return runner

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until Redis has everything recorded before this call. False: not within *timeout_s*."""
        return self._outbox.flush(self.settings.flush_s if timeout_s is None else timeout_s)

    def shutdown(self, timeout_s: float | None = None) -> bool:
        """Send what is there, stop every watcher, and stop. Idempotent.

        Blocks for at most *timeout_s* (default 5 s) on the network. Returns whether everything was sent; what was not
        is counted as `unsent`. Events recorded afterwards are counted as `refused`.
        """
        if self._stopped:
            return self._sent
        self._stopped = True
        self._put = self._refuse
        timeout_s = self.settings.flush_s if timeout_s is None else timeout_s
        deadline = self._clock.monotonic() + timeout_s
        self._mux.shutdown(timeout_s)
        self._sent = self._outbox.close(max(0.0, deadline - self._clock.monotonic()))
        for watcher in self._watchers:
            watcher.stop(0)  # first all are told, then each is waited for
        deadline = max(deadline, self._clock.monotonic() + LAST_HANDLER_S)
        for watcher in self._watchers:
            watcher.stop(max(0.001, deadline - self._clock.monotonic()))
        self.losses.close()
        atexit.unregister(self.shutdown)
        self._finalizer.cancel()
        return self._sent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.shutdown()

    # -- the way of an event -------------------------------------------------------------------------------------

    def _accept(self, pending: Pending) -> None:
        self._put(pending)

    def _put_locally(self, pending: Pending) -> None:
        try:
            if not self._mux.action_or_drop(pending):
                self.losses.count("missed", 1, "too many queued events for the local watchers")
        except BroadcasterStopped:  # in another thread, a moment ago
            self._refuse(pending)
            return
        if self._publishing:
            self._outbox.put(pending)

    def _built(self, pending: Pending | Event) -> Event | None:
        """What the local watchers get: the same events as the bus, each built once, and not by the caller."""
        assert isinstance(pending, Pending)
        try:
            return build(pending)
        except Exception as error:  # a field of a type nobody thought of must not stop the mux
            if not self._publishing:  # else the outbox counts it
                said = str(error) if isinstance(error, InvalidEvent) else f"{type(error).__name__}: {error}"
                self.losses.count("refused", 1, said)
            return None

    def _refuse(self, _pending: Pending) -> None:
        self.losses.count("refused", 1, "the broadcaster is shut down")

    def _log(self, handler: Handler) -> Watcher:
        if self._stopped:
            raise BroadcasterStopped
        watcher = self._watch_locally(handler, QUEUE_LENGTH)
        self._loggers.append(watcher)
        return watcher

    def _watch_locally(self, handler: Handler, queue_length: int) -> LocalWatcher:
        watcher = self._keep(LocalWatcher(self._mux, handler, queue_length))
        self._put = self._put_locally
        return watcher

    def _log_again(self, pending: Pending) -> None:
        """The first event of a forked child: its parent's loggers have no threads here yet."""
        with self._log_lock:
            silent, self._silent = self._silent, []
            for handler in silent:
                self._log(handler)
        self._put_locally(pending)

    def _keep(self, watcher: W) -> W:
        with self._watchers_lock:
            self._watchers = [each for each in self._watchers if not _has_ended(each)] + [watcher]
        if self._stopped:  # shut down in another thread meanwhile
            watcher.stop()
            raise BroadcasterStopped
        return watcher

    # -- the process's life --------------------------------------------------------------------------------------

    def _open_bus(self) -> Any:
        """Open the bus once; redis is imported here, not before."""
        with self._bus_lock:
            if self._bus is None:
                with _importing:
                    import secrets  # noqa: F401  # redis does when it makes its first client

                    import redis  # noqa: F401

                    import eventbus.broker.embedded
                    import eventbus.record.watcher  # noqa: F401
                from eventbus.broker.bus import open_bus
                from eventbus.broker.connection import resolve_url

                environ = dict(os.environ)
                if self.settings.state_dir:
                    environ["EVENTBUS_STATE_DIR"] = self.settings.state_dir
                if password := self.settings.password:
                    environ |= {"EVENTBUS_REDIS_PASSWORD": password, "EVENTBUS_REDIS_PASSWORD_FILE": ""}
                url = resolve_url(self._url, environ)
                if url is None:
                    raise ConfigError("no bus is configured (EVENTBUS_REDIS_URL=none)")
                self._bus = open_bus(url, self.settings)
            return self._bus

    def _register(self) -> None:
        _ALL.add(self)
        if self._publishing:
            # A program that ends at once has the flusher import redis while the interpreter exits, when this part of
            # redis' imports is refused. Unnecessary once concurrent.futures no longer registers itself with threading.
            import concurrent.futures.thread  # noqa: F401
        atexit.register(self.shutdown)
        self._finalize()
        import multiprocessing.util  # it would be a tenth of importing this package

        # multiprocessing forgets every finalizer at the beginning of a child.
        multiprocessing.util.register_after_fork(self, EventBroadcaster._finalize)
        flush_on_sigterm()

    def _after_fork(self) -> None:
        """In the child: an empty buffer, a fresh producer at the first event, no thread and no socket of the parent."""
        self._mux.reset_after_fork()
        self._outbox.reset()
        self._bus_lock = threading.Lock()
        self._bus = None
        self._log_lock = threading.RLock()
        self._silent += [logger.handler for logger in self._loggers if not logger.stopped]
        if self._silent and not self._stopped:
            self._put = self._log_again
        self._watchers, self._loggers = [], []
        self._watchers_lock = threading.Lock()
        self.losses.reset()

    def _finalize(self) -> None:
        """Have a child of multiprocessing, which ends without atexit, shut down as well."""
        import multiprocessing.util

        self._finalizer = multiprocessing.util.Finalize(self, EventBroadcaster.shutdown, args=(self,), exitpriority=10)


def _has_ended(watcher: Watcher) -> bool:
    """A program may start and stop watchers all its life. A sink's runner is kept until the end."""
    return bool(getattr(watcher, "ended", False))


def flush_on_sigterm() -> None:
    """Have SIGTERM flush before it ends the process, unless the program has a handler of its own.

    A program with a handler calls `shutdown` itself, or exits by `sys.exit`, which flushes too. Only the main thread
    may set handlers; from others this does nothing.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _flush_and_die)


def _flush_and_die(signum: int, _frame: object) -> None:
    # In a thread: the main thread may have been interrupted while it held a lock that shutdown needs.
    flusher = threading.Thread(target=lambda: [each.shutdown() for each in list(_ALL)], daemon=True)
    flusher.start()
    flusher.join(max((each.settings.flush_s for each in list(_ALL)), default=0.0) + 1.0)
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def _after_fork_in_child() -> None:
    _importing.release()
    for broadcaster in list(_ALL):
        broadcaster._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_after_fork_in_child
    )
