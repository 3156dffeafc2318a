"""Runs the parts of `eventbus up`: the bus, its workers, and the programs of a Procfile."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Self

from eventbus.agent.node.bus_contact import BusContact
from eventbus.agent.procfile.orphaned_processes import LINES, PAGE_FILE, read_page
from eventbus.agent.procfile.procfile import RESERVED, line_name, line_pod, ports_of, procfile_pods
from eventbus.agent.procfile.procfile_runner import ProcfileRunner, Screen
from eventbus.agent.runtime.restart_backoff import RestartBackoff
from eventbus.broker import function_library
from eventbus.broker.bus import Bus, open_bus, read_options
from eventbus.broker.connection.address import parse_address as parse_redis_url
from eventbus.broker.connection.address import safe_url
from eventbus.broker.connection.connect import Client, connect
from eventbus.broker.embedded.server import EmbeddedServer, default_directory
from eventbus.broker.embedded.server_process import other_user_of, take_reference
from eventbus.broker.function_library import prune
from eventbus.cli.process.signal_queue import ENDING, JOB_CONTROL, SignalQueue, passed_on
from eventbus.cli.session import find_url
from eventbus.consume.consumer import consumer_name
from eventbus.errors import BusRefused, BusReplaced, BusUnavailable, ConfigError, EventBusError
from eventbus.model.event import ObjectReference
from eventbus.model.objects.pod import Pod
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock
from eventbus.util.extras import has_extra, is_needed
from eventbus.util.log import log
from eventbus.util.periodic import Periodic
from eventbus.util.text import printable
from eventbus.workers.metrics_server import parse_address
from eventbus.workers.parent_watch import ParentPipe
from eventbus.workers.up_output import PrefixedOutput
from eventbus.workers.worker import NAMESPACE, WorkerEvents

COMPONENT = "eventbus-up"
WORKERS = ("log", "sink", "lifecycle", "agent")
#: Extra → the features that are missing without it.
OPTIONAL = {"api": "no page and no API", "agent": "no node, so this machine is not measured"}
API = "api"
SERVER = ObjectReference("Process", NAMESPACE, "server")
#: Value of `--api` for no API.
NO_API = "none"
#: Seconds to wait after a worker's drain. A worker exits by itself when its drain ends.
DRAIN_MARGIN_S = 2.0
#: Seconds between two checks, during the run and at the end. Signals interrupt the wait.
LOOK_EVERY_S, LOOK_AT_ENDS_S = 1.0, 0.05
#: Seconds before a retry after a failure to show pods on the bus.
REFUSED_FOR_S = 60.0
#: The page's address is printed last: after each worker has printed a line and SILENT_S seconds without output, or
#: after PAGE_WITHIN_S seconds at the latest.
SILENT_S, PAGE_WITHIN_S = 1.0, 5.0
#: Matches a routine line of a worker: a log record below WARNING, or an event that the worker log prints.
_ROUTINE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T\S+ (?: |(?:DEBUG|INFO) )")
#: Seconds to flush our own events before each stage of the shutdown, and at the end.
FLUSH_S = 1.0


class UpRun:
    """Builds and runs the parts of one `up`. A context manager: it starts with the bus, and ends with it.

    Raises: ConfigError, BusUnavailable: the bus cannot be opened.
    """

    def __init__(
        self,
        settings: Settings,
        commands: Mapping[str, str],
        state_dir: str | None,
        ports: Mapping[str, Sequence[str]],
        api: Sequence[str] | None,
        make_backoff: Callable[[], RestartBackoff],
        *,
        quiet: bool = False,
    ) -> None:
        self._settings = settings
        self._commands = commands
        ports_of(commands, os.environ)  # a wrong PORT is reported before anything starts
        self._ports = ports
        self._api = api
        self._make_backoff = make_backoff
        self._signals = SignalQueue(passed_on() - JOB_CONTROL, tell_terminal=False)
        self._stop_asked = self._stopping = False
        names = [RESERVED, *dict.fromkeys([*WORKERS, API, *commands])]
        self._output = PrefixedOutput(names, broken=self._stop)
        self._screen = _OnOutput(self._output, hidden=[*WORKERS, API] if quiet else ())
        self._report = self._screen.report
        self._page_reported = False
        self._page_since: float | None = None
        self._directory = Path(state_dir) if state_dir else default_directory(os.environ)
        self._keeper = None if settings.redis_url else self._make_keeper()
        self._way_in = ""
        if self._keeper and state_dir:
            self._way_in = f" (elsewhere: export EVENTBUS_STATE_DIR={Path(state_dir).absolute()})"

    def __enter__(self) -> Self:
        with ExitStack() as ends:
            ends.callback(self._output.finish)
            _log_with(self._report, self._settings.log_level or "warning")
            self._begin(ends)
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ends.close()

    def _begin(self, ends: ExitStack) -> None:
        """Start the parts in order. *ends* gets a callback to stop each part, in case a later one fails."""
        if self._keeper:
            ends.callback(self._keeper.stop)
        self._url = url = self._keeper.start() if self._keeper else find_url(self._settings)
        self._claim(url, ends)
        if self._keeper and (other := self._keeper.other) is not None:
            place = f"process {other}" if other else "in a container"
            self._report(f"another eventbus up ({place}) uses this server too")
        self._report(f"bus: {safe_url(url)}" + self._way_in)
        if self._keeper:
            self._look_after_functions(url)
        self._broadcaster = EventBroadcaster(url, settings=self._settings)
        ends.callback(self._broadcaster.shutdown, FLUSH_S)
        self._recorder = self._broadcaster.new_recorder(COMPONENT)
        self._events = WorkerEvents(self._recorder, consumer_name())
        self._events.write("Starting", f"Starting {COMPONENT}.")
        ends.callback(self._write_stopping)
        try:
            self._begin_pods(ends)
        except OSError as error:
            raise ConfigError(f"{self._directory / LINES} cannot be used: {error.strerror or error}") from error

    def _claim(self, url: str, ends: ExitStack) -> None:
        """Raises: ConfigError: another `up` runs for the bus at *url*: each would replace the pods of the other."""
        claim = claim_bus(f"{place_of(url)} {self._settings.prefix}")
        if isinstance(claim, str):
            cure = "stop it, or use another bus: eventbus up --state-dir FOLDER, or EVENTBUS_REDIS_URL"
            raise ConfigError(f"`eventbus up` already runs for this bus ({claim}; `eventbus status` shows it): {cure}")
        ends.callback(claim.close)

    def _look_after_functions(self, url: str) -> None:
        """Load this build's functions on our own server, and delete unused functions of other builds."""
        with connect(url, name="eventbus-up") as client:
            function_library.load(client)
            for name in prune(client):
                log.info("deleted the functions of another build, which no process uses: library %s", name)

    def _begin_pods(self, ends: ExitStack) -> None:
        self._pods = ProcfileRunner(
            self._directory / LINES,
            events=self._recorder,
            screen=self._screen,
            clock=SystemClock(),
            backoff=self._make_backoff(),
        )
        ends.callback(self._pods.close)
        (self._pods.folder / PAGE_FILE).unlink(missing_ok=True)  # left by a killed `up`; its API worker has ended
        self._lifeline = ParentPipe(self._pods.folder)
        ends.callback(self._lifeline.close)
        ends.callback(self._pods.kill)
        self._pods.start()
        self._link = _BusLink(self._pods, self._url, self._settings, on_change=self._events.on_change())
        ends.callback(self._link.stop, FLUSH_S)
        self._link.start()

    def run(self) -> bool:
        """Run until a signal requests the end, then stop the Procfile's lines first and the workers second.

        So programs that record events end before the workers that store them.

        Returns: True if all processes exited in time; False: some had to be killed.
        Raises:  KeyboardInterrupt: a second signal arrived, and all processes were killed.
        """
        try:
            workers, lines = self._make_lines()
        except EventBusError as error:
            raise ConfigError(str(error)) from error
        for extra in missing_extras(self._commands, self._api):
            self._report(f"{OPTIONAL[extra]}: {is_needed(extra)}")
        self._pods.add([*workers, *lines])
        while not self._stop_asked and not self._output.is_broken:
            self._stop_asked = self._asked_to_end(LOOK_EVERY_S)
            if self._keeper:
                self._keeper.look()
            if not self._page_reported:
                self._look_for_page([*map(line_name, workers)])
        self._say_stopping()
        ended = []
        for stage in (lines, workers):
            self._broadcaster.flush(FLUSH_S)
            ended.append(self._end(self._pods, [*map(line_name, stage)]))
        return all(ended)

    def _make_keeper(self) -> ServerKeeper:
        return ServerKeeper(
            EmbeddedServer(self._directory),
            backoff=self._make_backoff(),
            report=self._report,
            note=lambda *fields: self._recorder.event(SERVER, *fields),
        )

    def _make_lines(self) -> tuple[list[Pod], list[Pod]]:
        """Make the workers, and the lines of the Procfile. A line with the name of a worker replaces it."""
        environ = environment(os.environ, self._url)
        python = (sys.executable, "-P", "-m", "eventbus", "worker")
        workers = {name: (*python, name, *self._ports[name]) for name in WORKERS}
        if self._api is not None:
            workers[API] = (*python, API, *self._api, "--page-file", str((self._pods.folder / PAGE_FILE).absolute()))
        for extra in missing_extras(self._commands, self._api):
            workers.pop(extra, None)
        lines = procfile_pods(self._commands, Path.cwd(), environ)
        tied = environ | self._lifeline.environ
        ours = [
            line_pod(name, words, tied, Path.cwd(), namespace=NAMESPACE)
            for name, words in workers.items()
            if name not in self._commands
        ]
        replaced = [line for line in lines if line_name(line) in (*WORKERS, API)]
        return [*ours, *replaced], [line for line in lines if line not in replaced]

    def _end(self, pods: ProcfileRunner, names: Sequence[str]) -> bool:
        """Stop *names* in parallel, and wait for all; False: a process had to be killed."""
        pods.ask_to_end(names, self._settings.drain_s + DRAIN_MARGIN_S)
        while not pods.have_ended(names):
            if self._asked_to_end(LOOK_AT_ENDS_S):
                pods.kill()
                raise KeyboardInterrupt
        return not pods.was_killed(names)

    def _asked_to_end(self, within_s: float) -> bool:
        received = self._signals.wait(within_s)
        if received is not None and received.number == signal.SIGUSR1:
            self._report_page(self._read_page())
        return received is not None and received.number in ENDING

    def _read_page(self) -> str:
        page = read_page(self._pods.folder / PAGE_FILE)
        return page.page if page is not None else ""

    def _look_for_page(self, workers: Sequence[str]) -> None:
        """Print the page's address after the output of the start."""
        page, now = self._read_page(), time.monotonic()
        if not page:
            return
        self._page_since = now if self._page_since is None else self._page_since
        is_calm = self._screen.has_printed(workers) and now - self._screen.last_line >= SILENT_S
        if is_calm or now - self._page_since >= PAGE_WITHIN_S:
            self._page_reported = True
            self._report_page(page)

    def _report_page(self, page: str) -> None:
        self._report(
            f"the web page is at {page}" if page else "no web page: the API worker of this `up` does not answer"
        )

    def _say_stopping(self) -> None:
        self._output.hurry()
        self._report("stopping; Ctrl-C again ends everything at once")
        self._link.stop(0.0)  # the server is about to stop
        self._write_stopping()

    def _write_stopping(self) -> None:
        """Record Stopping once: when the shutdown starts, or when a part does not start."""
        if not self._stopping:
            self._stopping = True
            self._events.write("Stopping", f"Stopping {COMPONENT}.")

    def _stop(self) -> None:
        self._stop_asked = True
        self._signals.wake()


