"""`eventbus heartbeat`: registers anything as a node that is reported lost without heartbeats."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from eventbus.cli.completion import complete_files
from eventbus.cli.input.options import seconds_option

if TYPE_CHECKING:
    from eventbus.agent.node.heartbeat import Heartbeat


@click.command()
@click.argument("name")
@click.option(
    "--every",
    "every_s",
    callback=seconds_option,
    metavar="DURATION",
    help="Interval of the heartbeats.  [default: 10s, or a quarter of --for]",
)
@click.option(
    "--for",
    "for_s",
    callback=seconds_option,
    metavar="DURATION",
    help="Time without a heartbeat after which the node is lost.  [default: four times --every]",
)
@click.argument(
    "words",
    metavar="[--] [COMMAND [ARGS]...]",
    nargs=-1,
    type=click.UNPROCESSED,
    shell_complete=complete_files,
)
def heartbeat(name: str, every_s: float | None, for_s: float | None, words: Sequence[str]) -> None:
    """Make NAME a node and send its heartbeats: while COMMAND runs, until Ctrl-C, or once with --for.

    A lifecycle worker (`eventbus worker lifecycle`) creates the node, and records one Warning NodeNotReady if no
    heartbeat comes for the time of --for. A normal end (COMMAND's exit code 0, Ctrl-C, SIGTERM) deletes the node; a
    COMMAND that fails leaves it, so that it becomes NotReady. With --for and no COMMAND one heartbeat is sent and the
    command ends: a dead man's switch for a cron job, which runs this at its end.

    \b
    Examples:
      eventbus heartbeat batch-7 -- ./batch.sh
      eventbus heartbeat importer --every 1m
      eventbus heartbeat backup --for 25h      # at the end of a daily job
      eventbus get nodes

    \b
    Exit codes: those of COMMAND, as `eventbus exec` has them, and
      0  the heartbeat was sent, or the heartbeats were stopped
      1  Redis does not answer; no heartbeat was sent
      2  wrong usage, or an invalid setting
    """
    from eventbus.agent.node.heartbeat import heartbeat as make

    beats = make(name, every_s=every_s, for_s=for_s)
    if not words and for_s is not None:
        _once(beats)
    elif words:
        _with_command(beats, words)
    else:
        _until_ended(beats)


def _once(beats: Heartbeat) -> None:
    try:
        beats.renew()
    finally:
        beats.close()


def _until_ended(beats: Heartbeat) -> None:
    from eventbus.cli.process.signal_queue import ENDING, SignalQueue, passed_on
    from eventbus.settings import Settings
    from eventbus.util.log_output import log_command_to_stderr

    log_command_to_stderr(Settings.from_environ(os.environ), "eventbus heartbeat")
    signals = SignalQueue(passed_on())
    beats.renew()  # the first heartbeat is explicit, so its failure is reported
    with beats:
        while True:
            caught = signals.wait()
            if caught and caught.number in ENDING:
                return


def _with_command(beats: Heartbeat, words: Sequence[str]) -> None:
    """Run the command, with or without a bus."""
    from eventbus.cli.process.command import CannotStart, Command
    from eventbus.cli.process.signal_queue import SignalQueue, passed_on
    from eventbus.settings import Settings
    from eventbus.util.clock import SystemClock
    from eventbus.util.log_output import log_command_to_stderr
    from eventbus.util.outcome import end_as

    log_command_to_stderr(Settings.from_environ(os.environ), "eventbus heartbeat")
    signals = SignalQueue(passed_on())
    command = Command(words, signals=signals, clock=SystemClock(), read_stderr=False, on_signal=lambda _caught: None)
    try:
        outcome = command.run(beats.start)
    except CannotStart as error:
        click.echo(f"error: {words[0]}: {error}", err=True)
        sys.exit(error.outcome.code)
    beats.stop(leave=not outcome.failed or command.asked_to_end)
    end_as(outcome)
