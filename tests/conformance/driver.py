"""The runner's protocol for anything that correlates, and the values that pass between them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from eventbus.model.event import Event
from eventbus.settings import Options


class Action(StrEnum):
    """The call that client-go's sink would have made for the decision."""

    CREATE = "create"
    PATCH = "patch"
    PATCH_CREATE = "patch+create"  #: the patch found nothing of that name, so the whole event was created


class Patch(msgspec.Struct, frozen=True):
    """The content of an update: these three fields and nothing else."""

    count: int
    last: datetime | None
    message: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one event. With *skip* the other fields mean nothing. Times are aware, UTC."""

    skip: bool = False
    count: int = 0
    message: str = ""
    name: str = ""
    namespace: str = ""
    first: datetime | None = None
    last: datetime | None = None
    action: Action = Action.CREATE
    aggregated: bool = False
    patch: Patch | None = None  #: None if and only if the event was not a repeat of a remembered one


SKIPPED = Decision(skip=True)


class StoredEvent(msgspec.Struct, frozen=True):
    """One object of the store, as far as correlation decides it."""

    namespace: str
    name: str
    count: int
    message: str
    first: datetime | None
    last: datetime | None


class Batch(NamedTuple):
    """Events of one stream entry; they share the clock of that entry, in milliseconds since 1970."""

    at_ms: int
    events: Sequence[Event]


class Driver(Protocol):
    """One correlator with its store, under the clock of the caller.

    Events arrive complete: namespace, timestamps and count are filled in. Times may go back between calls; that is
    the clock going back, never a late batch.
    """

    def start(self, options: Options) -> None:
        """Begin anew with these options: nothing stored, nothing remembered."""
        ...

    def record(self, at_ms: int, events: Sequence[Event]) -> list[Decision]:
        """One call with one batch. Returns a decision for each event, in order."""
        ...

    def record_batches(self, batches: Sequence[Batch]) -> list[Decision]:
        """One call with several batches, each with its own clock. Returns a decision for each event, in order.

        Only *skip*, *aggregated* and *action* are promised: the rest of several events of one object is written once.
        """
        ...

    def delete_all(self) -> None:
        """Take every object out of the store; what the correlator remembers stays."""
        ...

    def final_state(self) -> list[StoredEvent]:
        """Every object in the store, in any order."""
        ...

    def close(self) -> None:
        """Give back what `start` took. A later `start` is allowed."""
        ...

    def stop(self) -> None:
        """Give back everything, at the end."""
        ...
