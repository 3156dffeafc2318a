"""Reads several partitions from positions, without a group, in one thread: all wait, one at a time is handled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from eventbus.backoff import Backoff
from eventbus.broker.blocking_read import BlockingRead
from eventbus.broker.connection.connect import Client
from eventbus.broker.connection.plain_client import REPLY_S
from eventbus.broker.stream_reader import Delivery, Position
from eventbus.broker.wakeable_wait import WakeableWait
from eventbus.errors import BusUnavailable, EventBusError
from eventbus.log import log

BACKOFF = Backoff(first_s=0.1, last_s=10.0)


class StreamLane:
    """Calls *handle* with each delivery of *positions*, in the order of each, until `stop`.

    A slow handler delays the other partitions of this lane only.
    """

    def __init__(
        self,
        positions: Sequence[tuple[Client, Position]],
        handle: Callable[[Delivery], None],
        *,
        block_ms: int,
        name: str,
    ) -> None:
        self._seats = [_Seat(client, position) for client, position in positions]
        self._handle = handle
        self._block_ms = block_ms
        self._stop = False
        self._wait = WakeableWait()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def stop(self) -> None:
        """End after the delivery that is being handled; returns at once. Idempotent."""
        self._stop = True
        self._wait.wake()
        if self.thread.ident is None:
            self._close()

    def _run(self) -> None:
        try:
            while not self._stop:
                for seat in self._seats:
                    if seat.waits_until is None and time.monotonic() >= seat.due:
                        self._attempt(seat, partial(seat.send, self._block_ms))
                looked_at, found = self._look()
                for seat in self._seats:
                    if seat in found:
                        self._attempt(seat, partial(self._take, seat))
                    elif seat.waits_until is not None and seat.waits_until < looked_at:
                        self._attempt(seat, seat.give_up)
        except SystemExit:
            pass  # of the handler, whose watcher stops
        finally:
            self._close()

    def _look(self) -> tuple[float, list[_Seat]]:
        """Wait for a reply or a due time. Return when the wait began, and the seats whose reply has begun."""
        now = time.monotonic()
        next_s = min(seat.due if seat.waits_until is None else seat.waits_until for seat in self._seats)
        return now, self._wait.wait([seat for seat in self._seats if seat.waits_until is not None], next_s - now)

    def _take(self, seat: _Seat) -> None:
        for delivery in seat.take():
            if self._stop:
                return
            self._handle(delivery)

    def _attempt(self, seat: _Seat, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            if self._stop:
                return
            seat.fail()
            if seat.failures == 1:
                unforeseen = None if isinstance(error, EventBusError) else error
                log.warning("watcher waits: %s", error, exc_info=unforeseen)

    def _close(self) -> None:
        for seat in self._seats:
            seat.read.close()
        self._wait.close()


class _Seat:
    """One partition: it waits until it is *due*, or for a reply until *waits_until*; seconds, monotonic."""

    def __init__(self, client: Client, position: Position) -> None:
        self.position = position
        self.read = BlockingRead(client, position.key)
        self.due = 0.0
        self.waits_until: float | None = None
        self.failures = 0

    def fileno(self) -> int:
        return self.read.fileno()

    def send(self, block_ms: int) -> None:
        self.read.send(*self.position.command(block_ms))
        self.waits_until = time.monotonic() + block_ms / 1000 + REPLY_S

    def take(self) -> list[Delivery]:
        self.waits_until = None
        found = self.position.take(self.read.reply())
        self.failures = 0
        return found

    def give_up(self) -> None:
        raise BusUnavailable("no reply to a read: wait and call again")

    def fail(self) -> None:
        self.read.close()
        self.waits_until = None
        self.failures += 1
        self.due = time.monotonic() + BACKOFF.pause_s(self.failures)
