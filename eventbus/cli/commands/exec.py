"""`eventbus exec`: runs any command and records its lifecycle."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from eventbus.cli.completion import complete_files
from eventbus.cli.input.options import Finite, namespace_option
from eventbus.model.event import ObjectReference
from eventbus.model.reference import named_reference, reference_to
from eventbus.model.validation import MAX_NAME
from eventbus.util.outcome import BY_SIGNAL, Outcome, end_as, say
from eventbus.util.text import cut_bytes, printable

if TYPE_CHECKING:
    from eventbus.agent.runtime.restart_backoff import RestartBackoff
    from eventbus.cli.commands.exec_events import CommandEvents
    from eventbus.cli.process.command import Command
    from eventbus.cli.process.signal_queue import SignalQueue

Pause = Callable[[float], int]
#: Minimum delay before a restart, in seconds: Ctrl-C can end the command before our signal thread reports it.
_SETTLE_S = 0.1
#: There is one command only.
_KEY = "command"


class Restart(StrEnum):
    """The conditions under which a command that ended runs again: the restart policies of a pod."""

    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"

    def wants(self, outcome: Outcome) -> bool:
        """Return True if a command that ended so runs again."""
        return self is Restart.ALWAYS or (self is Restart.ON_FAILURE and outcome.failed)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--object",
    "about",
    metavar="[NAMESPACE/]KIND/NAME",
    help="Object of the events.  [default: Command/<its name>]",
)
@namespace_option("Of the object; '' is cluster-scoped.", may_be_empty=True)
@click.option("--restart", type=click.Choice([str(way) for way in Restart]), default="never", show_default=True)
@click.option(
    "--read-stderr/--keep-stderr",
    default=None,
    help="Read the standard error of COMMAND, or not.  [default: read it, unless it is a terminal]",
)
@click.option("--backoff-base", type=Finite(min=0, min_open=True), hidden=True)
@click.option("--backoff-max", type=Finite(min=0, min_open=True), hidden=True)
@click.argument(
    "words",
    metavar="[--] COMMAND [ARGS]...",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    shell_complete=complete_files,
)
def exec_(
    about: str | None,
    namespace: str,
    restart: str,
    read_stderr: bool | None,
    backoff_base: float | None,
    backoff_max: float | None,
    words: Sequence[str],
) -> None:
    """Run COMMAND and record Started, then Completed or Failed.

    COMMAND has the same terminal, streams, signals and exit code as without exec, and it runs also without a bus.
    Events that cannot be sent within EVENTBUS_FLUSH_S (5 s) after its exit, or 2 s if the bus is unavailable, are
    lost, with a line on standard error. Events contain its name, exit code or signal, duration, and the last line of
    its standard error, but not its arguments. A second process sends them. It ends two seconds after the last event,
    and the next event starts another; while the bus is unavailable, it waits for the bus.

    A signal to exec is forwarded, and recorded as Killing if it ends programs. KILL, STOP, and signals of faults of
    exec itself, like SEGV, are not forwarded: COMMAND continues without exec. --restart runs it again after a failure
    (or always), unless a signal asked exec to end. The delays are those of the kubelet: none, then 10 s doubling to
    300 s, reset after 10 min of running. They are recorded as BackOff.

    To get the last line, exec reads the standard error of COMMAND and forwards it (and its standard output, if both
    are the same pipe or file). Background processes of COMMAND lose these streams when it exits. A terminal is not
    read, because pagers read the keyboard from it, and the events then have no last line. --read-stderr also reads a
    terminal; such pagers then have no keyboard. --keep-stderr does not read pipes and files either.

    \b
    Examples:
      eventbus exec -- make -j2
      eventbus exec --object Job/backup -n ops -- ./backup.sh --all
      eventbus exec --object Service/web --restart on-failure -- ./serve
      eventbus exec --read-stderr -- make -j2
      eventbus get events --for Job/backup -n ops

    \b
    Exit codes: those of COMMAND, and
      126    it cannot be run
      127    it was not found
      128+n  signal n ended it; exec ends by the same signal
      2      wrong usage of `eventbus exec` itself
    """
    if read_stderr is None:
        read_stderr = not os.isatty(2)  # pagers and password prompts read the keyboard from it
    name = printable(PurePath(words[0]).name or words[0])
    end_as(
        _run(
            words,
            name,
            _object_of(about, namespace, name),
            read_stderr=read_stderr,
            restart=Restart(restart),
            backoff=_backoff(backoff_base, backoff_max) if restart != Restart.NEVER else None,
        )
    )


def _object_of(about: str | None, namespace: str, command: str) -> ObjectReference:
    """Return the object of the events: KIND/NAME, or the command itself. Raises: InvalidEvent."""
    if about is not None:
        return reference_to(about, namespace)
    checked = named_reference("Command", "command", namespace)
    return ObjectReference(kind=checked.kind, namespace=checked.namespace, name=cut_bytes(command, MAX_NAME))


def _backoff(base_s: float | None, max_s: float | None) -> RestartBackoff:
    """Return the agent's back-off. Imported only with --restart."""
    from eventbus.agent.runtime.restart_backoff import BASE_S, MAX_S, RestartBackoff
    from eventbus.util.clock import SystemClock

    return RestartBackoff(SystemClock(), base_s or BASE_S, max_s or MAX_S)


