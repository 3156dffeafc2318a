"""Runs the exporters of several partitions in one thread: all wait at the server, one at a time writes to the sink."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from eventbus.broker.blocking_read import BlockingRead
from eventbus.broker.connection.plain_client import REPLY_S
from eventbus.broker.wakeable_wait import WakeableWait
from eventbus.clock import Clock
from eventbus.consume.heartbeat import Heartbeat
from eventbus.errors import EventBusError
from eventbus.export.exporter import PartitionExporter
from eventbus.export.leadership import LONGEST_CALL_S
from eventbus.log import log


class ExportLane:
    """The exporters that were added, until `stop`. Start it in a thread of its own: `run`, which also closes them.

    A partition that has to wait, for a sink that is away, an event that is tried again or its rate, is gone round. One
    call of a sink keeps the lane's other partitions waiting until it is answered or has had its time, and nobody else.
    The leases of all live on meanwhile, by the signs of one more thread.

    Its exporters call their sink inside `calling`.
    """

    def __init__(self, *, clock: Clock, block_ms: int) -> None:
        self._block_ms = block_ms
        self._seats: list[_Seat] = []
        self._stop = threading.Event()
        self._turn: _Seat | None = None
        self._steps = 0  #: of whatever it does
        self._heartbeat = Heartbeat(self._sign, clock=clock, hung_s=LONGEST_CALL_S, progress=lambda: self._steps)
        self._wait = WakeableWait()

    def add(self, exporter: PartitionExporter) -> None:
        """Run *exporter* too; before `run`."""
        self._seats.append(_Seat(exporter))

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Let signs of life be given for the exporter whose turn it is: it leaves Redis alone."""
        seat = self._turn
        assert seat is not None
        self._steps += 1
        seat.lock.release()
        try:
            yield
        finally:
            seat.lock.acquire()

    def stop(self) -> None:
        """End after the call to the sink that is under way; returns at once."""
        self._stop.set()
        for seat in self._seats:
            seat.exporter.stop()
        self._wait.wake()

    def run(self) -> None:
        """The loop. Blocks until `stop`, or until all have ended."""
        try:
            with self._heartbeat.working():
                while self._seats and not self._stop.is_set():
                    for seat in list(self._seats):
                        if seat.due <= time.monotonic():
                            self._go_on(seat)
                    if self._seats:
                        self._listen()
        finally:
            self._heartbeat.stop()
            for seat in self._seats:
                self._turn = seat
                seat.close()
            self._wait.close()

    def _go_on(self, seat: _Seat) -> None:
        if self._stop.is_set():
            return
        self._steps += 1
        self._turn = seat
        with seat.lock:
            goes_on = seat.go_on(self._block_ms)
        if not goes_on:
            self._seats.remove(seat)
            seat.close()  # it has its turn still

    def _listen(self) -> None:
        """Until one is due, or something was written for one."""
        timeout_s = min(seat.due for seat in self._seats) - time.monotonic()
        for seat in self._wait.wait([seat for seat in self._seats if seat.rings], timeout_s):
            seat.hear()

    def _sign(self) -> None:
        for seat in list(self._seats):
            if seat.lock.acquire(blocking=False):  # else it is at Redis itself, or waits with signs of its own
                try:
                    seat.exporter.sign()
                finally:
                    seat.lock.release()


class _Seat:
    """An exporter in a lane: its turn is at *due*, seconds, monotonic; where it *rings*, as soon as its bell does."""

    def __init__(self, exporter: PartitionExporter) -> None:
        self.exporter = exporter
        self.lock = threading.Lock()  #: held by whoever uses its connection: a turn outside its calls, a sign of life
        self.bell = BlockingRead(exporter.client, exporter.changes_key)
        self.rings = False
        self.due = 0.0

    def fileno(self) -> int:
        return self.bell.fileno()

    def go_on(self, block_ms: int) -> bool:
        """One turn. Returns False if it was the last."""
        if self.rings:  # no answer in time: the exporter itself will meet what is wrong
            self._silence()
        pause_s = self.exporter.turn()
        if pause_s is None:
            return False
        self.due = time.monotonic() + pause_s
        if self.exporter.idle:
            self._listen(block_ms)
        return True

    def hear(self) -> None:
        """It has rung: something was written, the wait is over, or the line is lost."""
        self.rings, self.due = False, 0.0
        try:
            self.bell.reply()
        except EventBusError as error:
            log.debug("a wait for changes was cut off: %s", error)

    def close(self) -> None:
        with self.lock:
            self.bell.close()
            self.exporter.close()

    def _listen(self, block_ms: int) -> None:
        try:
            self.bell.send(*self.exporter.bell(block_ms))
        except EventBusError as error:
            log.debug("nobody waits for changes: %s", error)
            self.due = time.monotonic() + block_ms / 1000
        else:
            self.rings, self.due = True, time.monotonic() + block_ms / 1000 + REPLY_S

    def _silence(self) -> None:
        self.rings = False
        self.bell.close()


__all__ = ["ExportLane"]
