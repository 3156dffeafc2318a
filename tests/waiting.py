"""Waits for conditions. How long something takes is for the benchmarks: here a time only bounds a wait in vain."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress

#: Of errors that mean *not yet*.
_Errors = type[Exception] | tuple[type[Exception], ...]

#: A busy machine needs long; a test that fails needs it once.
PATIENCE_S = 120.0
#: between two looks at what takes long itself
MOST_PAUSE_S = 0.5
#: between two looks at what takes long
LOOK_S = 0.05


def eventually(
    condition: Callable[[], object],
    *,
    within_s: float = PATIENCE_S,
    despite: _Errors = (),
) -> float:
    """Wait until *condition* is true; return the seconds that took. An error of *despite* is raised at the end only.

    Raises: AssertionError: it never was.
    """
    begun = time.monotonic()
    assert reached(condition, within_s, despite), f"not within {within_s} s"
    return time.monotonic() - begun


def reached(
    condition: Callable[[], object],
    within_s: float = PATIENCE_S,
    despite: _Errors = (),
) -> bool:
    """Wait for *within_s* at the most until *condition* is true; return whether it was."""
    deadline, pause_s = time.monotonic() + within_s, 0.002
    while True:
        over = (begun := time.monotonic()) > deadline
        try:
            if condition():
                return True
        except despite:
            if over:
                raise
        if over:
            return False
        # A condition may cost what it waits for: one that starts processes is looked at half of the time.
        time.sleep(max(pause_s, min(MOST_PAUSE_S, time.monotonic() - begun)))
        pause_s = min(0.05, 1.5 * pause_s)


def reached_while_falling(
    condition: Callable[[], object],
    left: Callable[[], int],
    still_s: float,
    despite: tuple[type[Exception], ...] = (),
) -> bool:
    """Wait until *condition* is true, however long, as long as *left* falls; return whether it was.

    *left* stands still when it has not become less than ever before in as many looks as *still_s* has room for: what
    only goes up and down does not fall, and time in which this process was not run itself does not count.
    """
    least, looks = math.inf, 0
    while True:
        with suppress(*despite):
            if condition():
                return True
        looks += 1
        with suppress(*despite):
            if (now := left()) < least:
                least, looks = now, 0
        if looks * LOOK_S >= still_s:
            return False
        time.sleep(LOOK_S)
