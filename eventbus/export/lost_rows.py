"""Removes rows from a sink if the store has lost their events and the events came back under another uid.

Redis may lose its last writes in a restart or a failover, after the sink has received them. The producers send the
events again. If several producers sent the same event, another one may come first now, and the event gets its uid.

    1. Events a1 of producer A and b1 of producer B are one event, with the uid of a1. It is exported.
    2. Redis loses both events, and the export's position.
    3. B sends b1 again, then A sends a1: one event again, with the uid of b1. It is exported: the row of a1 must go.

If the store does not have an event, it is not necessarily lost: it may have expired, or been evicted or deleted. So a
row is removed only if all of these conditions are true:

- This partition of this bus wrote it, and it was last seen within an event's lifetime.
- The store lost the row's version: it is between two entries of the stream of changes.
- No event of the store has its uid.
- Since then, the event, or an aggregate of it and similar events, was written with another uid.

All other rows stay, and are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from eventbus.broker.bus import Bus
from eventbus.broker.exports import ExportCheckpoint, ExportStore, LostVersions
from eventbus.errors import EventRejected
from eventbus.export.deliveries import Round
from eventbus.export.lease import Waits
from eventbus.export.sink_writer import ExportStopped, SinkWriter, Stopped
from eventbus.export.sinks.contract import DeletingSink, EventSink
from eventbus.model.event import Event
from eventbus.util.clock import Clock
from eventbus.util.log import log

#: The maximum number of rows in memory. A server loses fewer writes in a second.
MOST_ROWS = 20_000
#: Producers detect a loss within this time, also if they record nothing (`record/resend.py`). An event that first
#: happened later is new.
SENT_AGAIN_S = 60

#: The fields that events must share to be counted or aggregated together.
_Subject: TypeAlias = tuple[str, ...]


class LostRows:
    """The rows of one sink and partition that the store has lost. One thread.

    Args: keep: stores a checkpoint, and waits while Redis is unavailable. Raises: LeaseLost.
          scan: reads the stored events that changed after a version.
          uids: reads the uids of the events of the store that have these namespaces and names.
    """

    def __init__(
        self,
        sink: EventSink,
        *,
        bus: Bus,
        partition: int,
        store: ExportStore,
        writer: SinkWriter,
        clock: Clock,
        keep: Callable[[ExportCheckpoint], Waits[None]],
        scan: Callable[[int], Iterable[Event]],
        uids: Callable[[Sequence[tuple[str, str]]], Set[str]],
        title: str,
    ) -> None:
        self._sink = sink if isinstance(sink, DeletingSink) else None
        self._bus = bus
        self._partition = partition
        self._store = store
        self._writer = writer
        self._clock = clock
        self._keep = keep
        self._scan = scan
        self._uids = uids
        self._title = title
        self.forget()

    @property
    def origin(self) -> str:
        """Return the origin of this partition's rows: the bus id and the partition."""
        return f"{self._bus.id}/{self._partition}"

    def forget(self) -> None:
        """Clear the state: the next holder of the lease reads it again."""
        self._lost: LostVersions | None = None
        self._rows: dict[_Subject, list[Event]] = {}
        self._replaced: list[Event] = []

    def resume(self) -> Waits[None]:
        """Continue with the loss that the previous worker found. Raises: ExportStopped, and Redis errors."""
        self.forget()
        lost = self._store.lost_versions() if self._sink else None
        if lost is None:
            return
        self._lost = lost
        yield from self._find(lost)
        if self._rows:
            for event in self._scan(lost.after):
                self.see(event)
            yield from self.remove()

    def find(self, after: int) -> Waits[None]:
        """Find lost rows, if the changes after *after*, the last version read, are missing.

        Raises: ExportStopped, and Redis errors.
        """
        if self._sink is None:
            return
        before = self._store.entry_before(after)
        if before is None:
            return  # the stream was flushed or trimmed: lost and deleted events cannot be distinguished
        yield from self._give_up()
        self._lost = LostVersions(before, self._store.newest_version(), self._clock.time_ns() // 1_000_000)
        yield from self._find(self._lost)
        if self._rows:
            count = sum(map(len, self._rows.values()))
            text = "each goes if its event comes back under another uid"
            log.warning(
                "%s: Redis has lost writes, and with them %d events that the sink has: %s", self._title, count, text
            )

    @property
    def note(self) -> dict[str, str]:
        """Return the figures that the next worker needs, to be kept with the position."""
        return {"lost": str(self._lost)} if self._lost and self._rows else {}

    def watch(self, rounds: Iterator[Round]) -> Iterator[Round]:
        """Yield *rounds*, and look at their events as `see` does."""
        for round_ in rounds:
            if self._rows:
                for delivery in round_.deliveries:
                    if not delivery.only_forget:
                        self.see(delivery.event)
            yield round_

    def see(self, event: Event) -> None:
        """Look whether *event*, of the store, takes the place of a row. Call `remove` then, when nothing is written."""
        rows = self._rows.get(_subject(event))
        if not rows or self._lost is None:
            return
        first_seen = event.first_timestamp or event.event_time or event.metadata.creation_timestamp
        latest = datetime.fromtimestamp(self._lost.noticed_ms / 1000, UTC) + timedelta(seconds=SENT_AGAIN_S)
        for row in list(rows):
            if row.metadata.uid == event.metadata.uid:
                rows.remove(row)
            elif self._is_same(row, event) and (first_seen is None or first_seen <= latest):
                rows.remove(row)
                self._replaced.append(row)

    def remove(self) -> Waits[None]:
        """Remove replaced rows. Do not call it while the sink writes. Raises: ExportStopped, and Redis errors."""
        if self._sink is None or self._lost is None:
            return
        if self._replaced:
            rows, self._replaced = self._replaced, []
            stored = self._uids([(row.metadata.namespace, row.metadata.name) for row in rows])
            gone = [row for row in rows if row.metadata.uid not in stored]
            old = [row for row in gone if (row.last_seen or self._oldest()) < self._oldest()]
            yield from self._delete(self._sink, [row for row in gone if row not in old], kept=len(old))
        if self._lost.noticed_ms + self._life_ms <= self._clock.time_ns() // 1_000_000:
            yield from self._give_up()

    def _find(self, lost: LostVersions) -> Waits[None]:
        sink = self._sink
        assert sink is not None
        try:
            rows = yield from self._writer.ask(
                lambda: sink.held(self.origin, after=lost.after, until=lost.until, since=self._oldest(), most=MOST_ROWS)
            )
        except EventRejected as error:
            log.warning("%s: Redis has lost writes; the events that the sink has of them stay: %s", self._title, error)
            return
        if isinstance(rows, Stopped):
            raise ExportStopped
        versions = self._store.lost_among([int(event.metadata.resource_version) for event in rows])
        for event in rows:
            if int(event.metadata.resource_version) in versions:
                self._rows.setdefault(_subject(event), []).append(event)

    def _delete(self, sink: DeletingSink, rows: Sequence[Event], *, kept: int) -> Waits[None]:
        deleted = 0
        if rows:
            try:
                answer = yield from self._writer.ask(lambda: sink.delete(rows))
            except EventRejected as error:
                log.warning("%s: %d events that came back under another uid stay: %s", self._title, len(rows), error)
                kept += len(rows)
            else:
                if isinstance(answer, Stopped):
                    raise ExportStopped
                deleted = answer
                log.info("%s: removed %d events that came back under another uid", self._title, deleted)
        yield from self._keep(ExportCheckpoint(raised={"deleted": deleted, "kept": kept}))

    def _give_up(self) -> Waits[None]:
        """Count the rows that stay: nothing has taken their place."""
        kept = sum(map(len, self._rows.values()))
        self.forget()
        if kept:
            yield from self._keep(ExportCheckpoint(raised={"kept": kept}, figures={"lost": ""}))

    def _is_same(self, row: Event, event: Event) -> bool:
        combined = self._bus.options.aggregate_message
        if row.message.startswith(combined) or event.message.startswith(combined):
            return True
        same_part = row.involved_object.field_path == event.involved_object.field_path
        return same_part and row.message == event.message

    @property
    def _life_ms(self) -> int:
        return self._bus.options.event_ttl_s * 1000

    def _oldest(self) -> datetime:
        return datetime.fromtimestamp(self._clock.time_ns() / 1e9 - self._bus.options.event_ttl_s, UTC)


def _subject(event: Event) -> _Subject:
    # Without the reporting component: aggregates have none.
    about, source = event.involved_object, event.source
    return (
        *(about.kind, about.namespace, about.name, about.uid, about.api_version, event.type, event.reason),
        *(source.component, source.host),
    )
