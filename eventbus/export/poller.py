"""Runs the exporters of several partitions in one thread: all wait at the server, one at a time writes to the sink."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from eventbus.broker.blocking_read import BlockingRead
from eventbus.broker.connection.plain_client import REPLY_S
from eventbus.consume.heartbeat import Heartbeat
from eventbus.consume.poller import Poller, Slot
from eventbus.errors import EventBusError
from eventbus.export.exporter import PartitionExporter
from eventbus.export.leadership import LONGEST_CALL_S
from eventbus.util.clock import Clock
from eventbus.util.log import log


class ExportPoller:
    """Runs several exporters in one thread until `stop`. Call `run` in its own thread; it also closes the exporters.

    A partition that waits for an unreachable sink, a retry or its rate limit does not delay the others. But a call of a
    sink delays the other partitions of this thread until it returns or times out. During the call, another thread sends
    the heartbeats of all leases.

    Its exporters call their sink inside `calling`.
    """

    def __init__(self, *, clock: Clock, block_ms: int) -> None:
        self._block_ms = block_ms
        self._slots: list[_ExportSlot] = []
        self._stop = threading.Event()
        self._turn: _ExportSlot | None = None
        self._steps = 0  #: counts every step of the loop, as progress for the heartbeat
        self._heartbeat = Heartbeat(self._sign, clock=clock, hung_s=LONGEST_CALL_S, progress=lambda: self._steps)
        self._poller = Poller(time.monotonic)

    def add(self, exporter: PartitionExporter) -> None:
        """Run *exporter* too; before `run`."""
        self._slots.append(_ExportSlot(exporter))

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Allow heartbeats for the exporter of the current turn while the body does not use Redis."""
        slot = self._turn
        assert slot is not None
        self._steps += 1
        slot.lock.release()
        try:
            yield
        finally:
            slot.lock.acquire()

    def stop(self) -> None:
        """End after the call to the sink that is under way; returns at once."""
        self._stop.set()
        for slot in self._slots:
            slot.exporter.stop()
        self._poller.wake()

    def run(self) -> None:
        """The loop. Blocks until `stop`, or until all have ended."""
        try:
            with self._heartbeat.working():
                while self._slots and not self._stop.is_set():
                    for slot in list(self._slots):
                        if slot.reads_until is None and slot.due <= time.monotonic():
                            self._go_on(slot)
                    if self._slots:
                        replied, late = self._poller.poll(self._slots)
                        for slot in replied:
                            slot.take_change()
                        for slot in late:  # the exporter's next turn reports the error
                            slot.stop_waiting()
        finally:
            self._heartbeat.stop()
            for slot in self._slots:
                self._turn = slot
                slot.close()
            self._poller.close()

    def _go_on(self, slot: _ExportSlot) -> None:
        if self._stop.is_set():
            return
        self._steps += 1
        self._turn = slot
        with slot.lock:
            goes_on = slot.go_on(self._block_ms)
        if not goes_on:
            self._slots.remove(slot)
            slot.close()  # it has its turn still

    def _sign(self) -> None:
        for slot in list(self._slots):
            if slot.lock.acquire(blocking=False):  # else it is using Redis, or sends its own heartbeats
                try:
                    slot.exporter.sign()
                finally:
                    slot.lock.release()


class _ExportSlot(Slot):
    """An exporter in a poller: its turn is when it is due; while it has nothing to do, as soon as something changes."""

    def __init__(self, exporter: PartitionExporter) -> None:
        super().__init__()
        self.exporter = exporter
        self.lock = (
            threading.Lock()
        )  #: held while its connection is in use: by a turn outside sink calls, or by a heartbeat
        self._changes = BlockingRead(exporter.client, exporter.changes_key)

    def fileno(self) -> int:
        return self._changes.fileno()

    def go_on(self, block_ms: int) -> bool:
        """One turn. Returns False if it was the last."""
        pause_s = self.exporter.turn()
        if pause_s is None:
            return False
        self.due = time.monotonic() + pause_s
        if self.exporter.idle:
            self._wait_for_change(block_ms)
        return True

    def take_change(self) -> None:
        """Note that something was written, the wait is over, or the connection is lost: its turn is next."""
        self.due = 0.0
        try:
            self._changes.reply()
        except EventBusError as error:
            log.debug("a wait for changes was cut off: %s", error)

    def stop_waiting(self) -> None:
        """Abandon a wait for changes that Redis does not answer: its turn is next."""
        self.due = 0.0
        self._changes.close()

    def close(self) -> None:
        with self.lock:
            self._changes.close()
            self.exporter.close()

    def _wait_for_change(self, block_ms: int) -> None:
        until = time.monotonic() + block_ms / 1000
        try:
            self._changes.send(*self.exporter.wait_command(block_ms))
        except EventBusError as error:
            log.debug("nobody waits for changes: %s", error)
            self.due = until
        else:
            self.reads_until = until + REPLY_S


__all__ = ["ExportPoller"]
