"""The ack check: asks whether the bus still has the batches that it acknowledged, and sends lost ones again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eventbus.clock import Clock
from eventbus.errors import EventBusError
from eventbus.log import log

if TYPE_CHECKING:
    from eventbus.broker.transport import Transport
    from eventbus.record.producer import Producer

#: The time from an acknowledgement to the first check; it doubles for each further one, up to the last. A loss is found
#: within a minute, and a thousand idle processes cost Redis seventeen small reads a second.
FIRST_S, LAST_S = 1.0, 60.0
#: seconds that a flush or close waits for the answer, at most
ANSWER_S = 1.0


class AckCheckSchedule:
    """The schedule of checks of one idle producer.

    Only idle producers are checked: a busy one finds a loss when it sends its next event."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.acknowledged()

    def acknowledged(self) -> None:
        """Note that the bus has acknowledged a batch, and with it all earlier ones."""
        self._confirmed_at = self._sent_at = self._clock.monotonic()
        self._pause_s = FIRST_S

    def sent(self) -> None:
        """Note that a check was sent. If no answer comes, the next check follows."""
        self._sent_at = self._clock.monotonic()
        self._pause_s = min(LAST_S, 2 * self._pause_s)

    def confirmed(self) -> None:
        """Note that the bus still has all that it acknowledged."""
        self._confirmed_at = self._clock.monotonic()

    @property
    def due_in_s(self) -> float:
        """Return the seconds until the next check; 0 or less: now."""
        return self._sent_at + self._pause_s - self._clock.monotonic()

    def is_unconfirmed(self, wanted_at: float) -> bool:
        """Return True if a flush or close at *wanted_at* is unconfirmed and no check was sent since."""
        return wanted_at - self._confirmed_at >= FIRST_S and self._sent_at < wanted_at


class AckCheck:
    """Checks idle producers for the flusher. *under_way* is a unique token during a check, else None."""

    def __init__(self) -> None:
        self.under_way: object | None = None

    def run(self, transport: Transport, producers: Sequence[tuple[int, Producer]]) -> None:
        """Check these producers, by partition, in one round trip; batches that the bus has lost are queued again."""
        for _, producer in producers:
            producer.check.sent()
        self.under_way = object()
        try:
            lasts = transport.last([(partition, producer.secret) for partition, producer in producers])
        except EventBusError:
            return  # no caller waits for it; the next round reports that the bus is away
        finally:
            self.under_way = None
        for (_, producer), last in zip(producers, lasts, strict=True):
            if last is not None and not producer.found(last):
                log.warning("Redis has lost what it had acknowledged; what the ring holds of it is sent again")
