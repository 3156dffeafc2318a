"""A clock of the test's whose time of day is set forth and back, as by hand or by NTP."""

from __future__ import annotations

from eventbus.testing.clock import FakeClock


class SetClock(FakeClock):
    """Its monotonic time goes on as it did."""

    def set_by(self, seconds: float) -> None:
        self._start_ns += round(seconds * 1e9)
