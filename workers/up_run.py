"""All that `eventbus up` runs: the bus, its workers, and the programs of a Procfile."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from eventbus.agent.pods.left_lines import LINES, PAGE_FILE, read_page
from eventbus.agent.pods.procfile_runner import Line, ProcfileRunner, Screen
from eventbus.agent.runtime.restart_backoff import RestartBackoff
from eventbus.broker import function_library
from eventbus.broker.builds import prune
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import Client, connect, safe_url
from eventbus.broker.embedded.server import EmbeddedServer, default_directory
from eventbus.broker.options import read_options
from eventbus.cli.session import find_url
from eventbus.clock import SystemClock
from eventbus.consume.consumer import consumer_name
from eventbus.errors import BusRefused, BusReplaced, BusUnavailable, ConfigError, EventBusError
from eventbus.event import ObjectReference
from eventbus.extras import has_extra, is_needed
from eventbus.log import log
from eventbus.periodic import Periodic
from eventbus.process.prefixed import PrefixedOutput
from eventbus.process.procfile import RESERVED, ports_of
from eventbus.process.signal_queue import ENDING, JOB_CONTROL, SignalQueue, passed_on
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from eventbus.text import printable
from eventbus.workers.bus_watch import BusWatch
from eventbus.workers.metrics import parse_address
from eventbus.workers.parent_watch import ParentPipe
from eventbus.workers.server_keeper import ServerKeeper
from eventbus.workers.worker import NAMESPACE, WorkerEvents

COMPONENT = "eventbus-up"
WORKERS = ("log", "sink", "lifecycle", "agent")
#: Extra → what there is not without it.
OPTIONAL = {"api": "no page and no API", "agent": "no node, so this machine is not measured"}
API = "api"
SERVER = ObjectReference("Process", NAMESPACE, "server")
#: Of `--api`: no API at all.
NO_API = "none"
#: A worker ends by itself after its own drain; it is given a little longer.
DRAIN_MARGIN_S = 2.0
#: Signals end the wait; what sends none is looked at so often, seconds.
LOOK_EVERY_S, LOOK_AT_ENDS_S = 1.0, 0.05
#: Who may not show pods on the bus tries it again so seldom, seconds.
REFUSED_FOR_S = 60.0
#: The page's address comes last: once every worker has said something and nothing more came for so long, or after so
#: long at the latest, seconds.
SILENT_S, PAGE_WITHIN_S = 1.0, 5.0
#: Of a worker's line: it is routine, a record of its log below WARNING, or an event that the worker log shows.
_ROUTINE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T\S+ (?: |(?:DEBUG|INFO) )")
#: Our own events get so long before each stage is ended, and at the end.
FLUSH_S = 1.0


class UpRun:
    """One `up`: its parts, wired. A context manager, which begins with the bus and ends with it.

    Raises: ConfigError, BusUnavailable: there is no bus to be had.
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
        self._line_ports = ports_of(commands, os.environ)
        self._ports = ports
        self._api = api
        self._make_backoff = make_backoff
        self._signals = SignalQueue(passed_on() - JOB_CONTROL, tell_terminal=False)
        self._stop_asked = self._stopping = False
        names = [RESERVED, *dict.fromkeys([*WORKERS, API, *commands])]
        self._output = PrefixedOutput(names, broken=self._stop)
        self._screen = _OnOutput(self._output, hidden=[*WORKERS, API] if quiet else ())
        self._page_told = False
        self._page_since: float | None = None
        self._directory = Path(state_dir) if state_dir else default_directory(os.environ)
        self._keeper = None if settings.redis_url else self._make_keeper()
        self._way_in = ""
        if self._keeper and state_dir:
            self._way_in = f" (elsewhere: export EVENTBUS_STATE_DIR={Path(state_dir).absolute()})"

    def __enter__(self) -> Self:
        with ExitStack() as ends:
            ends.callback(self._output.finish)
            _log_with(self._tell)
            self._begin(ends)
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ends.close()

    def _begin(self, ends: ExitStack) -> None:
        """Begin one part after the other; *ends* has what ends each of them, should the next one fail."""
        if self._keeper:
            ends.callback(self._keeper.stop)
        self._url = url = self._keeper.start() if self._keeper else find_url(self._settings)
        self._tell(f"bus: {safe_url(url)}" + self._way_in)
        if self._keeper:
            self._look_after_functions(url)
        self._broadcaster = EventBroadcaster(url, settings=self._settings)
        ends.callback(self._broadcaster.shutdown, FLUSH_S)
        self._recorder = self._broadcaster.new_recorder(COMPONENT)
        self._events = WorkerEvents(self._recorder, consumer_name())
        self._events.write("Starting", f"Starting {COMPONENT}.")
        ends.callback(self._write_stopping)
        self._watch = BusWatch(url, self._settings.prefix, on_change=self._events.on_change())
        self._watch.start()
        ends.callback(self._watch.stop)
        try:
            self._begin_pods(ends)
        except OSError as error:
            raise ConfigError(f"{self._directory / LINES} cannot be used: {error.strerror or error}") from error

    def _look_after_functions(self, url: str) -> None:
        """Load this build's functions on our own server, and delete those of others that nobody uses."""
        with connect(url, name="eventbus-up") as client:
            function_library.load(client)
            for name in prune(client, unknown=True):
                log.info("deleted the functions of another build, which nobody uses: library %s", name)

    def _begin_pods(self, ends: ExitStack) -> None:
        self._pods = ProcfileRunner(
            self._directory / LINES,
            events=self._recorder,
            screen=self._screen,
            clock=SystemClock(),
            backoff=self._make_backoff(),
        )
        ends.callback(self._pods.close)
        (self._pods.folder / PAGE_FILE).unlink(missing_ok=True)  # of a killed one, whose API worker has ended
        self._lifeline = ParentPipe(self._pods.folder)
        ends.callback(self._lifeline.close)
        ends.callback(self._pods.kill)
        self._pods.start()
        self._shown = _ShownPods(self._pods, self._url, self._settings)
        ends.callback(self._shown.stop)

    def run(self) -> bool:
        """Run until a signal that asks to end, then end everything: the Procfile's lines first, then the workers.

        Programs that record end before workers that store.

        Returns: whether every process ended by itself; False: some had to be killed.
        Raises:  KeyboardInterrupt: a second signal; everything was killed.
        """
        workers, lines = self._make_lines()
        for extra in missing_extras(self._commands, self._api):
            self._tell(f"{OPTIONAL[extra]}: {is_needed(extra)}")
        try:
            self._pods.add([*workers, *lines])
        except EventBusError as error:
            raise ConfigError(str(error)) from error
        self._shown.start()
        while not self._stop_asked and not self._output.is_broken:
            self._stop_asked = self._asked_to_end(LOOK_EVERY_S)
            if self._keeper:
                self._keeper.look()
            if not self._page_told:
                self._look_for_page([line.name for line in workers])
        self._say_stopping()
        ended = []
        for stage in (lines, workers):
            self._broadcaster.flush(FLUSH_S)
            ended.append(self._end(self._pods, [line.name for line in stage]))
        return all(ended)

    def _make_keeper(self) -> ServerKeeper:
        return ServerKeeper(
            EmbeddedServer(self._directory),
            backoff=self._make_backoff(),
            tell=self._tell,
            note=lambda *said: self._recorder.event(SERVER, *said),
        )

    def _make_lines(self) -> tuple[list[Line], list[Line]]:
        """Make the workers, and the lines of the Procfile; a line that is named as a worker is one."""
        environ = environment(os.environ, self._url)
        python = (sys.executable, "-P", "-m", "eventbus", "worker")
        workers = {name: (*python, name, *self._ports[name]) for name in WORKERS}
        if self._api is not None:
            workers[API] = (*python, API, *self._api, "--page-file", str((self._pods.folder / PAGE_FILE).absolute()))
        for extra in missing_extras(self._commands, self._api):
            workers.pop(extra, None)
        lines = [
            Line(name, ("/bin/sh", "-c", command), environ | {"PORT": self._line_ports[name]})
            for name, command in self._commands.items()
        ]
        tied = environ | self._lifeline.environ
        ours = [Line(name, words, tied, NAMESPACE) for name, words in workers.items() if name not in self._commands]
        replaced = [line for line in lines if line.name in (*WORKERS, API)]
        return [*ours, *replaced], [line for line in lines if line.name not in (*WORKERS, API)]

    def _end(self, pods: ProcfileRunner, names: Sequence[str]) -> bool:
        """End *names*, which takes as long as the slowest of them; False: one had to be killed."""
        pods.ask_to_end(names, self._settings.drain_s + DRAIN_MARGIN_S)
        while not pods.have_ended(names):
            if self._asked_to_end(LOOK_AT_ENDS_S):
                pods.kill()
                raise KeyboardInterrupt
        return not pods.was_killed(names)

    def _asked_to_end(self, within_s: float) -> bool:
        caught = self._signals.wait(within_s)
        if caught is not None and caught.number == signal.SIGUSR1:
            self._tell_page(self._read_page())
        return caught is not None and caught.number in ENDING

    def _read_page(self) -> str:
        page = read_page(self._pods.folder / PAGE_FILE)
        return page.page if page is not None else ""

    def _look_for_page(self, workers: Sequence[str]) -> None:
        """Tell the page's address at the end of what is said at the start."""
        page, now = self._read_page(), time.monotonic()
        if not page:
            return
        self._page_since = now if self._page_since is None else self._page_since
        is_calm = self._screen.has_heard(workers) and now - self._screen.last_line >= SILENT_S
        if is_calm or now - self._page_since >= PAGE_WITHIN_S:
            self._page_told = True
            self._tell_page(page)

    def _tell_page(self, page: str) -> None:
        self._tell(f"a page to look at: {page}" if page else "no page: no API worker of this `up` answers")

    def _tell(self, line: str) -> None:
        self._output.say(RESERVED, printable(line).encode("utf-8", "replace"))

    def _say_stopping(self) -> None:
        self._output.hurry()
        self._tell("stopping; Ctrl-C again ends at once")
        self._watch.stop()  # the server is about to go
        self._write_stopping()

    def _write_stopping(self) -> None:
        """Record it once: when the end begins, or when something does not start."""
        if not self._stopping:
            self._stopping = True
            self._events.write("Stopping", f"Stopping {COMPONENT}.")

    def _stop(self) -> None:
        self._stop_asked = True
        self._signals.wake()


