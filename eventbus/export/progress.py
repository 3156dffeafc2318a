"""Reports an exporter's work: in the log, in Redis for `status`, and as counts of its process."""

from __future__ import annotations

from collections.abc import Callable

from eventbus.broker.exports import Burial, ExportCheckpoint, ExportStore, UpdateState, export_group
from eventbus.errors import DeadCause, EventBusError, Throttled
from eventbus.export.deliveries import Outcome
from eventbus.export.lease import LeaseLost
from eventbus.export.sinks.contract import delivery_id
from eventbus.store.event_storage import pack_alone
from eventbus.util.clock import Clock
from eventbus.util.log import log
from eventbus.util.text import printable

#: How much of an error's text is kept, characters.
WHY_LENGTH = 300


class Figures:
    """The counts of an exporter since it began. Written by its thread, read by any. They only go up."""

    def __init__(self) -> None:
        self.holds = False  #: has the lease
        self.written = 0
        self.unmatched = 0  #: changes of events that do not match, which are never written
        self.held_back = 0  #: repeats that were not written, or not yet
        self.retries = 0
        self.buried = 0
        self.rejected = 0  #: events that the system did not take, without saying which; also counted as written
        self.probes = 0  #: of a sink that does not answer
        self.lists = 0  #: times it listed the store, to begin or to catch up
        self.pending = 0  #: events in hand, not settled
        self.paused_since: float | None = None  #: seconds since 1970


