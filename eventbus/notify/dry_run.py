"""Prints the notifications that rules would send now, without a lease, a position or a receiver."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any

from eventbus.broker.bus import Bus
from eventbus.consume.heartbeat import LoopHealth
from eventbus.notify.change_reader import Reader
from eventbus.notify.engine import Engine, Links, Send
from eventbus.notify.receivers.contract import Notification
from eventbus.notify.rules import Rules
from eventbus.notify.silence_reader import SilenceChange, SilenceReader
from eventbus.util.clock import Clock
from eventbus.util.text import printable


class DryRun:
    """Implements `Part`. One thread, and that of the reader."""

    def __init__(self, bus: Bus, rules: Rules, *, links: Links, clock: Clock, since: float | None) -> None:
        self._clock = clock
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._engine = Engine(rules, links=links, refresh_s=bus.options.refresh_s)
        partitions = [[each] for each in range(bus.partitions)] if bus.is_cluster else [range(bus.partitions)]
        self._readers = [Reader(bus, dict.fromkeys(some), self._inbox, since=since) for some in partitions]
        self._silences = SilenceReader(bus, self._inbox)
        self._last_progress = clock.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eventbus-notify-dry-run", daemon=True)

    def start(self) -> None:
        self._silences.start()
        self._silences.apply_all(self._engine, self._now_ms())
        for reader in self._readers:
            reader.start()
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        self._stop.set()
        for reader in self._readers:
            reader.stop()
        self._silences.stop()
        self._inbox.put(None)
        self._thread.join(timeout_s)

    def loop_health(self) -> list[LoopHealth]:
        return [LoopHealth(group="notify", partition=0, last_progress=self._last_progress, ready=True, counts={})]

    def _run(self) -> None:
        while not self._stop.is_set():
            self._last_progress = self._clock.monotonic()
            next_ms = self._engine.next_ms()
            wait_s = 1.0 if next_ms is None else min(1.0, max(0.0, (next_ms - self._now_ms()) / 1000))
            try:
                batch = self._inbox.get(timeout=wait_s)
            except Empty:
                batch = None
            if isinstance(batch, SilenceChange):
                self._silences.apply(batch, self._engine, self._now_ms())
            elif batch is not None:
                self._engine.take(batch.occurrences, self._now_ms())
                batch.done()
            for send in self._engine.advance(self._now_ms()):
                print("\n".join(describe(send, datetime.now(UTC))), flush=True)
                self._engine.settle(send.group, send.integration, send.notification.key, {}, self._now_ms())
            self._engine.changed()

    def _now_ms(self) -> int:
        return self._clock.time_ns() // 1_000_000


def describe(send: Send, at: datetime) -> Iterator[str]:
    """Yield lines about a notification: a head, then each alert."""
    notification: Notification = send.notification
    head = f"{at:%H:%M:%S} {notification.receiver}/{send.integration} {notification.status} ({notification.reason})"
    yield printable(f"{head} {notification.group_key}")
    for alert in notification.alerts:
        ended = f", ended by {alert.ended_by}" if alert.ended_by else ""
        text = f"{alert.annotations['summary']} ×{alert.count}{ended}: {alert.annotations['message']}"
        yield printable(f"  {alert.status:8} {text}")