class _ShownPods:
    """Shows what runs here as pods on the bus, for `eventbus get pods`, once the workers have made it.

    In a thread of its own: a bus that is away holds up nothing.
    """

    def __init__(self, pods: ProcfileRunner, url: str, settings: Settings) -> None:
        self._pods = pods
        self._url = url
        self._settings = settings
        self._client: Client | None = None
        self._bus: Bus | None = None
        self._store: ObjectStore | None = None
        self._problem = ""
        self._next_look = 0.0
        self._looks = Periodic(self._look, every_s=LOOK_EVERY_S, name="eventbus-up-pods")

    def start(self) -> None:
        self._looks.start()

    def stop(self) -> None:
        """Look no more; what is shown stays until the pods are closed. A bus that does not answer is not waited for."""
        self._looks.stop(FLUSH_S)

    def _look(self) -> None:
        if time.monotonic() < self._next_look:
            return
        try:
            if self._client is None:
                self._client = connect(self._url, name="eventbus-up")
            if self._bus is not None:
                self._bus.look_again(self._client)
            elif read_options(self._client, self._settings.prefix) is not None:
                self._open()
        except BusReplaced:
            self._pods.hide()
            if self._store is not None:
                self._store.close()
            self._bus = self._store = None
        except BusUnavailable:
            pass  # the workers wait for it as well, and say so
        except EventBusError as error:
            if str(error) != self._problem:
                needs = " (that takes the role operator as well)" if isinstance(error, BusRefused) else ""
                log.warning("`eventbus get pods` does not show what runs here: %s%s", error, needs)
            self._problem = str(error)
            self._next_look = time.monotonic() + REFUSED_FOR_S

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
    """Our own output.

    Args: hidden: those whose routine lines are not shown; `eventbus logs` has them.
    """

    def __init__(self, output: PrefixedOutput, *, hidden: Collection[str] = ()) -> None:
        self._output = output
        self._hidden = frozenset(hidden)
        self._heard: set[str] = set()
        self.last_line = time.monotonic()

    def has_heard(self, names: Iterable[str]) -> bool:
        """Return True if each of *names* has printed something."""
        return self._heard.issuperset(names)

    def write(self, name: str, line: bytes) -> None:
        self._heard.add(name)
        if name in self._hidden and _ROUTINE.match(line):
            return
        self.last_line = time.monotonic()
        self._output.write(name, line)

    def tell(self, line: str) -> None:
        self._output.say(RESERVED, printable(line).encode("utf-8", "replace"))