def _run(
    words: Sequence[str],
    name: str,
    about: ObjectReference,
    *,
    read_stderr: bool,
    restart: Restart,
    backoff: RestartBackoff | None,
) -> Outcome:
    """Run the command, print problems with it and its events, and return its last outcome."""
    from eventbus.cli.commands.exec_events import CommandEvents
    from eventbus.cli.process.command import CannotStart, Command, become
    from eventbus.cli.process.signal_queue import SignalQueue, passed_on
    from eventbus.util.clock import SystemClock

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signals = SignalQueue(passed_on())
        diary = CommandEvents(about, name)
    except RuntimeError as error:  # the limit of processes is reached: no child could be started either
        cure = "raise the limit of processes (ulimit -u)"
        say(f"eventbus exec: {error}: {name} runs without events and restarts; {cure}")
        try:
            become(words, mask)
        except CannotStart as cannot:
            say(f"error: {printable(words[0])}: {cannot}")
            return cannot.outcome
    command = Command(words, signals=signals, clock=SystemClock(), read_stderr=read_stderr, on_signal=diary.killing)
    try:
        outcome = supervise(command, diary, restart=restart, backoff=backoff, pause=_pause(signals))
    except CannotStart as error:
        outcome = error.outcome
        say(f"error: {printable(words[0])}: {error}")
    if unsent := diary.close():
        say(f"eventbus exec: {unsent}")
    return outcome


def supervise(
    command: Command, diary: CommandEvents, *, restart: Restart, backoff: RestartBackoff | None, pause: Pause
) -> Outcome:
    """Run *command* until *restart* or a signal ends it; return the last outcome.

    Args:   backoff: None if it is never run again.
            pause: waits for so many seconds; the number of the signal that ended it before, or 0.
    Raises: CannotStart: not even once. Later it counts as a failed run: the program may be about to be replaced.
    """
    from eventbus.cli.process.command import CannotStart

    ran = False
    while True:
        try:
            outcome = command.run(diary.started)
            ran = True
            diary.ended(outcome)
        except CannotStart as error:
            outcome = error.outcome
            diary.cannot_start(outcome)
            if not ran:
                raise
        if command.asked_to_end or backoff is None or not restart.wants(outcome):
            return outcome
        ended_s = backoff.now_s()
        pause_s = backoff.left_s(_KEY, ended_s)
        if pause_s:
            diary.backing_off()
        if number := pause(pause_s):
            diary.not_restarting(number)
            return Outcome(BY_SIGNAL + number, number)
        backoff.next(_KEY, ended_s)


def _pause(signals: SignalQueue) -> Pause:
    """Make a delay that a signal to end interrupts. Other signals have no command to receive them."""
    import time

    from eventbus.cli.process.signal_queue import ENDING

    def pause(seconds: float) -> int:
        left = max(seconds, _SETTLE_S)
        deadline = time.monotonic() + left
        while (caught := signals.wait(max(left, 0.0))) or left > 0:
            if caught and caught.number in ENDING:
                return caught.number
            if caught and caught.number == signal.SIGTSTP:
                signals.suspend()
            left = deadline - time.monotonic()
        return 0

    return pause
