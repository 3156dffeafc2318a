"""Limits how long a blocking call may use a socket, for clients that have no limit of their own."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def hang_up_after(seconds: float, fileno: int) -> Iterator[None]:
    """Shut the connection down if the body takes longer, so that a blocked read ends.

    A frozen server keeps its connections alive: neither keep-alive nor the server's own timeouts end the wait.
    """
    # Shut down a duplicate: the descriptor may be closed and its number reused before the timer fires.
    with socket.socket(fileno=os.dup(fileno)) as line:
        timer = threading.Timer(seconds, _hang_up, (line,))
        timer.name, timer.daemon = "eventbus-watchdog", True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _hang_up(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
