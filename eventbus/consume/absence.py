"""Tracks whether Redis answers a consumer or an exporter, and reports each change once, to the log and the bus."""

from __future__ import annotations

from collections.abc import Callable

from eventbus.errors import BusRefused, BusUnavailable, EventBusError, FunctionsMissing
from eventbus.log import log


class RedisAbsence:
    """The failures since *what* last succeeded. Written by one thread, read by any.

    Args: on_change: called with LostRedis and Reconnected.
    """

    def __init__(self, what: str, on_change: Callable[[str, str], None]) -> None:
        self._what = what
        self._on_change = on_change
        self._first: EventBusError | None = None
        self._asked = False
        self.failures = 0  #: in a row
        self.rounds = 0  #: that failed, ever

    @property
    def ready(self) -> bool:
        """Return True if Redis has answered, and nothing has failed since."""
        return self._asked and not self.failures

    def waits(self, error: EventBusError) -> None:
        """Become not ready, and log that once."""
        self.failures += 1
        self.rounds += 1
        if self.failures == 1:
            log.warning("%s waits: %s", self._what, error)
            self._first = error
            if isinstance(error, BusUnavailable | BusRefused):
                self._on_change("LostRedis", str(error))

    def answered(self) -> None:
        """Note that Redis has answered, which ends its absence. The next call finds a refusal or a bug of ours."""
        self._asked = True
        if isinstance(self._first, BusUnavailable) and not isinstance(self._first, FunctionsMissing):
            self.over()

    def over(self) -> None:
        """Note that a round has succeeded."""
        if self.failures:
            self.failures = 0
            log.warning("%s goes on", self._what)
            if isinstance(self._first, BusUnavailable | BusRefused):
                self._on_change("Reconnected", "Redis is back")
            self._first = None
