"""The keeper of a spool: a thread that writes events to disk while the flusher waits for Redis.

It sleeps while nothing is recorded. While the flusher works it checks twice in `LATE_S` whether a round is late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from eventbus.clock import Clock
from eventbus.log import log
from eventbus.record.latch import Latch

if TYPE_CHECKING:
    from eventbus.record.sender import Sender
    from eventbus.record.spool.adopter import Adopter
    from eventbus.record.spool.spool import Spool

#: seconds after which batches without acknowledgement are written, and between two checks
LATE_S, LOOK_S = 0.1, 0.05
#: seconds between two syncs to the disk: a power cut may lose so much
SYNC_S = 1.0
#: seconds that the end of a process waits for the two threads
STOP_S = 1.0


class SpoolKeeper:
    """Writes one `Spool` while the flusher waits, and runs the *adopter* of other processes' events."""

    def __init__(self, *, spool: Spool, adopter: Adopter, clock: Clock) -> None:
        self.spool = spool
        self._adopter = adopter
        self._clock = clock
        self._stopping = Latch()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._asleep = False
        self._synced_at = clock.monotonic()
        self._thread: threading.Thread | None = None
        self._on_kept: Callable[[], None] = lambda: None

    def start(self, sender: Sender, on_kept: Callable[[], None]) -> None:
        """Watch *sender*'s rounds from now on. *on_kept*: called after it has taken events from the buffer."""
        self._on_kept = on_kept
        self._thread = threading.Thread(target=self._run, args=(sender,), name="eventbus-spool", daemon=True)
        self._thread.start()
        self._adopter.start()

    def watch(self) -> None:
        """Wake the thread, if it sleeps, after `begin_round` of the sender. Called by the flusher at each round.

        1. the flusher sets `busy_since`; 2. it reads `_asleep`. The thread, before it sleeps: 1. sets `_asleep`;
        2. reads `busy_since`. So at least one of the two sees what the other has set.
        """
        if self._asleep:
            self._asleep = False
            self._rouse()

    def stop(self) -> None:
        """End both threads, and wait a second at most. Idempotent."""
        self._stopping.set()
        self._rouse()
        self._adopter.stop()
        for thread in (self._thread, self._adopter.thread):
            if thread is not None and thread is not threading.current_thread() and thread.ident is not None:
                thread.join(STOP_S)

    def forget(self) -> None:
        """In a child after fork, close the files of its parent."""
        self.spool.forget()
        self._adopter.forget()

    def _rouse(self) -> None:
        try:  # noqa: SIM105  # a signal handler may call `stop`: `suppress` could be interrupted half-way
            self._wake.release()
        except RuntimeError:
            pass  # it is awake

    def _run(self, sender: Sender) -> None:
        while not self._stopping.happened:
            if sender.busy_since is None and not self.spool.unsynced:
                self._asleep = True
                if sender.busy_since is None:  # see `watch`
                    self._wake.acquire()
                self._asleep = False
            self._stopping.wait(LOOK_S)
            try:
                self._look(sender)
            except Exception:
                log.exception("the spool goes on after an unexpected error")

    def _look(self, sender: Sender) -> None:
        since, now = sender.busy_since, self._clock.monotonic()
        if since is not None and now - since >= LATE_S:
            sender.keep_waiting()
            self._on_kept()
        if now - self._synced_at >= SYNC_S:
            self._synced_at = now
            self.spool.sync()
