"""Records the lifecycle of a command for `eventbus exec`, with the kubelet's reasons; never delays the command."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

import msgspec

from eventbus.cli.process.signal_queue import ENDING
from eventbus.errors import ConfigError
from eventbus.model.decodable import decodable
from eventbus.model.event import ObjectReference
from eventbus.settings import Settings
from eventbus.util.outcome import Outcome, duration, signal_name

if TYPE_CHECKING:
    from eventbus.cli.process.signal_queue import Caught

NORMAL, WARNING = "Normal", "Warning"
#: Seconds without an event after which the recording process ends if it has sent all. An outbox asks after one second
#: whether Redis still has the events.
IDLE_S: Final = 2.0
#: Seconds that the start of the recording process may take on a busy machine.
START_S: Final = 20.0
#: The question to the recording process whether it has sent all events, or can send none; and its answers.
ASK, DONE, WAITING = b"\n", b"done\n", b"waiting\n"


class CommandEvent(msgspec.Struct, frozen=True):
    """An event on its way to the recording process."""

    about: ObjectReference
    time: datetime
    type: str
    reason: str
    message: str


class Unsent(msgspec.Struct, frozen=True):
    """The number of events that a recording process could not send."""

    events: int
    problem: str = ""  #: also about events that are kept in the spool, which `events` does not count


class CommandEvents:
    """Records the life of one command. Nothing here waits for Redis, or raises; except `close`.

    The recorder takes more memory than all of exec. So a recording process imports it, and runs only while there are
    events to send. A thread starts it and hands the events over. Create this after the `SignalQueue`: threads inherit
    the signal mask.

    Args: command: how the command is called in messages, without its arguments, which may hold secrets.
    """

    def __init__(self, about: ObjectReference, command: str) -> None:
        self._about = about
        self._command = command
        self._events: SimpleQueue[CommandEvent | None] = SimpleQueue()  # None: the end
        self._unsent = 0
        self._problems: list[str] = []
        self._thread = threading.Thread(target=self._run, name="eventbus-recording", daemon=True)
        self._thread.start()

    def started(self) -> None:
        self._record(NORMAL, "Started", f"Started {self._command}")

    def ended(self, outcome: Outcome) -> None:
        """Completed, or a Warning with exit code and last line."""
        if outcome.failed:
            self._record(WARNING, "Failed", f"{self._command}: {outcome}")
        else:
            self._record(NORMAL, "Completed", f"Completed {self._command} after {duration(outcome.ran_s)}")

    def cannot_start(self, outcome: Outcome) -> None:
        self._record(WARNING, "Failed", f"{self._command} {outcome.last_line}")

    def killing(self, caught: Caught) -> None:
        """A signal was passed on to the command, or came to both from the terminal."""
        name = signal_name(caught.number)
        source = f"{name} from the terminal" if caught.from_terminal else f"passed on {name}"
        self._record(NORMAL, "Killing", f"Stopping {self._command}: {source}")

    def backing_off(self) -> None:
        # The same message each time, as the kubelet has it, so that repeats are counted.
        self._record(WARNING, "BackOff", f"Back-off restarting failed command {self._command}")

    def not_restarting(self, number: int) -> None:
        """Signal *number* arrived while the command was not running. It is not restarted."""
        self._record(NORMAL, "Killing", f"Stopped while waiting to restart {self._command} ({signal_name(number)})")

    def close(self) -> str:
        """Send the remaining events; return one line about events that could not be sent, or "".

        Blocks as long as the recording process waits for the bus: see `exec_recording`.
        """
        self._events.put(None)
        self._thread.join()
        if not self._problems:
            return ""
        problems = "; ".join(self._problems)
        if not self._unsent:  # all are kept in the spool
            return problems
        return f"{self._unsent} event{'' if self._unsent == 1 else 's'} not sent: {problems}"

    def _record(self, event_type: str, reason: str, message: str) -> None:
        self._events.put(CommandEvent(self._about, datetime.now(UTC), event_type, reason, message))

    def _run(self) -> None:
        # The recording process inherits this mask. systemd sends SIGTERM to all processes of a unit, and the recording
        # process must still send the events of the command's end. It ends when exec ends.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        recording: RecordingProcess | None = None
        while True:
            try:
                event = self._events.get(timeout=None if recording is None else IDLE_S)
            except Empty:
                if recording is not None and recording.is_done():
                    self._count(recording.end())
                    recording = None
                continue
            if recording is not None and (event is None or recording.ended):
                self._count(recording.end())
                recording = None
            if event is None:
                return
            try:
                recording = recording or RecordingProcess()
            except OSError as error:
                self._count(Unsent(1, f"the recording process cannot be started: {error.strerror}"))
            else:
                recording.hand_over(event)

    def _count(self, unsent: Unsent) -> None:
        self._unsent += unsent.events
        if unsent.problem and unsent.problem not in self._problems:
            self._problems.append(unsent.problem)


class RecordingProcess:
    """A process that sends the events that it is given: the program `exec_recording`.

    It has a session of its own, so that Ctrl-C and Ctrl-Z reach only the command.

    Raises: OSError: it cannot be started.
    """

    def __init__(self) -> None:
        import subprocess  # not before the command's start

        self._events = 0
        self._answers_within_s = START_S + _flush_s()
        options = ["-P"]
        # As this interpreter was started, with -I or -E: PYTHONPATH may have other modules of the same names.
        if sys.flags.ignore_environment:
            options.append("-E")
        if sys.flags.no_user_site:
            options.append("-s")
        self._process = subprocess.Popen(
            [sys.executable, *options, "-m", "eventbus.cli.commands.exec_recording"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._input, self._output = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Return True if it has ended by itself, or was killed."""
        return self._process.poll() is not None

    def hand_over(self, event: CommandEvent) -> None:
        """Have it send *event*."""
        self._events += 1
        self._write(msgspec.json.encode(event) + b"\n")

    def is_done(self) -> bool:
        """Return True if it has sent all events, can send none, or has ended by itself."""
        self._write(ASK)
        return self._answer() != WAITING

    def end(self) -> Unsent:
        """Have it send the remaining events and end; return those that it could not send."""
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        answer = self._answer()
        self._output.close()
        code = self._process.wait()
        if code == 0:
            return msgspec.json.decode(answer, type=decodable(Unsent))
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return Unsent(self._events, f"the recording process {how}, and may have sent them")

    def _answer(self) -> bytes:
        """Read a line; empty: it has ended. It is killed if it does not answer, as after SIGSTOP."""
        ready, _, _ = select.select([self._output], [], [], self._answers_within_s)
        if not ready:
            self._process.kill()
        return self._output.readline()

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended; `end` reports its events
            self._input.write(line)
            self._input.flush()


def _flush_s() -> float:
    try:
        return Settings.from_environ(os.environ).flush_s
    except ConfigError:  # the recording process reports it at once
        return 0.0
