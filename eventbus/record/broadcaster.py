"""The broadcaster: ties recorders to the bus, to watchers, logs and sinks. One a process is usual."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

from eventbus.broker.connection.address import parse_address
from eventbus.broker.redis_transport import RedisTransport
from eventbus.broker.transport import Transport
from eventbus.client.address import is_api_url, parse_api_url
from eventbus.consume.handler import Handler, Watcher, check_handler
from eventbus.errors import BroadcasterStopped, ConfigError
from eventbus.record import bus_watchers, process_hooks
from eventbus.record.local_watchers import (
    QUEUE_LENGTH,
    LocalWatcher,
    LocalWatchers,
    log_line,
    log_structured,
)
from eventbus.record.losses import Losses
from eventbus.record.outbox import Outbox
from eventbus.record.packing import Pending
from eventbus.record.recorder import EventRecorder, EventsRecorder, check_controller, check_source, count_call
from eventbus.settings import Settings
from eventbus.util.clock import Clock, SystemClock

if TYPE_CHECKING:
    from multiprocessing.util import Finalize

    from eventbus.broker.bus import Bus
    from eventbus.export.sinks.contract import EventSink
    from eventbus.record.spool.adopter import Adopter
    from eventbus.record.spool.spool import Spool

#: For features that need the stream itself.
_NEEDS_REDIS = "needs Redis: take EVENTBUS_URL away, and set EVENTBUS_REDIS_URL"

Scope = Literal["bus", "local"]
W = TypeVar("W", bound=Watcher)


class EventBroadcaster:
    """Carries this process's events to the bus, and the bus's events to handlers. Also a context manager.

    Args:     url: where Redis is, or an API worker (http, https, http+unix); None: EVENTBUS_URL, EVENTBUS_REDIS_URL,
              else the embedded server.  settings: None: from the environment.  clock: for tests.
    Raises:   ConfigError: the url or a setting is not valid; the message names the cure.
    Nothing is sent or started before the first event or watcher. The first recorder or watcher of a process installs a
    handler of SIGTERM, if the program has none: it flushes, as the exit of the process does.

    Source: client-go tools/record EventBroadcaster. Departures: events cross processes; a bus-wide watcher is added.
    """

    at_exit: Callable[[], object]  #: kept by process_hooks, as the next
    finalizer: Finalize  #: of multiprocessing

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = Settings.from_environ(os.environ) if settings is None else settings
        self._url = _checked_url(url, self.settings)
        self._over_http = bool(self._url) and (is_api_url(self._url or "") or self._url == self.settings.url)
        self._clock = clock or SystemClock()
        self.losses = Losses(self._clock, on_first=process_hooks.start)
        self._publishing = (self._url or "").lower() != "none"
        self._local = LocalWatchers(losses=self.losses, counts_refused=not self._publishing)
        self._bus = LazyBus(self._url, self.settings)
        self._outbox = Outbox(
            connect=self._connect,
            settings=self.settings,
            clock=self._clock,
            losses=self.losses,
            on_start=process_hooks.start,
            on_foreign_fork=process_hooks.after_fork_by_c,
            make_spool=self._make_spool if self.settings.spool and self._publishing else None,
        )
        #: True: events go to the outbox only; no local watcher was started, and shutdown has not begun.
        self._fast_path = self._publishing
        self._stopped = False
        self._sends_last = False  # events recorded after the end has begun are sent by their callers
        self._watchers: list[Watcher] = []
        self._watchers_lock = threading.Lock()
        self._loggers: list[LocalWatcher] = []
        self._silent: list[Handler] = []
        self._loggers_wait = False
        self._log_lock = threading.RLock()
        if self._publishing and not self._over_http:
            # If a program ends at once, the flusher imports redis during interpreter exit, and Python refuses this
            # module then. So import it now. Unnecessary once concurrent.futures no longer registers with threading.
            import concurrent.futures.thread  # noqa: F401
        process_hooks.register(self)

    def __repr__(self) -> str:
        state = "shut down" if self._stopped else "open"
        lost = "".join(f", {n} {cause}" for cause, n in sorted(self.losses.counts.items()))
        return f"<EventBroadcaster to {self._bus}: {state}{lost}>"

    def new_recorder(self, component: str, host: str | None = None) -> EventRecorder:
        """Make a recorder for *component*. *host*: None is this machine's name.

        Raises: ConfigError: a name is no string, or too long (128 bytes, the host 253).
        """
        host = socket.gethostname() if host is None else host
        check_source(component, host)
        process_hooks.arm()
        return EventRecorder(component, host, put=self._accept, losses=self.losses, clock=self._clock)

    def new_events_recorder(self, controller: str, *, instance: str | None = None) -> EventsRecorder:
        """Make a recorder of events.k8s.io for *controller*, like `example.com/name`: equal events form series.

        *instance*: None is the controller and this machine's name. Processes with equal ones share their series.

        Raises: ConfigError: a name is not valid (128 bytes at most).
        """
        instance = f"{controller}-{socket.gethostname()}" if instance is None else instance
        check_controller(controller, instance)
        process_hooks.arm()
        return EventsRecorder(controller, instance, put=self._accept, losses=self.losses, clock=self._clock)

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
                  since: aware; begin with the events recorded then (bus only, as far as the stream reaches back).
                  queue_length: how many events may wait for a local watcher; it misses others, counted as `missed`.
        Returns:  a Watcher; `stop` it, or `shutdown` the broadcaster.
        Without *since*, a watcher without a group gets all events that this process records after the call returns, and
        none from before the call. A handler that raises is tried 3 times, logged with the event's uid, then the event
        is buried (group) or skipped. One that raises SystemExit or KeyboardInterrupt stops its watcher, which is
        logged; the program goes on.
        Raises:   BusUnavailable, BusRefused: the bus cannot be opened. BroadcasterStopped.
                  ConfigError: it cannot be opened, or the arguments do not go together.
        """
        if self._stopped:
            raise BroadcasterStopped
        check_handler(handler)
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
        if self._over_http:
            return self._watch_over_http(handler, group, since)
        bus = self._bus.open()
        self._outbox.flush(self.settings.flush_s)
        watcher = bus_watchers.start_watcher(
            bus, handler, group=group, since=since, clock=self._clock, block_ms=self.settings.worker_block_ms
        )
        return self._keep(watcher)

    def start_logging(self, logf: Callable[..., object]) -> Watcher:
        """Log this process's own events, raw, with *logf* (`logger.info`): one line each, client-go's words.

        Raises: ConfigError: *logf* is no such function. BroadcasterStopped.
        """
        check_handler(logf, "the function that logs", "a format and its arguments, like logger.info")
        return self._log(lambda event: log_line(logf, event))

    def start_structured_logging(self, logger: Any = None) -> Watcher:
        """Log this process's own events with key-values through structlog. Message `Event occurred`.

        Raises: ConfigError: *logger* has no method `info`. BroadcasterStopped.
        """
        if logger is None:
            import structlog

            logger = structlog.get_logger("eventbus")
        elif not callable(getattr(logger, "info", None)):
            raise ConfigError(f"the logger must be one of structlog, with a method info; a {_type(logger)} is not")
        return self._log(lambda event: log_structured(logger, event))

    def start_recording_to_sink(
        self,
        sink: EventSink | None = None,
        *,
        start: str = "beginning",
        match: str | Iterable[str] = (),
        repeats: str = "every",
        outage: str = "pause",
        counts: str = "written",
        batch: int = 500,
        rate: float = 0.0,
    ) -> Watcher:
        """Run the store's sink worker in this process, or, with *sink*, an export to it. Returns at once.

        Without *sink* it works as `eventbus worker sink`, with it as `eventbus worker export`, except for the start:
        every sink begins with the stored events, so that it misses no event that this process has recorded. An export
        needs a sink worker somewhere, and closes *sink* at its end.

        Args:   start, match, repeats, outage, batch, rate: of an export, as the command's --from, --match, --repeats,
                --outage, --batch and --rate.
                counts: of an export: `written`, as client-go would have sent them, or `shown`, as readers see them.
        While Redis is away it waits in the background, and the log says so.

        Raises: ConfigError: *sink* is none, or its name or an option is not valid.
                BusRefused: a retry would fail as well; the message names the cure. BroadcasterStopped.
        """
        if self._stopped:
            raise BroadcasterStopped
        if self._over_http:
            raise ConfigError(f"a sink inside a program {_NEEDS_REDIS}")
        block_ms = self.settings.worker_block_ms
        if sink is not None:
            from eventbus.export.rules import make_options

            options = make_options(
                self._clock,
                start=start,
                match=match,
                repeats=repeats,
                outage=outage,
                counts=counts,
                batch_events=batch,
                rate_per_s=rate,
            )
            return self._keep(
                bus_watchers.start_export(
                    sink, options, self._bus.open, clock=self._clock, block_ms=block_ms, losses=self.losses
                )
            )
        return self._keep(
            bus_watchers.start_store_sink(self._bus.open, clock=self._clock, block_ms=block_ms, losses=self.losses)
        )

    def _watch_over_http(self, handler: Handler, group: str | None, since: datetime | None) -> Watcher:
        if group is not None:
            raise ConfigError(f"a watcher of a group {_NEEDS_REDIS}; without a group it may use the API")
        from eventbus.client.watch import RemoteStream

        stream = RemoteStream(parse_api_url(self._url or "", self.settings), since=since)
        self._outbox.flush(self.settings.flush_s)
        watcher = bus_watchers.RemoteWatcher(stream=stream, handler=handler)
        watcher.start()
        return self._keep(watcher)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until Redis has everything recorded before this call. False: not within *timeout_s*."""
        return self._outbox.flush(self.settings.flush_s if timeout_s is None else timeout_s)

    def shutdown(self, timeout_s: float | None = None) -> bool:
        """Send the waiting events, stop every watcher, and stop.

        Idempotent, also while another shutdown is under way, in another thread or in the frame that a signal handler
        has interrupted: each waits for the events, none for the other.
        Blocks for at most *timeout_s* (default 5 s) on the network. Returns whether everything was sent; unsent events
        are counted as `unsent`. Events recorded afterwards are counted as `refused`.
        """
        timeout_s = self.settings.flush_s if timeout_s is None else timeout_s
        deadline = self._clock.monotonic() + timeout_s
        self._stop_taking()
        self._outbox.begin_close(timeout_s)
        sent = self._outbox.close(max(0.0, deadline - self._clock.monotonic()))
        self._local.close()
        for watcher in self._watchers:
            watcher.stop(0)  # ask all to stop, then wait for each
        deadline = max(deadline, self._clock.monotonic() + process_hooks.LAST_HANDLER_S)
        for watcher in self._watchers:
            watcher.stop(max(0.001, deadline - self._clock.monotonic()))
        self.losses.close()
        process_hooks.unregister(self)
        return sent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.shutdown()

    # -- the way of an event -------------------------------------------------------------------------------------

    def _accept(self, pending: Pending) -> None:
        if self._fast_path:
            self._outbox.put(pending)
        else:
            self._distribute(pending)

    def _distribute(self, pending: Pending) -> None:
        if self._stopped:
            self._accept_last(pending)
            return
        if self._loggers_wait:
            self._log_again()
        if self._local.running and not self._local.put(pending):
            self._accept_last(pending)  # it was stopped in another thread, a moment ago
        elif self._publishing:
            self._outbox.put(pending)

    def _accept_last(self, pending: Pending) -> None:
        """Take an event that is recorded after the end has begun."""
        if self._sends_last:
            self._outbox.send(pending)  # until the shutdown's deadline
        else:
            self._refuse(pending)

    def _refuse(self, pending: Pending) -> None:
        shut_down = "the broadcaster is shut down"
        about = pending.reference
        count_call(
            self.losses, "refused", shut_down, shut_down, source=pending.source, obj=about, reason=pending.reason
        )

    def _log(self, handler: Handler) -> Watcher:
        if self._stopped:
            raise BroadcasterStopped
        watcher = self._watch_locally(handler, QUEUE_LENGTH)
        self._loggers.append(watcher)
        return watcher

    def _watch_locally(self, handler: Handler, queue_length: int) -> LocalWatcher:
        watcher = self._keep(self._local.start(handler, queue_length))
        self._fast_path = False
        return watcher

    def _log_again(self) -> None:
        """Restart the loggers at the first event of a forked child: threads do not survive a fork, so the loggers are
        started again."""
        with self._log_lock, suppress(BroadcasterStopped):  # in another thread, a moment ago
            silent, self._silent = self._silent, []
            for handler in silent:
                self._log(handler)
            self._loggers_wait = False

    def _keep(self, watcher: W) -> W:
        process_hooks.keep_alive(self)
        with self._watchers_lock:
            self._watchers = [each for each in self._watchers if not _has_ended(each)] + [watcher]
        if self._stopped:  # shut down by another thread meanwhile
            process_hooks.unregister(self)
            watcher.stop()
            raise BroadcasterStopped
        return watcher

    def _stop_taking(self, *, sends_last: bool = False) -> None:
        """Refuse events recorded from now on, or have their callers send them. The first call decides."""
        if not self._stopped:
            self._sends_last = sends_last
            self._stopped = True
            self._fast_path = False

    def _connect(self) -> Transport:
        if not self._over_http:
            return RedisTransport(self._bus.open())
        with process_hooks.no_fork():  # the imports that it needs, while no thread can fork
            import encodings.idna  # noqa: F401  # resolving a host's name does

            from eventbus.client.transport import open_http_transport
        return open_http_transport(parse_api_url(self._url or "", self.settings))

    def _make_spool(self) -> tuple[Spool, Adopter]:
        from eventbus.record.spool.adopter import make_spool

        return make_spool(
            url=self._url,
            settings=self.settings,
            open_bus=self._bus.open,
            connect=self._connect,
            clock=self._clock,
            losses=self.losses,
        )

    # -- the process's life, for process_hooks.py ----------------------------------------------------------------

    def begin_end(self) -> None:
        """Have everything sent, from a signal handler. Waits for nothing, takes no lock."""
        self._outbox.begin_close(self.settings.flush_s)

    def wait_for_end(self) -> None:
        """Wait until everything is sent, or the time for the end is over."""
        self._outbox.finish()

    @property
    def waiting(self) -> int:
        """Return about how many events are not yet accepted."""
        return self._outbox.waiting

    def end(self) -> None:
        """Shut down because the process exits. Ctrl-C does not shorten it: events are sent until the deadline."""
        self._stop_taking(sends_last=self._publishing)
        interrupted: BaseException | None = None
        self.begin_end()
        while not self._outbox.closed:
            try:
                self._outbox.finish()
            except BaseException as error:  # also any error of a signal handler of the program
                interrupted = interrupted or error
        self.shutdown()
        if interrupted is not None:
            raise interrupted

    def park(self, timeout_s: float) -> None:
        """Keep the flusher between two rounds, before a fork."""
        self._outbox.park(timeout_s)

    def unpark(self) -> None:
        """Let the flusher go on in the parent, after a fork."""
        self._outbox.unpark()

    def after_fork(self) -> None:
        """Start again in the child: an empty buffer, a fresh producer, and no thread or socket of the parent."""
        self._silent += [logger.handler for logger in self._loggers if not logger.stopped]
        self._loggers_wait = bool(self._silent)
        self._fast_path = self._publishing and not self._stopped and not self._silent
        self._local.reset_after_fork()
        self._outbox.reset()
        self._bus.reset()
        self._log_lock = threading.RLock()
        self._watchers, self._loggers = [], []
        self._watchers_lock = threading.Lock()
        self.losses.reset()

    def count_forgotten(self) -> None:
        """Count the events that the outbox held at the fork as lost, after a fork that Python did not see."""
        self._outbox.count_forgotten()


def _checked_url(url: str | None, settings: Settings) -> str | None:
    """Return the url of the bus: *url*, else that of *settings*; None: the embedded server's. Raises: ConfigError."""
    if not isinstance(settings, Settings):
        raise ConfigError(f"settings must be eventbus.Settings, or left out; a {_type(settings)} is not")
    if not isinstance(url, str | None):
        raise ConfigError(f"the url of the bus must be a string, like redis://localhost:6379/0; a {_type(url)} is not")
    chosen = url or settings.url or settings.redis_url
    if chosen and chosen.lower() != "none":
        if chosen == settings.url or (url and is_api_url(url)):
            parse_api_url(chosen, settings)
        else:
            parse_address(chosen)  # it refuses the URL of an API worker, as the commands do
    return chosen or None