def place_of(url: str) -> str:
    """Return where the server of *url* is: the same for each way to write its host, and without a user.

    Raises: ConfigError: the url cannot be used.
    """
    address = parse_redis_url(url)
    places = {f"{host}:{endpoint.port}" for endpoint in address.endpoints for host in _addresses(endpoint.host)}
    if address.socket:
        places.add(os.path.realpath(address.socket))
    return f"{' '.join(sorted(places))} {address.primary}/{address.database}"


def _addresses(host: str) -> set[str]:
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return {host}
    # Other servers may listen at 127.0.0.2.
    return {"localhost" if each in ("127.0.0.1", "::1") else each for each in found}


def claim_bus(bus: str) -> socket.socket | str:
    """Claim the bus of that name for the `up` of this process, until the socket is closed.

    A name of the kernel and no file, because another `up` of this user may have any state folder.

    Returns: the claim; or the process that has it.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The first `up` accepts no connection: the kernel queues those that asked for its process, until it ends.
    claim.setblocking(False)
    address = f"\0eventbus-up-{os.geteuid()}-{sha256(bus.encode('utf-8', 'replace')).hexdigest()}"
    try:
        claim.bind(address)
        claim.listen()
    except OSError:
        try:
            claim.connect(address)
        except BlockingIOError:  # the queue is full
            claim.close()
            return "another process"
        except OSError:  # it has ended in this moment
            return claim
        pid, uid, _ = struct.unpack(
            "3i", claim.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        )
        if uid == os.geteuid():
            claim.close()
            return f"process {pid}"
    return claim


class _BusLink:
    """Checks once a second, in a thread of its own, that the bus answers, and shows the processes as pods there.

    The workers create the bus; until then, and after an outage, it tries again. Outages of less than a second go
    unnoticed.

    Args: on_change: called with `LostRedis` and the error, and with `Reconnected`, as by consumers.
    """

    def __init__(
        self, pods: ProcfileRunner, url: str, settings: Settings, *, on_change: Callable[[str, str], object]
    ) -> None:
        self._pods = pods
        self._url = url
        self._settings = settings
        self._contact = BusContact(SystemClock(), on_change)
        self._client: Client | None = None
        self._bus: Bus | None = None
        self._store: ObjectStore | None = None
        self._problem = ""
        self._refused_until = 0.0
        self._stopped = False
        self._checks = Periodic(self._check, every_s=LOOK_EVERY_S, name="eventbus-up-bus")

    def start(self) -> None:
        self._checks.start()

    def stop(self, timeout_s: float) -> None:
        """Stop the checks, and wait for the current one. The pods stay on the bus until they are closed."""
        self._stopped = True
        self._checks.stop(timeout_s)

    def _check(self) -> None:
        try:
            if self._client is None:
                self._client = connect(self._url, name="eventbus-up")
            exists = read_options(self._client, self._settings.prefix) is not None
        except EventBusError as error:
            if not self._stopped:
                self._contact.lost(error)
            return
        self._contact.answered()
        if time.monotonic() >= self._refused_until:
            self._show(self._client, exists=exists)

    def _show(self, client: Client, *, exists: bool) -> None:
        try:
            if self._bus is not None:
                self._bus.revalidate(client)
            elif exists:
                self._open()
        except BusReplaced:
            self._pods.hide()
            if self._store is not None:
                self._store.close()
            self._bus = self._store = None
        except BusUnavailable:
            pass  # the next check reports it
        except EventBusError as error:
            if str(error) != self._problem:
                needs = " (this needs the role operator as well)" if isinstance(error, BusRefused) else ""
                log.warning("`eventbus get pods` does not show these processes: %s%s", error, needs)
            self._problem = str(error)
            self._refused_until = time.monotonic() + REFUSED_FOR_S

    def _open(self) -> None:
        bus = open_bus(self._url, self._settings)
        store = ObjectStore.of(bus)
        try:
            self._pods.show(store)
        except EventBusError:
            store.close()
            raise
        self._bus, self._store = bus, store


class _OnOutput(Screen):
    """Writes to our own output.

    Args: hidden: names of processes; their routine lines are only in `eventbus logs`.
    """

    def __init__(self, output: PrefixedOutput, *, hidden: Collection[str] = ()) -> None:
        self._output = output
        self._hidden = frozenset(hidden)
        self._printed: set[str] = set()
        self.last_line = time.monotonic()

    def has_printed(self, names: Iterable[str]) -> bool:
        """Return True if each of *names* has printed a line."""
        return self._printed.issuperset(names)

    def write(self, name: str, line: bytes) -> None:
        self._printed.add(name)
        if name in self._hidden and _ROUTINE.match(line):
            return
        self.last_line = time.monotonic()
        self._output.write(name, line)

    def report(self, line: str) -> None:
        self._output.say(RESERVED, printable(line).encode("utf-8", "replace"))


def missing_extras(commands: Mapping[str, str], api: Sequence[str] | None) -> list[str]:
    """Return the extras that are not installed. `up` omits the workers that need them."""
    return [
        name for name in OPTIONAL if name not in commands and not has_extra(name) and (name != API or api is not None)
    ]


def metrics_options(metrics: str) -> dict[str, list[str]]:
    """Return the `--metrics-port` of each worker, with consecutive ports. Raises: ConfigError."""
    if not metrics:
        return {name: [] for name in WORKERS}
    if not has_extra("metrics"):
        raise ConfigError(f"--metrics-port: {is_needed('metrics')}")
    host, first = parse_address(metrics)
    # 0 is any free port, for every worker.
    ports = {name: first and first + place for place, name in enumerate(WORKERS)}
    addresses = {name: f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for name, port in ports.items()}
    for address in addresses.values():
        parse_address(address)
    return {name: ["--metrics-port", address] for name, address in addresses.items()}


def api_options(api: str) -> list[str] | None:
    """Return the options of the worker api; None: do not run it. Raises: ConfigError."""
    if api == NO_API:
        return None
    if api and not has_extra(API):
        raise ConfigError(f"--api {api}: {is_needed(API)}")
    return ["--listen", api] if api else ["--any-port"]


def environment(environ: Mapping[str, str], url: str) -> dict[str, str]:
    """Return the environment of every process: the bus, `eventbus` on PATH, and unbuffered Python output."""
    path = environ.get("PATH", os.defpath)
    if shutil.which("eventbus", path=path) is None:
        path = os.pathsep.join((path, str(Path(sys.executable).parent)))
    return {"PYTHONUNBUFFERED": "1"} | dict(environ) | {"EVENTBUS_REDIS_URL": url, "PATH": path}


def _log_with(report: Callable[[str], object], level: str) -> None:
    """Print the library's log as our own lines."""
    logger = logging.getLogger("eventbus")
    logger.setLevel(level.upper())
    logger.addHandler(_Teller(report))
    logger.propagate = False


