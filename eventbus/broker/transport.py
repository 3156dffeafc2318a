"""The outbox's protocol for reaching a bus. `redis_transport.py` implements it over Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from eventbus.broker.publish_call import PRODUCER_LIFE_MS, PublishReply
from eventbus.errors import EventBusError
from eventbus.formats import BASELINE_CODECS


class BusDescription(msgspec.Struct, frozen=True):
    """The facts about a bus that a producer needs before it numbers its first event."""

    partitions: int  #: 1..1024, the same for ever
    in_flight: int  #: batches of one partition in one `publish`, at the most
    codecs: tuple[int, ...] = BASELINE_CODECS  #: that producers may use, as of the last look at the bus
    epoch: str = ""  #: another one where the bus has been made anew, with nothing of what it held


class PublishRequest(msgspec.Struct, frozen=True, gc=False):
    """One batch of one producer, and what the bus has to know of that producer."""

    partition: int
    producer: str  #: its secret, under which the bus keeps its state; in *body* stands its id
    first: int  #: sequence number of the first of the *events* in *body*
    events: int
    body: bytes
    generation: str  #: of the stream that took the producer's last batch; empty: none did yet
    silent_ms: int  #: since the bus last accepted something of this producer
    losses: tuple[tuple[str, int], ...]  #: (cause, events), counted with the batch and only if it is accepted
    life_ms: int = PRODUCER_LIFE_MS  #: how long the bus remembers the producer after this batch


def nothing() -> None:
    """Do nothing."""


class Transport(Protocol):
    """One connection to one bus, for one thread; only `close` may be called from another.

    A batch may be published again: its sequence numbers make that harmless. What is not an answer raises or returns an
    `EventBusError` that says what to do, in one line.
    """

    def describe(self) -> BusDescription:
        """Return what a connection begins with. No round trip."""
        ...

    def publish(
        self, requests: Sequence[PublishRequest], meanwhile: Callable[[], object] = nothing
    ) -> list[PublishReply | EventBusError]:
        """Publish batches of any partitions in one round trip, those of one partition in the order given.

        *meanwhile* is called once, if at all: where it can be, when all is sent and the answers are to come.

        A partition that turns out to be missing is made anew; its batches are answered MISSING and can be sent again.
        So are those of a partition of a bus that others have made anew, where this process can go on with that; where
        it cannot, nothing was taken, and the answer is a ConfigError that says why.

        Returns: an answer each, in the order of *requests*; an error where a batch got none.
        Raises:  BusUnavailable: no answer at all; any of them may have been taken. BusRefused.
        """
        ...

    def last(self, producers: Sequence[tuple[int, str]]) -> list[int | None]:
        """Return the last sequence number that the bus has of each (partition, producer's secret), in one round trip.

        Returns: 0 for a producer that it does not know, None where it did not answer.
        Raises:  BusUnavailable, BusRefused: no answer at all.
        """
        ...

    def shorten_life(self, producers: Sequence[tuple[int, str]]) -> None:
        """Have the bus remember each (partition, producer's secret) for no more than `PRODUCER_LIFE_MS` from now on.

        Best effort: without an answer the bus remembers them for longer.
        """
        ...

    def close(self) -> None:
        """Close the connection; a call that waits in another thread ends with an error. Idempotent."""
        ...
