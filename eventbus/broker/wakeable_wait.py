"""Waits for many reads at once, in a thread that other threads can wake."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

T = TypeVar("T", bound="_HasFileno")

# `poll` needs no descriptor of its own; not every system has it.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class _HasFileno(Protocol):
    """Has a socket that is readable once there is something to do."""

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        ...


class WakeableWait:
    """Waits until one of several reads has its reply, a time is over, or another thread calls `wake`."""

    def __init__(self) -> None:
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)

    def wake(self) -> None:
        """End the current wait, or else the next one. Any thread; no effect after `close`."""
        with suppress(OSError):  # full: it will wake; closed: it has ended
            self._mouth.send(b"\0")

    def wait(self, reads: Iterable[T], timeout_s: float | None) -> list[T]:
        """Wait for a reply; return those of *reads* that have one. *timeout_s* None: no limit."""
        with _Selector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            for read in reads:
                selector.register(read, selectors.EVENT_READ, read)
            ready = [key.data for key, _ in selector.select(timeout_s if timeout_s is None else max(0.0, timeout_s))]
        if None in ready:
            with suppress(BlockingIOError):
                self._ear.recv(4096)
        return [read for read in ready if read is not None]

    def close(self) -> None:
        """Close its sockets."""
        self._ear.close()
        self._mouth.close()


__all__ = ["WakeableWait"]
