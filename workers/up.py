"""`eventbus up`: a bus, its workers and the programs of a Procfile in one foreground command."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import click

from eventbus.broker.connection.client import safe_url
from eventbus.broker.embedded.server import EmbeddedServer, default_directory
from eventbus.cli.input.finite import Finite
from eventbus.cli.session import find_url
from eventbus.clock import SystemClock
from eventbus.consume.group_consumer import consumer_name
from eventbus.event import ObjectReference
from eventbus.process.crash_backoff import BASE_S, MAX_S, Backoff
from eventbus.process.prefixed import PrefixedOutput
from eventbus.process.procfile import RESERVED, read_procfile
from eventbus.process.signal_queue import JOB_CONTROL, SignalQueue, passed_on
from eventbus.process.supervised import Supervised
from eventbus.process.supervisor import Supervisor
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.text import printable
from workers.bus_watch import BusWatch
from workers.metrics import parse_address
from workers.parent_watch import ParentPipe
from workers.runtime import NAMESPACE, WorkerEvents
from workers.server_keeper import ServerKeeper

COMPONENT = "eventbus-up"
WORKERS = ("log", "sink", "lifecycle", "agent")
#: The machine is a node only where it can be measured (pip install 'eventbus[agent]').
NEEDS = {"agent": "psutil"}
API = "api"
#: Of `--api`: no API at all.
NO_API = "none"
#: A worker ends by itself after its own drain; it is given a little longer.
DRAIN_MARGIN_S = 2.0
#: Our own events get so long before each stage is ended, and at the end.
FLUSH_S = 1.0


@click.command()
@click.option(
    "--procfile", type=click.Path(path_type=Path), metavar="FILE", help="Also run its lines, `name: command`."
)
@click.option("--state-dir", metavar="DIR", help="Of the embedded server.  [default: as all other commands]")
@click.option(
    "--metrics-port",
    "metrics",
    metavar="[HOST:]PORT",
    default="",
    help="Metrics and health of the worker log there, of the others at the next ports (see `worker log`).",
)
@click.option(
    "--api",
    metavar="[HOST:]PORT|none",
    default="",
    help="Where the worker api listens.  [default: 127.0.0.1:6480, or any free port where that is taken]",
)
@click.option("--backoff-base", type=Finite(min=0, min_open=True), default=BASE_S, hidden=True)
@click.option("--backoff-max", type=Finite(min=0, min_open=True), default=MAX_S, hidden=True)
def up(
    procfile: Path | None, state_dir: str | None, metrics: str, api: str, backoff_base: float, backoff_max: float
) -> None:
    """Run everything in the foreground: the embedded server, the workers log, sink and api, the lines of a Procfile.

    With EVENTBUS_REDIS_URL set there is no embedded server. A server that is already running in its directory is used,
    and left running. Every process finds the bus in EVENTBUS_REDIS_URL. A line of the Procfile is run by /bin/sh; one
    named log, sink or api takes the place of that worker.

    What fails is started again after the kubelet's pauses (10 s doubling to 300 s, anew after 10 min up); what ends
    with exit code 0 is done. Ctrl-C and SIGTERM end the lines of the Procfile first, the last one first, then the
    workers, then the server; what is not done after EVENTBUS_DRAIN_S (10 s) and 2 s more is killed. A second Ctrl-C
    kills everything at once. Starts, failures and ends are recorded about Process/<name>; `up` itself speaks as
    Worker/<name>, as every worker does. If `up` itself is killed, its workers end by themselves; the server and the
    lines of the Procfile go on.

    \b
    Examples:
      eventbus up
      eventbus up --procfile Procfile
      eventbus up --state-dir ./state
      eventbus up --metrics-port 9100     # log on 9100, sink on 9101, …

    \b
    Exit codes:
      0    Ctrl-C or SIGTERM (or nobody reads the output), and every process ended by itself
      1    a process had to be killed
      2    it cannot be started: the Procfile, a setting or the server will not do
      130  ended at once by a second Ctrl-C
    """
    settings = Settings.from_environ(os.environ)
    commands = read_procfile(procfile) if procfile else {}
    ports = metrics_options(metrics)
    backoff = partial(Backoff, backoff_base, backoff_max)
    with Everything(settings, commands, state_dir, ports, api_options(api), backoff) as everything:
        sys.exit(0 if everything.run() else 1)


class Everything:
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
        make_backoff: Callable[[], Backoff],
    ) -> None:
        self._settings = settings
        self._commands = commands
        self._ports = ports
        self._api = api
        self._make_backoff = make_backoff
        self._signals = SignalQueue(passed_on() - JOB_CONTROL, tell_terminal=False)
        self._supervisor: Supervisor | None = None
        self._broadcaster: EventBroadcaster | None = None
        self._watch: BusWatch | None = None
        self._lifeline = ParentPipe()
        names = [RESERVED, *dict.fromkeys([*WORKERS, API, *commands])]
        self._output = PrefixedOutput(names, broken=self._stop)
        self._keeper = self._make_keeper(state_dir)
        self._way_in = ""
        if self._keeper and state_dir:
            self._way_in = f" (elsewhere: export EVENTBUS_STATE_DIR={Path(state_dir).absolute()})"

    def __enter__(self) -> Self:
        log_with(self._tell)
        url = self._keeper.start() if self._keeper else find_url(self._settings)
        self._tell(f"bus: {safe_url(url)}" + self._way_in)
        self._broadcaster = EventBroadcaster(url, settings=self._settings)
        self._recorder = self._broadcaster.new_recorder(COMPONENT)
        self._events = WorkerEvents(self._recorder, consumer_name())
        self._events.write("Starting", f"Starting {COMPONENT}.")
        self._watch = BusWatch(url, self._settings.prefix, on_change=self._events.on_change())
        self._watch.start()
        self._supervisor = Supervisor(
            self._make_stages(url),
            signals=self._signals,
            clock=SystemClock(),
            tell=self._tell,
            note=self._note,
            look=self._keeper.look if self._keeper else lambda: None,
            on_stop=self._say_stopping,
            before_stage=lambda: self._flush(FLUSH_S),
        )
        return self

    def run(self) -> bool:
        """Run until the end; blocks. See `Supervisor.run`."""
        assert self._supervisor is not None
        if self._output.is_broken:
            self._supervisor.stop()
        return self._supervisor.run(self._settings.drain_s + DRAIN_MARGIN_S)

    def __exit__(self, *_exc: object) -> None:
        try:
            if self._supervisor:
                self._supervisor.kill_all()
            if self._watch:
                self._watch.stop()
            if self._broadcaster:
                self._broadcaster.shutdown(FLUSH_S)
            if self._keeper:
                self._keeper.stop()
        finally:
            self._lifeline.close()
            self._output.finish()

    def _make_keeper(self, state_dir: str | None) -> ServerKeeper | None:
        if self._settings.redis_url:
            return None
        return ServerKeeper(
            EmbeddedServer(Path(state_dir) if state_dir else default_directory(os.environ)),
            clock=SystemClock(),
            backoff=self._make_backoff(),
            tell=self._tell,
            note=lambda *said: self._note("server", *said),
        )

    def _make_stages(self, url: str) -> list[list[Supervised]]:
        """Make the stages: workers below, the Procfile's lines above.

        Programs that record end before workers that store."""
        environ = environment(os.environ, url)
        workers = {
            name: [sys.executable, "-P", "-m", "eventbus_command", "worker", name, *self._ports[name]]
            for name in WORKERS
            if name not in self._commands and can_run(name)
        }
        if self._api is not None and API not in self._commands:
            workers[API] = [sys.executable, "-P", "-m", "eventbus_command", "worker", API, *self._api]
        lines = {name: ["/bin/sh", "-c", command] for name, command in self._commands.items()}
        replaced = {name: words for name, words in lines.items() if name in (*WORKERS, API)}
        own = {name: words for name, words in lines.items() if name not in (*WORKERS, API)}
        lifeline = self._lifeline
        tied = [self._process(*item, environ | lifeline.environ, lifeline.passed) for item in workers.items()]
        return [
            [*tied, *(self._process(*item, environ) for item in replaced.items())],
            [self._process(*item, environ) for item in own.items()],
        ]

    def _process(self, name: str, words: Sequence[str], environ: Mapping[str, str], *pass_fds: int) -> Supervised:
        return Supervised(
            name,
            words,
            environ=environ,
            output=self._output,
            clock=SystemClock(),
            backoff=self._make_backoff(),
            pass_fds=pass_fds,
        )

    def _tell(self, line: str) -> None:
        self._output.say(RESERVED, printable(line).encode("utf-8", "replace"))

    def _note(self, name: str, event_type: str, reason: str, message: str) -> None:
        namespace = "default" if name in self._commands else NAMESPACE
        if self._broadcaster:
            self._recorder.event(ObjectReference("Process", namespace, name), event_type, reason, message)

    def _say_stopping(self) -> None:
        self._output.hurry()
        self._tell("stopping; Ctrl-C again ends at once")
        if self._watch:
            self._watch.stop()  # the server is about to go
        self._events.write("Stopping", f"Stopping {COMPONENT}.")

    def _flush(self, timeout_s: float) -> None:
        if self._broadcaster:
            self._broadcaster.flush(timeout_s)

    def _stop(self) -> None:
        if self._supervisor:
            self._supervisor.stop()


def can_run(name: str) -> bool:
    """True if what the worker *name* needs besides ourselves is installed."""
    return name not in NEEDS or find_spec(NEEDS[name]) is not None


def metrics_options(metrics: str) -> dict[str, list[str]]:
    """Return each worker's own `--metrics-port`, one number after the other. Raises: ConfigError."""
    if not metrics:
        return {name: [] for name in WORKERS}
    host, first = parse_address(metrics)
    # 0 is any free port, also for the next one.
    ports = {name: first and first + place for place, name in enumerate(WORKERS)}
    addresses = {name: f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for name, port in ports.items()}
    for address in addresses.values():
        parse_address(address)
    return {name: ["--metrics-port", address] for name, address in addresses.items()}


def api_options(api: str) -> list[str] | None:
    """What the worker api is given; None: there is none, for it is not wanted, or its extra is not installed."""
    if api == NO_API or (not api and find_spec("aiohttp") is None):
        return None
    return ["--listen", api] if api else ["--any-port"]


def environment(environ: Mapping[str, str], url: str) -> dict[str, str]:
    """Return the environment of every process: the bus, `eventbus` on PATH, and a Python that buffers no lines."""
    path = environ.get("PATH", os.defpath)
    if shutil.which("eventbus", path=path) is None:
        path = os.pathsep.join((path, str(Path(sys.executable).parent)))
    return {"PYTHONUNBUFFERED": "1"} | dict(environ) | {"EVENTBUS_REDIS_URL": url, "PATH": path}


def log_with(tell: Callable[[str], object]) -> None:
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