def missing_extras(commands: Mapping[str, str], api: Sequence[str] | None) -> list[str]:
    """Return the extras that are not installed, of the workers that `up` then leaves out."""
    return [
        name for name in OPTIONAL if name not in commands and not has_extra(name) and (name != API or api is not None)
    ]


def metrics_options(metrics: str) -> dict[str, list[str]]:
    """Return each worker's own `--metrics-port`, one number after the other. Raises: ConfigError."""
    if not metrics:
        return {name: [] for name in WORKERS}
    if not has_extra("metrics"):
        raise ConfigError(f"--metrics-port: {is_needed('metrics')}")
    host, first = parse_address(metrics)
    # 0 is any free port, also for the next one.
    ports = {name: first and first + place for place, name in enumerate(WORKERS)}
    addresses = {name: f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for name, port in ports.items()}
    for address in addresses.values():
        parse_address(address)
    return {name: ["--metrics-port", address] for name, address in addresses.items()}


def api_options(api: str) -> list[str] | None:
    """Return the options of the worker api; None: it is not wanted. Raises: ConfigError."""
    if api == NO_API:
        return None
    if api and not has_extra(API):
        raise ConfigError(f"--api {api}: {is_needed(API)}")
    return ["--listen", api] if api else ["--any-port"]


def environment(environ: Mapping[str, str], url: str) -> dict[str, str]:
    """Return the environment of every process: the bus, `eventbus` on PATH, and a Python that buffers no lines."""
    path = environ.get("PATH", os.defpath)
    if shutil.which("eventbus", path=path) is None:
        path = os.pathsep.join((path, str(Path(sys.executable).parent)))
    return {"PYTHONUNBUFFERED": "1"} | dict(environ) | {"EVENTBUS_REDIS_URL": url, "PATH": path}


def _log_with(tell: Callable[[str], object]) -> None:
    """Have the library's log printed as lines of ours."""
    logger = logging.getLogger("eventbus")
    logger.addHandler(_Teller(tell))
    logger.propagate = False


class _Teller(logging.Handler):
    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__(logging.INFO)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())
