"""Counts lost events by cause; logs each cause at most once in ten seconds, and each new kind of mistake at once."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable

from eventbus.util.clock import Clock
from eventbus.util.log import log
from eventbus.util.text import cut_bytes, printable

#: One line a cause in so many seconds: a flood of losses must not become a flood of lines.
LOG_EVERY_S = 10.0
#: No loss: the event is recorded, with the beginning of its message.
TRUNCATED = "truncated"
#: Causes that are logged and not reported to Redis: watchers of this process missed the events, and the bus has them.
LOCAL_CAUSES = frozenset({"missed", TRUNCATED})
#: Kinds of mistakes that are logged at once. More kinds would be a flood of lines.
MOST_MISTAKES = 100
#: bytes of a line's detail: enough for the field, the problem, the cure and the call
DETAIL_BYTES = 900


class Losses:
    """Counts lost events by cause, and logs them. Thread-safe; `count` costs a lock and, rarely, a line.

    Args: on_first: called at the first loss, so that a process that records nothing else logs it at its end.
    """

    def __init__(self, clock: Clock, *, on_first: Callable[[], object] | None = None) -> None:
        self._clock = clock
        self._on_first = on_first
        self.reset()

    def reset(self) -> None:
        """Reset all counts: when made, and in a child after fork, where another thread may have held the lock."""
        # Reentrant: a signal handler may record an event while its own thread counts one.
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._unlogged: dict[str, _Unlogged] = {}
        #: the losses that are being logged now; a signal that ends the process may interrupt this
        self._being_logged: list[tuple[str, _Unlogged]] = []
        self._unreported: Counter[str] = Counter()
        self._logged_at: dict[str, float] = {}
        self._mistakes: set[str] = set()

    def count(self, cause: str, n: int = 1, detail: str = "", mistake: str = "") -> None:
        """Count *n* events lost for *cause* (`dropped`, `refused`, …) and log them if it is time.

        Args:     detail: about the last of them.  mistake: its kind of few, such as a wrong field. The first
                  of each kind is logged at once, so that frequent mistakes do not hide rare ones.
        """
        if not self._counts and self._on_first is not None:
            self._on_first()
        with self._lock:
            is_new = bool(mistake) and mistake not in self._mistakes and len(self._mistakes) < MOST_MISTAKES
            if is_new:
                self._mistakes.add(mistake)
            self._counts[cause] += n
            unlogged = self._unlogged.setdefault(cause, _Unlogged())
            unlogged.add(n, detail)
            if cause not in LOCAL_CAUSES:
                self._unreported[cause] += n
            now = self._clock.monotonic()
            if cause in self._logged_at and now - self._logged_at[cause] < LOG_EVERY_S and not is_new:
                return
            self._logged_at[cause] = now
            self._being_logged.append((cause, unlogged))
            del self._unlogged[cause]
        self._log_losses(cause, unlogged)

    def take_unreported(self) -> tuple[tuple[str, int], ...]:
        """Return the losses counted since the last call: the outbox reports them to Redis with its next batch."""
        if not self._unreported:
            return ()
        with self._lock:
            unreported, self._unreported = self._unreported, Counter()
        return tuple(unreported.items())

    def report_again(self, reported: Iterable[tuple[str, int]]) -> None:
        """Take back the result of `take_unreported`: the batch that was to report it will not be sent."""
        with self._lock:
            self._unreported.update(dict(reported))

    def log(self, cause: str, line: str) -> None:
        """Log *line*, at most once in ten seconds a *cause*; nothing is counted."""
        with self._lock:
            now = self._clock.monotonic()
            if cause in self._logged_at and now - self._logged_at[cause] < LOG_EVERY_S:
                return
            self._logged_at[cause] = now
        _log_error(line)

    @property
    def counts(self) -> dict[str, int]:
        """Return all that was counted so far."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Log the losses that were counted since the last line of each cause."""
        with self._lock:
            unlogged = list(self._unlogged.items())
            self._being_logged += unlogged
            self._unlogged = {}
        for cause, losses in unlogged:
            self._log_losses(cause, losses)

    def lines_left(self) -> list[str]:
        """Return lines of the losses that are not logged yet, or that another frame is logging. Takes no lock.

        For the last lines of a signal handler, which may have interrupted the holder of any lock.
        """
        return [_line(cause, losses) for cause, losses in [*self._being_logged, *list(self._unlogged.items())]]

    def _log_losses(self, cause: str, losses: _Unlogged) -> None:
        _log_error(_line(cause, losses), cause)
        self._being_logged.remove((cause, losses))


class _Unlogged:
    """The losses of one cause since its last line: how many, and the detail of the last one."""

    __slots__ = ("detail", "n", "various")

    def __init__(self) -> None:
        self.n = 0
        self.detail = ""
        self.various = False  #: not all of them had this detail

    def add(self, n: int, detail: str) -> None:
        self.various |= self.n > 0 and detail != self.detail
        self.n += n
        self.detail = detail


def _log_error(line: str, cause: str = "") -> None:
    level = logging.WARNING if cause == TRUNCATED else logging.ERROR
    log.log(level, "%s", line, extra={"cause": cause} if cause else None)


def _line(cause: str, losses: _Unlogged) -> str:
    # Details quote callers: a newline in one must not become a second line.
    detail = cut_bytes(printable(losses.detail), DETAIL_BYTES)
    if detail:
        detail = f", the last: {detail}" if losses.various else f": {detail}"
    return f"{losses.n} event{'' if losses.n == 1 else 's'} {cause}{detail}"
