"""Chooses which changes of events are written to a sink now, later or never."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from eventbus.broker.exports import ExportCheckpoint, ExportStore
from eventbus.export.batch import SinkDelivery
from eventbus.export.progress import ExportProgress
from eventbus.export.repeats import Repeats
from eventbus.export.sinks.contract import Verb
from eventbus.util.clock import Clock


class Choice:
    """Selects the repeats to write, with the sink's last replies, which the store keeps."""

    def __init__(self, store: ExportStore, repeats: Repeats, progress: ExportProgress, clock: Clock) -> None:
        self._store = store
        self._repeats = repeats
        self._progress = progress
        self._clock = clock

    def choose(self, deliveries: Sequence[SinkDelivery], settled: ExportCheckpoint) -> Iterator[SinkDelivery]:
        """Yield those that are to be written, with the sink's last reply about them; note the others in *settled*."""
        known = self._store.returned([delivery.key for delivery in deliveries])
        for delivery in deliveries:
            delivery = msgspec.structs.replace(delivery, known=known.get(delivery.key))
            if self._is_due(delivery, settled):
                if delivery.known is not None and not delivery.known.written:
                    delivery = msgspec.structs.replace(delivery, known=None, verb=delivery.verb or Verb.CREATE)
                yield delivery

    def _is_due(self, delivery: SinkDelivery, settled: ExportCheckpoint) -> bool:
        known, policy, now_ms = delivery.known, self._repeats, self._clock.time_ns() // 1_000_000
        if delivery.forced:
            return True
        if known is not None and known.rv >= delivery.version:
            return False
        later_ms = None if known is None else policy.later_ms(known, now_ms)
        if delivery.forget and later_ms is not None:
            # The event is gone from the store, so the delayed repeat is written now.
            return known is not None and known.count < delivery.event.count
        if delivery.only_forget:
            return False
        if policy.due(delivery.event.count, known, now_ms):
            return True
        self._progress.held_back(settled)
        if known is not None:
            settled.refreshed.append(delivery.key)
        if later_ms is not None:
            settled.later[delivery.key] = later_ms
        return False


__all__ = ["Choice"]
