"""Writes rounds of deliveries to a sink and keeps what came of each, while the sink is at the next one if it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from eventbus.broker.exports import ExportCheckpoint
from eventbus.clock import Clock
from eventbus.errors import EventBusError, SinkGone
from eventbus.export.batch import SinkDelivery
from eventbus.export.choice import Choice
from eventbus.export.pausing import Pausing
from eventbus.export.progress import ExportProgress
from eventbus.export.sink_writer import Outcome, SinkWriter
from eventbus.failpoints import failpoint

#: What was written is kept at least so often, so that little is repeated after a death.
KEEP_EVERY_S = 1.0


class ExportStopped(Exception):
    """The exporter was told to stop in the middle of a batch: what is not settled is left to the next worker."""


class Round(msgspec.Struct, kw_only=True):
    """Deliveries, no event twice among them. Behind them the export stands at *position*, None: where it stood.

    *done*: what waits no longer, though nothing is written for it.
    """

    deliveries: Sequence[SinkDelivery]
    position: int | None = None
    done: Sequence[str] = ()
    chosen: _Chosen | None = None  #: set when it was made ready


class _Chosen(msgspec.Struct):
    """The deliveries of a round that are to be written, and what is to be kept of the others."""

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
        """Write *rounds* and keep what came of them. The next one is asked for while the sink is at the one before.

        Raises: ExportStopped: some are not written; SinkGone, LeaseLost, and what *rounds* raises.
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
        """Choose what of *following* is written and prepare it, unless what comes of *behind* decides that."""
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
        """Keep what came of the round before, if that is not done."""
        written, self._written = self._written, None
        if written is not None:
            yield from self._keep(written)
            failpoint("kept")


__all__ = ["KEEP_EVERY_S", "ExportStopped", "Round", "RoundWriter"]
