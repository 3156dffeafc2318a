"""`eventbus watch-systemd`: records the changes of the systemd units of this host."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import click

from eventbus.cli.completion import complete_files
from eventbus.cli.input.options import namespace_option
from eventbus.cli.session import open_session


@click.command("watch-systemd")
@click.argument("units", metavar="[PATTERN]...", nargs=-1)
@click.option("--user", is_flag=True, help="The units of your own service manager, instead of the system's.")
@namespace_option("Of the units.")
@click.option("--node", default="", metavar="NAME", help="Name of this host in the events.  [default: the host name]")
@click.option(
    "--lines",
    type=click.IntRange(0, 20),
    default=5,
    show_default=True,
    help="Last lines of its output in the event of a unit that fails.",
)
@click.option(
    "--state",
    metavar="FILE",
    shell_complete=complete_files,
    help="Keeps the position in the journal.  [default: watch-systemd in EVENTBUS_STATE_DIR, or the user's own]",
)
def watch_systemd(units: Sequence[str], user: bool, namespace: str, node: str, lines: int, state: str | None) -> None:
    """Record the changes of this host's systemd units: Started, Completed, Stopped, Failed, Restarting.

    The events are about Unit/NAME, like Unit/nginx.service. A Warning Failed has the exit code or signal, and the last
    lines of the unit. PATTERN selects units, like 'shop-*.service'; without one, all services.

    The changes are read from the journal, and the position in it is kept in a file: after a restart, the command
    continues there, and records the changes in between. The first start records changes from then on. While the bus is
    unavailable, the changes wait in the journal. The command runs until Ctrl-C or SIGTERM.

    \b
    Examples:
      eventbus watch-systemd
      eventbus watch-systemd 'shop-*.service' postgresql.service -n shop
      eventbus watch-systemd --user --state ~/.local/state/units
      eventbus events --for Unit/nginx.service

    \b
    Exit codes:
      0  the command was stopped
      1  the bus does not answer at the start, or the position cannot be saved
      2  wrong usage, the journal cannot be read, or another watch-systemd uses the same FILE
    """
    from eventbus.broker.embedded.server import default_directory
    from eventbus.cli.process.signal_queue import ENDING, SignalQueue
    from eventbus.contrib.systemd import COMPONENT, Journal, Position, UnitWatcher
    from eventbus.record.occurrence import OccurrenceRecorder
    from eventbus.settings import Settings
    from eventbus.util.clock import SystemClock
    from eventbus.util.log_output import log_command_to_stderr

    log_command_to_stderr(Settings.from_environ(os.environ), "eventbus watch-systemd")
    name = "watch-systemd-user" if user else "watch-systemd"
    path = Path(state) if state else default_directory(os.environ) / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    host = node or socket.gethostname().lower()
    errors: list[Exception] = []
    journal = Journal(user=user)
    with Position(path) as position:
        after = position.load()
        if not after:
            after = journal.newest()
            position.save(after)  # before the bus is opened: changes while it is unavailable are recorded later
        signals = SignalQueue(frozenset(ENDING))
        with open_session() as session:
            recorder = OccurrenceRecorder(session.transport(), clock=SystemClock(), component=COMPONENT, host=host)
            watcher = UnitWatcher(
                journal=journal,
                recorder=recorder,
                position=position,
                after=after,
                units=units or ("*.service",),
                namespace=namespace,
                node=host,
                lines=lines,
            )

            def watch() -> None:
                try:
                    watcher.run()
                except Exception as error:
                    errors.append(error)
                signals.wake()

            thread = threading.Thread(target=watch, name="eventbus-watch-systemd")
            thread.start()
            try:
                while thread.is_alive():
                    caught = signals.wait()
                    if caught and caught.number in ENDING:
                        break
            finally:
                watcher.stop()
                thread.join()
                recorder.close()
    if not errors:
        return
    if isinstance(errors[0], OSError):
        click.echo(f"error: {path}: {errors[0]}", err=True)
        sys.exit(1)
    raise errors[0]
