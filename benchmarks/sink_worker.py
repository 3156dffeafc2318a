"""The store's sink worker on a server of its own, without threads, so that each call can be measured."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.calls import PendingCalls
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.functions import CorrelateCall, Functions, GroupPolicy
from eventbus.broker.keys import SINK_GROUP
from eventbus.broker.stream_reader import GroupReader
from eventbus.consume.housekeeper import Housekeeper
from eventbus.correlate.store_recorded_events import StoreSink
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS, pack_batch, pack_event
from eventbus.model.event import Event
from eventbus.settings import Options, Settings


class TimedFunctions(Functions):
    """Notes how long each call took, seen from the client: that before it may still be under way."""

    def __init__(self, client: Any, bus: Bus) -> None:
        super().__init__(client, bus.keys[0], bus)
        self.seconds: list[float] = []

    def begin_correlate_and_store(
        self, group: str, consumer: str, options: Options, call: CorrelateCall, after: PendingCalls | None = None
    ) -> PendingCalls:
        start = time.perf_counter()
        sent = super().begin_correlate_and_store(group, consumer, options, call, after)
        answers = sent.replies

        def replies() -> Any:
            try:
                return answers()
            finally:
                self.seconds.append(time.perf_counter() - start)

        sent.replies = replies  # type: ignore[method-assign]
        return sent


class Worker:
    """The store's sink worker without its thread, on partition 0."""

    def __init__(self, bus: Bus, housekeeper: Housekeeper | None = None) -> None:
        self.bus, self.client = bus, bus.client()
        self.events = 0
        self._sink = StoreSink(bus, 0, housekeeper)
        self._reader = GroupReader(
            bus=bus, client=self.client, partition=0, group=SINK_GROUP, consumer="w", policy=GroupPolicy.WAIT, start="0"
        )
        self.functions = self._reader.functions = TimedFunctions(self.client, bus)
        self.client.config_resetstat()

    def append(self, events: Sequence[Event]) -> None:
        """Queue *events* in batches as full as producers make them under load."""
        pipe = self.client.pipeline(transaction=False)
        for batch in chunks(events, len(events), MAX_BATCH_EVENTS):
            self.events += len(batch)
            body = pack_batch("producer", 1, [pack_event(one) for one in batch])
            pipe.xadd(self.bus.keys[0].incoming, {"n": len(batch), "to": self.events, "at": 0, "b": body})
        pipe.execute()

    def drain(self) -> None:
        """Record everything that is queued."""
        while deliveries := self._reader.read(0):
            self._sink.handle(self._reader, deliveries)


@contextmanager
def an_embedded_bus(options: Options | None = None) -> Iterator[Bus]:
    """A fresh server with the configuration users get: append-only file, fsync every second."""
    with tempfile.TemporaryDirectory(prefix="eventbus-bench-") as folder:
        server = EmbeddedServer(Path(folder))
        try:
            yield open_bus(server.start(), Settings(), options=options)
        finally:
            server.stop()


def chunks(events: Iterable[Event], total: int, size: int) -> Iterator[list[Event]]:
    """The first *total* of them, in lists of *size*."""
    source = islice(events, total)
    while part := list(islice(source, size)):
        yield part
