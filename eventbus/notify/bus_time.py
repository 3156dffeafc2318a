"""The clock of the Redis server between two of its replies, compared with the clock of this machine."""

from __future__ import annotations

from typing import Final

from eventbus.util.clock import Clock

#: Without a reply for so long, Redis or this worker was away: recorders need time to send what they have buffered.
LONGEST_PAUSE_S: Final = 10.0
#: If the clocks of Redis and of this machine differ by more, the machine's is ignored.
CLOCKS_DIFFER_MS: Final = 2 * 3_600_000


class BusTime:
    """Times are milliseconds since 1970. One thread.

    One of both clocks may be wrong: a deadline has passed if both agree (`earliest_ms`), and an event arrives at the
    later time (`latest_ms`).

    Args: server_ms: the server's time in a reply that has just arrived.
    """

    def __init__(self, clock: Clock, server_ms: int) -> None:
        self._clock = clock
        self._replied_at = self._steady_since = clock.monotonic()
        self.take_reply(server_ms)

    def take_reply(self, server_ms: int) -> None:
        """Note the time of a reply that has just arrived."""
        now = self._clock.monotonic()
        if now - self._replied_at > LONGEST_PAUSE_S:
            self._steady_since = now
        self._replied_at = now
        self._offset_ms = server_ms - now * 1000

    @property
    def steady_s(self) -> float:
        """Return how long there have been replies without a long pause."""
        return self._clock.monotonic() - self._steady_since

    @property
    def bus_ms(self) -> int:
        """Return the server's time: the clock of all timers."""
        return self.bus_ms_at(self._clock.monotonic())

    def bus_ms_at(self, monotonic_s: float) -> int:
        """Return the server's time at a monotonic time, in seconds."""
        return int(monotonic_s * 1000 + self._offset_ms)

    @property
    def earliest_ms(self) -> int:
        """Return the earlier one of both times."""
        return min(self.bus_ms, self._machine_ms())

    @property
    def latest_ms(self) -> int:
        """Return the later one of both times."""
        return max(self.bus_ms, self._machine_ms())

    def monotonic_at(self, bus_ms: int) -> float:
        """Return the monotonic time, in seconds, at which the server's time is *bus_ms*."""
        return (bus_ms - self._offset_ms) / 1000

    def _machine_ms(self) -> int:
        bus_ms, machine_ms = self.bus_ms, self._clock.time_ns() // 1_000_000
        return machine_ms if abs(machine_ms - bus_ms) <= CLOCKS_DIFFER_MS else bus_ms
