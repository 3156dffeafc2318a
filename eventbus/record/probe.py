"""When an idle producer asks Redis whether it still has what it acknowledged."""

from __future__ import annotations

from eventbus.clock import Clock

#: The first question comes so long after the last acknowledgement, each further one after twice as long, up to the
#: last: a loss is found within a minute, and a thousand idle processes cost Redis seventeen small reads a second.
FIRST_S, LAST_S = 1.0, 60.0


class Probe:
    """The times of the questions. A loss shows by itself when the next event is sent, so only the idle ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.heard()

    def heard(self) -> None:
        """Redis has acknowledged something, and with it all that went before."""
        self._sure_at = self._clock.monotonic()
        self._pause_s = FIRST_S

    def asked(self) -> None:
        """It was asked. Without an answer as well: it will be asked again."""
        self._sure_at = self._clock.monotonic()
        self._pause_s = min(LAST_S, 2 * self._pause_s)

    @property
    def due_in_s(self) -> float:
        """Until the next question; 0 or less: now."""
        return self._sure_at + self._pause_s - self._clock.monotonic()

    @property
    def in_doubt(self) -> bool:
        """Long enough ago for somebody who wants to be sure, in `flush` or `close`, to have it asked now."""
        return self._clock.monotonic() - self._sure_at >= FIRST_S
