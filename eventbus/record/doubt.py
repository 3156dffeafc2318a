"""When an idle producer has Redis asked whether it still has what it acknowledged."""

from __future__ import annotations

from eventbus.clock import Clock

#: The first question comes so long after the last acknowledgement, each further one after twice as long, up to the
#: last: a loss is found within a minute, and a thousand idle processes cost Redis seventeen small reads a second.
FIRST_S, LAST_S = 1.0, 60.0


class Doubt:
    """One producer's. A loss shows by itself when the next event is sent, so only the idle ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.heard()

    def heard(self) -> None:
        """Redis has acknowledged a batch, and with it all that went before."""
        self._sure_at = self._asked_at = self._clock.monotonic()
        self._pause_s = FIRST_S

    def asked(self) -> None:
        """The question is on its way. Should no answer come, the next one does."""
        self._asked_at = self._clock.monotonic()
        self._pause_s = min(LAST_S, 2 * self._pause_s)

    def answered(self) -> None:
        """Redis has all that it acknowledged."""
        self._sure_at = self._clock.monotonic()

    @property
    def due_in_s(self) -> float:
        """Until the next question; 0 or less: now."""
        return self._asked_at + self._pause_s - self._clock.monotonic()

    def since(self, wanted_at: float) -> bool:
        """Whether who wanted to be sure then, in `flush` or `close`, could not be, and nothing was asked for him."""
        return wanted_at - self._sure_at >= FIRST_S and self._asked_at < wanted_at
