"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading

#: Real seconds that a sleeper waits to be woken: a test that forgets to advance fails then, instead of hanging.
PATIENCE_S = 30.0


class FakeClock:
    """Implements `eventbus.util.clock.Clock`; only `advance` moves its time. Thread-safe.

    `sleep` blocks its thread until another thread has advanced the clock far enough. To test a program that sleeps,
    call `wait_for_sleepers`, which waits until the program sleeps, and then `advance`.

    Args: time_ns: the start time in nanoseconds since 1970; by default 2024-01-01T00:00:00Z.
    """

    def __init__(self, time_ns: int = 1_704_067_200_000_000_000) -> None:
        self._changed = threading.Condition()
        self._start_ns = time_ns
        self._elapsed_ns = 0
        self._until: list[int] = []  # of every sleeper

    def time_ns(self) -> int:
        """Return nanoseconds since 1970, UTC."""
        return self._start_ns + self._elapsed_ns

    def monotonic(self) -> float:
        """Return seconds since this clock was made."""
        return self._elapsed_ns / 1e9

    def sleep(self, seconds: float) -> None:
        """Block until the clock has been advanced by *seconds*; zero or less returns at once.

        Raises: AssertionError: the clock was not advanced for 30 real seconds.
        """
        with self._changed:
            until_ns = self._elapsed_ns + round(seconds * 1e9)
            if until_ns <= self._elapsed_ns:
                return
            self._until.append(until_ns)
            self._changed.notify_all()
            try:
                woken = self._changed.wait_for(lambda: self._elapsed_ns >= until_ns, PATIENCE_S)
            finally:
                self._until.remove(until_ns)
            assert woken, f"the clock was not advanced by {seconds} s"

    def advance(self, seconds: float) -> None:
        """Advance the clock by *seconds* and wake the threads with a sleep that is over. Does not wait for them to run.

        Raises: ValueError: *seconds* is below 0.
        """
        if seconds < 0:
            raise ValueError(f"seconds: {seconds} is below 0; time does not go back")
        with self._changed:
            self._elapsed_ns += round(seconds * 1e9)
            self._changed.notify_all()

    def wait_for_sleepers(self, n: int = 1, timeout_s: float = PATIENCE_S) -> None:
        """Block, for at most *timeout_s* real seconds, until at least *n* threads sleep on this clock.

        If `advance` has ended the sleep of a thread, it counts as awake, even if it has not run yet.

        Raises: TimeoutError: fewer threads sleep.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._sleepers() >= n, timeout_s):
                raise TimeoutError(f"{self._sleepers()} threads sleep on the clock, not {n}")

    def _sleepers(self) -> int:
        return sum(until_ns > self._elapsed_ns for until_ns in self._until)