class _Teller(logging.Handler):
    def __init__(self, report: Callable[[str], object]) -> None:
        super().__init__(logging.INFO)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report(record.getMessage())


_KEY = "server"


class ServerKeeper:
    """Starts the server, restarts it when it has exited, and stops it unless it was already running.

    The first restart is immediate, because any other command would do the same. Later restarts back off.

    Args: report: prints a line.  note: records (type, reason, message).
    """

    def __init__(
        self,
        server: EmbeddedServer,
        *,
        backoff: RestartBackoff,
        report: Callable[[str], object],
        note: Callable[[str, str, str], object],
    ) -> None:
        self._server = server
        self._backoff = backoff
        self._report = report
        self._note = note
        self._ours = not server.running()
        self._gone_s = 0.0  # time of the exit, seconds since 1970; 0.0: it runs
        self.other = other_user_of(server.directory)  #: the process of an `up` that uses the server already
        self._reference: int | None = None

    def start(self) -> str:
        """Find or start the server; return its url. Raises: ConfigError, BusUnavailable: see `EmbeddedServer.start`."""
        url = self._server.start()
        if self._reference is None:  # from now on `eventbus down` would have no effect
            self._reference = take_reference(self._server.directory)
        return url

    def look(self) -> None:
        """Restart the server if it has exited and its back-off is over."""
        if self._running():
            return
        self._gone_s = self._gone_s or self._backoff.now_s()
        if self._backoff.left_s(_KEY, self._gone_s):
            return
        self._backoff.next(_KEY, self._gone_s)
        self._gone_s = 0.0
        self._report("the embedded server has exited; starting it again")
        self._note("Warning", "Failed", "the embedded server had exited")
        try:
            self.start()
        except EventBusError as error:
            self._report(f"the embedded server does not start: {error}")
        else:
            self._ours = True
            self._note("Normal", "Started", "Started the embedded server again")

    def _running(self) -> bool:
        try:
            return self._server.running()
        except EventBusError:
            return True  # without the right to check, a restart would fail too

    def stop(self) -> None:
        """Stop the server, unless another process had started it."""
        if self._ours:
            self._server.stop()
        if self._reference is not None:
            os.close(self._reference)
            self._reference = None