class ExportProgress:
    """Collects pauses, retries and the outcome of each event from the sink writer, and from the rules the events not
    written."""

    def __init__(
        self, store: ExportStore, *, sink: str, clock: Clock, title: str, on_change: Callable[[str, str], None] | None
    ) -> None:
        self.figures = Figures()
        self._store = store
        self._sink = sink
        self._clock = clock
        self._title = title
        self._on_change = on_change
        self._pause_logged = False
        self._retrying = False

    def begin(self, mode: str) -> ExportCheckpoint:
        """Record that this worker has the lease now. A pause of the previous worker continues."""
        self.figures.holds = True
        self.figures.paused_since = self._store.paused_since()
        return ExportCheckpoint(figures={"mode": mode, "pending": "0", "retrying": "0"})

    def end(self) -> None:
        """Record that this worker has lost or released the lease."""
        self.figures.holds, self.figures.pending = False, 0
        self.figures.paused_since = None
        self._pause_logged = self._retrying = False

    def paused(self, error: EventBusError, retry_after_s: float | None) -> None:
        """Report that the export pauses: it reads nothing and buries nothing. Logged once, stored at every probe."""
        why = printable(str(error))
        if self.figures.paused_since is None:
            self.figures.paused_since = self._clock.time_ns() / 1e9
        if not self._pause_logged:
            self._pause_logged = True
            log.warning("%s pauses: %s", self._title, why)
            reason = "SinkThrottled" if isinstance(error, Throttled) else "SinkUnreachable"
            self._change(reason, f"{self._sink}: {why}")
        self.figures.probes += 1
        since_ms = int(self.figures.paused_since * 1000)
        figures = {"paused_since_ms": str(since_ms), "pending": str(self.figures.pending)} | self._error(str(error))
        self._store_figures(ExportCheckpoint(figures=figures, raised={"probes": 1}))

    def resumed(self) -> None:
        """Note that the sink answers again, in the log, as an event and in Redis."""
        log.warning("%s goes on", self._title)
        self._pause_logged, self.figures.paused_since = False, None
        self._change("SinkReachable", f"{self._sink} answers again")
        self._store_figures(ExportCheckpoint(figures={"paused_since_ms": "", "pending": "0"}))

    def retrying(self, error: EventBusError, events: int) -> None:
        """Note that so many *events* have failed and are tried again, in the log and in Redis."""
        self._retrying = True
        self.figures.retries += events
        log.warning("%s: %d events failed and are tried again: %s", self._title, events, printable(str(error)))
        figures = {"retrying": str(events), "pending": str(self.figures.pending)} | self._error(str(error))
        self._store_figures(ExportCheckpoint(figures=figures, raised={"retries": events}))

    def rejected(self, events: int) -> None:
        """Report that the system has rejected *events* of a batch, without saying which: they cannot be sent again."""
        self.figures.rejected += events
        log.error("%s: the system has rejected %d events, and does not say which", self._title, events)
        self._store_figures(ExportCheckpoint(raised={"rejected": events}))

    def unmatched(self, settled: ExportCheckpoint) -> None:
        """Count a change of an event that does not match."""
        self.figures.unmatched += 1
        _count(settled, "unmatched")

    def held_back(self, settled: ExportCheckpoint) -> None:
        """Count a repeat that is not written, or not yet."""
        self.figures.held_back += 1
        _count(settled, "held_back")

    def settled(self, outcome: Outcome, settled: ExportCheckpoint) -> None:
        """Add the outcome of one event to *settled*."""
        self.figures.pending -= 1
        if self.figures.paused_since is not None:  # it has answered: this ends also a pause that another worker began
            self.figures.paused_since = None
            settled.figures["paused_since_ms"] = ""
        if outcome.cause:
            self._buried(outcome, outcome.cause, settled)
        else:
            self._written(outcome, settled)

    def round_done(self, settled: ExportCheckpoint) -> None:
        """Note that nothing of the round is in hand any more."""
        if self._retrying:
            self._retrying = False
            settled.figures |= {"retrying": "0", "pending": "0"}

    def _written(self, outcome: Outcome, settled: ExportCheckpoint) -> None:
        delivery, now_ms = outcome.delivery, self._now_ms()
        self.figures.written += 1
        _count(settled, "written")
        settled.figures["written_ms"] = str(now_ms)
        if outcome.returned is not None and delivery.version:  # else as in `_buried`
            name, version = outcome.returned.metadata.name, outcome.returned.metadata.resource_version
            settled.returned[delivery.key] = UpdateState(
                name or delivery.event.metadata.name, version, delivery.version, delivery.event.occurrences, now_ms
            )

    def _buried(self, outcome: Outcome, cause: DeadCause, settled: ExportCheckpoint) -> None:
        event, why = outcome.delivery.event, printable(outcome.why)
        about = printable(f"{event.metadata.namespace}/{event.metadata.name}")
        log.error("%s: event %s is buried (%s): %s", self._title, about, cause, why)
        self.figures.buried += 1
        _count(settled, "dead")
        settled.figures |= self._error(outcome.why)
        delivery, known = outcome.delivery, outcome.delivery.known
        if delivery.version:  # else the store has forgotten it, and when it comes back it is a new one
            # The rule then treats later changes as repeats. Else each would be written and become a dead letter.
            name, version = (known.name, known.version) if known else ("", "")
            settled.returned[delivery.key] = UpdateState(
                name, version, delivery.version, event.occurrences, self._now_ms(), written=known is not None
            )
        group, text = export_group(self._sink), why[:WHY_LENGTH]
        settled.burials.append(Burial(cause, delivery_id(event), group, delivery.key, text, pack_alone(event)))

    def _error(self, text: str) -> dict[str, str]:
        return {"error": printable(text)[:WHY_LENGTH], "error_ms": str(self._now_ms())}

    def _store_figures(self, settled: ExportCheckpoint) -> None:
        """Store only the counters. They may be late, so an outage of Redis does not block. Raises: LeaseLost."""
        try:
            if not self._store.settle(settled):
                raise LeaseLost
        except EventBusError as error:
            log.debug("%s: figures are not kept: %s", self._title, error)

    def _change(self, reason: str, message: str) -> None:
        if self._on_change is not None:
            self._on_change(reason, message)

    def _now_ms(self) -> int:
        return self._clock.time_ns() // 1_000_000


def _count(settled: ExportCheckpoint, counter: str) -> None:
    settled.raised[counter] = settled.raised.get(counter, 0) + 1
