"""Deliveries to a sink: made from changes, one for each event with its newest state, and their outcomes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eventbus.broker.exports import UpdateState
from eventbus.errors import DeadCause
from eventbus.export.sinks.contract import EventPatch, Verb
from eventbus.model.event import Event
from eventbus.store.changes import Change
from eventbus.store.storage import ChangeType


class SinkDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """An event to write to a sink: as a patch if the sink has it, else by *verb*. None: the changes decide.

    *known* is the sink's last reply. *forget*: the event is gone from the store, so its reply is removed too.
    *waited*: its entries in `later` (its key or dead entries), which are removed when the event is settled.
    """

    key: str
    event: Event
    verb: Verb | None = None
    added: bool = False  #: the event's first change is in the batch
    known: UpdateState | None = None
    forget: bool = False
    only_forget: bool = False  #: do not write the event
    forced: bool = False  #: requested by a user: written even if the sink has it
    waited: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """Return the store's version of the event."""
        return int(self.event.metadata.resource_version)

    def patch(self) -> EventPatch:
        """Return the repeat as a patch of the sink's known name and version, else of the event's own name."""
        event, known = self.event, self.known
        return EventPatch(
            name=known.name if known else event.metadata.name,
            version=known.version if known else "",
            count=event.occurrences,
            last_timestamp=event.last_timestamp,
            message=event.message,
            series=event.series,
        )


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a delivery: *returned* by the sink, or given up for *cause*; neither: the sink had it."""

    delivery: SinkDelivery
    returned: Event | None = None
    cause: DeadCause | None = None
    why: str = ""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries of different events. After them the export's position is *position*; None: unchanged.

    *done*: entries that are no longer delayed, although nothing is written for them.
    """

    deliveries: Sequence[SinkDelivery]
    position: int | None = None
    done: Sequence[str] = ()


def make_rounds(changes: Sequence[Change[Event]], *, coalesce: bool, most: int = 0) -> list[list[SinkDelivery]]:
    """Group the deliveries of *changes*, oldest first, into rounds of at most *most* (0: any number).

    No event occurs twice in a round. With *coalesce*, an event has one delivery, with its newest state, unless it was
    deleted and added again. Otherwise every change is a separate round, as client-go writes them.
    """
    rounds: list[dict[str, SinkDelivery]] = []
    last: dict[str, int] = {}  # the round that has the event's newest delivery
    for change in changes:
        at = last.get(change.key, -1)
        former = rounds[at][change.key] if at >= 0 else None
        merged = _merge(former, change) if coalesce or change.type is ChangeType.DELETED else None
        if merged is not None:
            rounds[at][change.key] = merged
            continue
        at = at + 1 if coalesce else len(rounds)
        if at == len(rounds):
            rounds.append({})
        rounds[at][change.key] = _delivery(change)
        last[change.key] = at
    return [part for deliveries in rounds for part in _split(list(deliveries.values()), most)]


def _split(deliveries: list[SinkDelivery], most: int) -> list[list[SinkDelivery]]:
    step = most or len(deliveries)
    return [deliveries[at : at + step] for at in range(0, len(deliveries), step)]


def _merge(former: SinkDelivery | None, change: Change[Event]) -> SinkDelivery | None:
    """Merge *change* into *former*; None: the change needs a separate delivery."""
    if former is None or former.forget:
        return None
    if change.type is ChangeType.DELETED:
        return msgspec.structs.replace(former, forget=True)
    if change.type is ChangeType.ADDED:
        return None
    return msgspec.structs.replace(former, event=change.object)


def _delivery(change: Change[Event]) -> SinkDelivery:
    gone = change.type is ChangeType.DELETED
    return SinkDelivery(
        key=change.key,
        event=change.object,
        added=change.type is ChangeType.ADDED,
        forget=gone,
        only_forget=gone,
    )
