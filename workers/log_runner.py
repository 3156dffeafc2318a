"""Runs a worker of the group `log` in threads of this process, and the housekeeping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventbus.broker.bus import LOG_GROUP
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.stream_reader import Delivery, GroupReader
from eventbus.broker.transport import PRODUCER_LIFE_MS
from eventbus.consume.group_runner import GroupRunner
from eventbus.consume.housekeeper import Housekeeper
from eventbus.errors import DeadCause, PoisonBatch
from eventbus.model.encoding.wire import Batch, unpack_batch, unpack_event
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log
from eventbus.workers.log_lines import Format, formatter, line_uid
from eventbus.workers.log_output import Batch as Lines
from eventbus.workers.log_output import Line, Output, Owned, ReaderGone
from eventbus.workers.worker import Context

#: Seconds after a start, or a restart or failover of Redis, in which each uid is looked up in the file. Producers send
#: lost events again, most within a minute. After this time Redis forgets a silent producer.
SENT_AGAIN_S = PRODUCER_LIFE_MS / 1000


def log_worker(context: Context, *, output: Output, form: Format, take_over_s: float) -> GroupRunner:
    """Make a worker of the group `log`, which starts at the oldest entry. It never delays trimming (DROP)."""
    handler = _LogHandler(context, output=output, form=form)
    worker = GroupRunner(
        bus=context.bus,
        group=LOG_GROUP,
        name=context.name,
        clock=context.clock,
        block_ms=context.settings.worker_block_ms,
        handlers=lambda _partition: (handler.handle, handler.handle_alone),
        housekeeper=Housekeeper(
            bus=context.bus,
            clock=context.clock,
            on_loss=context.on_change,
            partitions=lambda: worker.partitions,
        ),
        take_over_s=take_over_s,
        policy=GroupPolicy.DROP,
        on_change=context.on_change,
    )
    return worker


class _LogHandler:
    """Formats deliveries as lines and writes them; undecodable events become dead letters. Any thread."""

    def __init__(self, context: Context, *, output: Output, form: Format) -> None:
        self._output = output
        self._form = form
        self._format = formatter(form)
        self._end = context.end
        self._clock = context.clock
        self._datasets: dict[int, str] = {}  #: partition -> the server and its history at the last write
        self._sent_again_until = 0.0  #: monotonic

    def handle(self, reader: GroupReader, deliveries: Sequence[Delivery]) -> Sequence[bytes]:
        """Write all deliveries. Raises: OutputUnavailable: nothing is acknowledged, so they are delivered again."""
        lots = [lot for delivery in deliveries if (lot := self._open(reader, delivery))]
        return self._write(reader, lots, again=any(delivery.again for delivery in deliveries))

    def handle_alone(self, reader: GroupReader, delivery: Delivery, batch: Batch, position: int) -> bool:
        """Write one event of a batch. False: another worker has taken the batch over. Raises: as `handle`."""
        lines = self._lines(reader, delivery, batch, [position])
        return not lines or bool(self._write(reader, [Lines(delivery.id, lines)], again=True))

    def _write(self, reader: GroupReader, lots: Sequence[Lines], *, again: bool) -> Sequence[bytes]:
        if not lots:
            return ()
        ids = [lot.id for lot in lots]
        try:
            return self._output.write(lots, again=again, owned=lambda: self._owned(reader, ids))
        except ReaderGone:
            self._end(1)
            return ()

    def _owned(self, reader: GroupReader, ids: Sequence[bytes]) -> Owned:
        """Return the ids that this worker still owns, and whether the server may have lost writes recently."""
        still, now = reader.still_own(ids), self._clock.monotonic()
        if self._datasets.get(reader.keys.partition) != reader.dataset:
            self._datasets[reader.keys.partition] = reader.dataset
            self._sent_again_until = now + SENT_AGAIN_S
        return Owned(still, now < self._sent_again_until)

    def _open(self, reader: GroupReader, delivery: Delivery) -> Lines | None:
        try:
            batch = unpack_batch(delivery.body)
        except PoisonBatch as poison:
            self._bury(reader, delivery, poison.cause, delivery.body, whole=True)
            return None
        failpoint("decoded", delivery.body)
        return Lines(delivery.id, self._lines(reader, delivery, batch, range(len(batch.events))))

    def _lines(self, reader: GroupReader, delivery: Delivery, batch: Batch, positions: Iterable[int]) -> Sequence[Line]:
        lines: list[Line] = []
        for position in positions:
            uid = batch.uid(position)
            try:
                lines.append(self._line(batch.events[position], uid))
            except PoisonBatch as poison:
                self._bury(reader, delivery, poison.cause, batch.alone(position), uid=uid)
            except Exception:  # our own bug must not block the log at this event forever
                log.exception("event %s cannot be written as a line", uid)
                self._bury(reader, delivery, DeadCause.NO_LINE, batch.alone(position), uid=uid)
        return lines

    def _line(self, packed: bytes, uid: str) -> Line:
        event = unpack_event(packed, uid)
        return Line(line_uid(event, self._form), self._format(event).encode("utf-8", "backslashreplace"))

    def _bury(
        self,
        reader: GroupReader,
        delivery: Delivery,
        cause: DeadCause,
        body: bytes,
        *,
        whole: bool = False,
        uid: str = "",
    ) -> None:
        what = f"event {uid}" if uid else f"batch {delivery.id.decode()}"
        log.error("%s is now a dead letter: %s", what, cause)
        reader.bury(delivery, cause, body, whole=whole)
