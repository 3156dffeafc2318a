"""Wakes the main thread for a signal that came just before it began to wait.

Python runs handlers in the main thread, between two instructions. A signal between the last of them and a wait in C,
for a lock of multiprocessing, is noted and interrupts nothing. The handler runs when that wait ends: in a worker of a
pool that is being ended, never. While another thread wants the interpreter this gap is milliseconds long.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

#: seconds that a handler has to start by itself, and between two attempts to wake the main thread
PAUSE_S = 0.05


class SignalWaker:
    """A pipe that Python writes each signal to at once, and a thread that reads it. Start it in the main thread.

    Args: is_handled: returns False until the handler of this signal has started.
    """

    def __init__(self, is_handled: Callable[[int], bool]) -> None:
        self._is_handled = is_handled
        self._ends: tuple[int, ...] = ()

    def start(self) -> None:
        """Start. If the program has such a pipe itself, that one wakes the main thread. Idempotent."""
        if self._ends:
            return
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        if (other := signal.set_wakeup_fd(writing, warn_on_full_buffer=False)) != -1:
            signal.set_wakeup_fd(other)
            os.close(reading)
            os.close(writing)
            return
        self._ends = (reading, writing)
        threading.Thread(target=self._run, args=(reading,), name="eventbus-signals", daemon=True).start()

    def forget(self) -> None:
        """Forget the pipe in a child after fork: its signals must not reach the parent's pipe."""
        if not self._ends:
            return
        if (other := signal.set_wakeup_fd(-1)) not in (-1, self._ends[1]):
            signal.set_wakeup_fd(other)
        for end in self._ends:
            os.close(end)
        self._ends = ()

    def _run(self, reading: int) -> None:
        main = threading.main_thread().ident
        assert main
        while numbers := os.read(reading, 64):
            for number in set(numbers):
                time.sleep(PAUSE_S)
                while not self._is_handled(number):
                    signal.pthread_kill(main, number)
                    time.sleep(PAUSE_S)
