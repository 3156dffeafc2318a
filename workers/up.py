"""`eventbus up`: a bus, its workers and the programs of a Procfile in one foreground command."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from eventbus.agent.runtime.restart_backoff import BASE_S, MAX_S, RestartBackoff
from eventbus.cli.input.options import Finite
from eventbus.errors import ConfigError
from eventbus.util.clock import SystemClock


@click.command()
@click.option(
    "--procfile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also run the lines of this Procfile, `name: command`.",
)
@click.option(
    "--state-dir",
    metavar="DIR",
    help="Folder of the embedded server, and of the logs of the processes.  [default: as all other commands]",
)
@click.option(
    "--metrics-port",
    "metrics",
    metavar="[HOST:]PORT",
    default="",
    help="Port for metrics and health of the worker log; the other workers get the next ports (see `worker log`).",
)
@click.option(
    "--api",
    metavar="[HOST:]PORT|none",
    default="",
    help="Address of the worker api.  [default: 127.0.0.1:6480, or a free port if that is in use]",
)
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Show all output of the Procfile, but only problems of the workers.",
)
@click.option("--backoff-base", type=Finite(min=0, min_open=True), default=BASE_S, hidden=True)
@click.option("--backoff-max", type=Finite(min=0, min_open=True), default=MAX_S, hidden=True)
def up(
    procfile: Path | None,
    state_dir: str | None,
    metrics: str,
    api: str,
    quiet: bool,
    backoff_base: float,
    backoff_max: float,
) -> None:
    """Run everything in the foreground: the embedded server, its workers, the lines of a Procfile.

    The workers are log, sink, lifecycle, agent (this machine is a node) and api (the page, and the API). The last two
    need an extra each: pip install 'eventbus[agent,api]'. Without it, a line lists the missing parts.

    The file .env in the folder of the Procfile is read first. Each line of the Procfile gets a PORT: 5000 (or PORT),
    5100, …

    A second `up` for the same bus is refused, also with another state directory: each would replace the pods of the
    other.

    With EVENTBUS_REDIS_URL, no embedded server is started. A server that already runs in the state directory is used
    and keeps running. All processes get the URL of the bus in EVENTBUS_REDIS_URL. /bin/sh runs the lines of the
    Procfile; a line with the name of a worker replaces it.

    Each process runs as a pod, as in `eventbus worker agent`. A failed process is restarted with the delays of the
    kubelet (immediately, then after 10 s doubling to 300 s, reset after 10 min of running); a process with exit code 0
    is complete. Ctrl-C and SIGTERM end the lines of the Procfile first, then the workers, then the server. Processes
    that still run after EVENTBUS_DRAIN_S (10 s) and 2 s more are killed. A second Ctrl-C kills all processes
    immediately. Starts, failures, back-offs and exits are recorded about Pod/<name>-<host>: `eventbus get pods`,
    `eventbus describe pod/NAME` and `eventbus logs NAME` show them. `up` records its own events about Worker/<name>,
    like every worker. If `up` is killed, its workers end; the server and the lines of the Procfile continue, and the
    next `up` ends these lines first.

    The last line at start is the address of the page. SIGUSR1 prints it again, and `eventbus status` shows it.

    Needs Linux.

    \b
    Examples:
      eventbus up
      eventbus up --procfile Procfile --quiet
      eventbus up --state-dir ./state
      eventbus up --metrics-port 9100     # log on 9100, sink on 9101, …

    \b
    Exit codes:
      0    Ctrl-C or SIGTERM (or the output was closed), and all processes ended in time
      1    a process had to be killed
      2    it cannot be started: invalid Procfile, setting or server
      130  ended immediately by a second Ctrl-C
    """
    from eventbus.agent.procfile.procfile import read_env_file, read_procfile
    from eventbus.settings import Settings
    from eventbus.workers.up_run import WORKERS, UpRun, api_options, metrics_options

    if platform.system() != "Linux":
        workers = ", ".join(f"`eventbus worker {name}`" for name in WORKERS[:2])
        raise ConfigError(f"`eventbus up` needs Linux, as pods do; start the workers one by one: {workers}, …")
    os.environ.update(read_env_file(procfile.parent / ".env") if procfile else {})
    settings = Settings.from_environ(os.environ)
    commands = read_procfile(procfile) if procfile else {}
    if procfile is None and _has_programs(Path("Procfile")):
        click.echo("up: the Procfile in this folder is not used; to run its lines, add --procfile Procfile", err=True)
    ports = metrics_options(metrics)
    backoff = partial(RestartBackoff, SystemClock(), backoff_base, backoff_max)
    with UpRun(settings, commands, state_dir, ports, api_options(api), backoff, quiet=quiet) as run:
        sys.exit(0 if run.run() else 1)


def _has_programs(procfile: Path) -> bool:
    """Return True if the file exists and has lines that are not workers."""
    from eventbus.agent.procfile.procfile import read_procfile

    commands: dict[str, str] = {}
    with suppress(ConfigError):
        commands = read_procfile(procfile) if procfile.is_file() else {}
    return any(not command.startswith("eventbus worker ") for command in commands.values())