def _type(value: object) -> str:
    return type(value).__name__


def _has_ended(watcher: Watcher) -> bool:
    """Return True if the watcher can be forgotten. A sink's runner is kept until the end.

    A program may start and stop watchers all its life."""
    return bool(getattr(watcher, "ended", False))


class LazyBus:
    """Opens the bus at *url* (None: of the environment, else the embedded server's) once. Thread-safe."""

    def __init__(self, url: str | None, settings: Settings) -> None:
        self._url = url
        self._settings = settings
        self.reset()

    def __str__(self) -> str:
        """Return its name for messages, without the password."""
        from eventbus.broker.connection.address import safe_url

        return safe_url(self._url) if self._url else "the bus of the environment"

    def reset(self) -> None:
        """Forget the open bus: when made, and in a child after fork."""
        self._lock = threading.Lock()
        self._bus: Bus | None = None

    def open(self) -> Bus:
        """Return the bus; the first call imports redis and opens it.

        Raises: BusUnavailable: no answer; call again. BusRefused, ConfigError: the message names the cure.
        """
        with self._lock:
            if self._bus is None:
                _import_all()
                from eventbus.broker.bus import open_bus
                from eventbus.broker.connection.connect import resolve_url

                url = resolve_url(self._url, self._settings)
                if url is None:
                    raise ConfigError("no bus is configured (EVENTBUS_REDIS_URL=none)")
                self._bus = open_bus(url, self._settings)
            return self._bus


def _import_all() -> None:
    """Import every module that the way to Redis needs, while no thread can fork."""
    with process_hooks.no_fork():
        import encodings.idna  # noqa: F401  # needed to resolve a host's name
        import secrets  # noqa: F401  # needed for the first client of redis

        import redis  # noqa: F401

        import eventbus.broker.bus
        import eventbus.broker.connection.cluster
        import eventbus.broker.embedded.server  # noqa: F401
