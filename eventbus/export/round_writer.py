"""Writes rounds of deliveries to a sink and stores their results, while the sink writes the next one if it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from eventbus.broker.exports import ExportCheckpoint
from eventbus.errors import EventBusError, SinkGone
from eventbus.export.batch import SinkDelivery
from eventbus.export.choice import Choice
from eventbus.export.pausing import Pausing
from eventbus.export.progress import ExportProgress
from eventbus.export.sink_writer import Outcome, SinkWriter
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint

#: The maximum time between two checkpoints, so that few writes are repeated after a crash.
KEEP_EVERY_S = 1.0


class ExportStopped(Exception):
    """The exporter stopped in the middle of a batch: the next worker writes the unsettled events."""


class Round(msgspec.Struct, kw_only=True):
    """Deliveries of different events. After them the export's position is *position*; None: unchanged.

    *done*: entries that are no longer delayed, although nothing is written for them.
    """

    deliveries: Sequence[SinkDelivery]
    position: int | None = None
    done: Sequence[str] = ()
    chosen: _Chosen | None = None  #: set when it was made ready


class _Chosen(msgspec.Struct):
    """The deliveries of a round to write, and the results to store for the others."""

    deliveries: Sequence[SinkDelivery]
    settled: ExportCheckpoint


class RoundWriter:
    """Writes rounds one after another.

    While a sink that can be asked and answers later is at a round, the one before it is kept, and the next one is read,
    chosen and prepared. Nothing is kept before the sink has answered, and rounds are kept in their order.

    Args: keep: keeps a checkpoint, however long Redis is away. Raises: LeaseLost.
    """

    def __init__(
        self,
        writer: SinkWriter,
        choice: Choice,
        progress: ExportProgress,
        keep: Callable[[ExportCheckpoint], Pausing[None]],
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._choice = choice
        self._progress = progress
        self._keep = keep
        self._clock = clock
        self._written: ExportCheckpoint | None = None  #: of a round that the sink has, and that is not kept yet

    def write_all(self, rounds: Iterator[Round]) -> Pausing[None]:
        """Write *rounds* and store their results. The next round is read while the sink writes the current one.

        Raises: ExportStopped: some are not written; SinkGone, LeaseLost, and the errors of *rounds*.
        """
        self._written = None
        following = next(rounds, None)
        while following is not None:
            current, following = following, None
            asked, failed = False, None

            def meanwhile(current: Round = current) -> Pausing[None]:
                nonlocal following, asked, failed
                asked = True
                yield from self._keep_written()
                try:
                    if following := next(rounds, None):
                        self._make_ready(following, behind=current)
                except EventBusError as error:  # the sink's answer comes first
                    failed = error

            yield from self._write(current, meanwhile)
            if not asked:
                yield from self._keep_written()
                following = next(rounds, None)
            elif failed is not None:
                yield from self._keep_written()
                raise failed
        yield from self._keep_written()

    def _make_ready(self, following: Round, behind: Round) -> None:
        """Choose and prepare the deliveries of *following*, unless the choice depends on the results of *behind*."""
        keys = {delivery.key for delivery in behind.deliveries}
        if keys.isdisjoint(delivery.key for delivery in following.deliveries):
            chosen = self._choose(following)
            following.chosen = _Chosen(self._writer.prepare(chosen.deliveries), chosen.settled)

    def _choose(self, round_: Round) -> _Chosen:
        settled = ExportCheckpoint(position=round_.position, done=list(round_.done))
        return _Chosen(list(self._choice.choose(round_.deliveries, settled)), settled)

    def _write(self, round_: Round, meanwhile: Callable[[], Pausing[None]]) -> Pausing[None]:
        if round_.chosen is None:
            yield from self._keep_written()  # it may be about the same events
            round_.chosen = self._choose(round_)
        chosen, settled = round_.chosen.deliveries, round_.chosen.settled
        position, settled.position = settled.position, None
        figures, kept_at = self._progress.figures, self._clock.monotonic()
        figures.pending = len(chosen)

        def settle(outcome: Outcome) -> Pausing[None]:
            nonlocal settled, kept_at
            failpoint("written")
            self._progress.settled(outcome, settled)
            if self._clock.monotonic() - kept_at >= KEEP_EVERY_S:
                yield from self._keep_written()
                yield from self._keep(settled)
                settled, kept_at = ExportCheckpoint(), self._clock.monotonic()

        try:
            yield from self._writer.write(chosen, settle, meanwhile)
        except SinkGone:
            yield from self._keep_written()
            raise
        if figures.pending:
            yield from self._keep_written()
            yield from self._keep(settled)
            raise ExportStopped
        for delivery in round_.deliveries:
            if delivery.forget:
                settled.returned[delivery.key] = None
                settled.done.append(delivery.key)
            elif delivery.waited and delivery.key not in settled.later:
                settled.done.extend(delivery.waited)
        self._progress.round_done(settled)
        settled.position = position
        failpoint("settled")
        yield from self._keep_written()
        self._written = settled

    def _keep_written(self) -> Pausing[None]:
        """Store the results of the previous round, unless they are stored."""
        written, self._written = self._written, None
        if written is not None:
            yield from self._keep(written)
            failpoint("kept")


__all__ = ["KEEP_EVERY_S", "ExportStopped", "Round", "RoundWriter"]
