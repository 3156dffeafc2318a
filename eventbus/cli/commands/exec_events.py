"""Records the lifecycle of a command for `eventbus exec`, with the kubelet's reasons; never delays the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventbus.process.event_helper import EventHelper
from eventbus.process.outcome import Outcome, duration, signal_name

if TYPE_CHECKING:
    from eventbus.process.signal_queue import Caught

NORMAL, WARNING = "Normal", "Warning"


class CommandEvents:
    """Records the life of one command. Nothing here waits for Redis, or raises; except `close`.

    Args: about: KIND/NAME, None: the command itself.
          command: how the command is called in messages, without its arguments, which may hold secrets.
    """

    def __init__(self, about: str | None, namespace: str, command: str) -> None:
        self._command = command
        self._helper = EventHelper({"about": about, "namespace": namespace, "command": command})

    def started(self) -> None:
        self._helper.record(NORMAL, "Started", f"Started {self._command}")

    def ended(self, outcome: Outcome) -> None:
        """Completed, or a Warning with exit code and last line."""
        if outcome.failed:
            self._helper.record(WARNING, "Failed", f"{self._command}: {outcome}")
        else:
            self._helper.record(NORMAL, "Completed", f"Completed {self._command} after {duration(outcome.ran_s)}")

    def cannot_start(self, outcome: Outcome) -> None:
        self._helper.record(WARNING, "Failed", f"{self._command} {outcome.last_line}")

    def killing(self, caught: Caught) -> None:
        """A signal was passed on to the command, or came to both from the terminal."""
        name = signal_name(caught.number)
        said = f"{name} from the terminal" if caught.from_terminal else f"passed on {name}"
        self._helper.record(NORMAL, "Killing", f"Stopping {self._command}: {said}")

    def backing_off(self) -> None:
        # The same message each time, as the kubelet has it, so that repeats are counted.
        self._helper.record(WARNING, "BackOff", f"Back-off restarting failed command {self._command}")

    def not_restarting(self, number: int) -> None:
        """Signal *number* arrived while the command was not running. It is not restarted."""
        self._helper.record(
            NORMAL, "Killing", f"Stopped while waiting to restart {self._command} ({signal_name(number)})"
        )

    def close(self) -> str:
        """Send the remaining events; return one line about events that could not be sent, or ""."""
        unsent, why = self._helper.close()
        if not unsent:
            return why
        return f"{unsent} event{'' if unsent == 1 else 's'} not sent: {why}"
