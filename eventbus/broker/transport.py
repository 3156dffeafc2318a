"""The outbox's protocol for reaching a bus. `redis_transport.py` implements it over Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Protocol, TypeAlias

import msgspec

from eventbus.errors import EventBusError
from eventbus.model.encoding.wire import MAX_BATCH_BYTES, MAX_BATCH_EVENTS
from eventbus.model.formats import BASELINE_CODECS

#: How long Redis remembers a producer's last sequence after its last batch. A producer that was idle for half of it
#: takes a fresh id, so a missing state always means that the server has lost it.
PRODUCER_LIFE_MS = 2 * 3600 * 1000
#: The same for a producer with a spool: another process may have to continue after it was killed, weeks later.
SPOOLED_LIFE_MS = 30 * 86_400 * 1000
#: That a producer may ask to be remembered for.
MAX_LIFE_MS = 31 * 86_400 * 1000
#: Causes of losses in one request.
MAX_LOSSES = 16


class PublishStatus(StrEnum):
    """The outcome of one publish."""

    OK = "OK"
    LOST = "LOST"  #: accepted, but the entries before were destroyed
    DUP = "DUP"
    GAP = "GAP"
    MISSING = "MISSING"
    FULL = "FULL"
    OTHER = "OTHER"  #: the stream belongs to another bus than was opened; nothing was done
    REFUSED = "REFUSED"  #: by the API: nothing was stored, because some events are refused for good


class PublishReply(msgspec.Struct, frozen=True):
    """The answer to one publish: *generation* with OK, LOST and DUP, *last* with GAP, *group* with FULL.

    With REFUSED *refused*: the positions in the batch of the events that cannot be recorded, and why. With DUP, for a
    `OnceRequest`, *stored*: the positions of the events that the bus had already.
    """

    status: PublishStatus
    generation: str = ""
    last: int = 0
    group: str = ""
    refused: tuple[tuple[int, str], ...] = ()
    stored: tuple[int, ...] = ()


class BusDescription(msgspec.Struct, frozen=True):
    """The facts about a bus that a producer needs before it numbers its first event."""

    partitions: int  #: 1..1024, never changed
    in_flight: int  #: batches of one partition in one `publish`, at most
    codecs: tuple[int, ...] = BASELINE_CODECS  #: that producers may use, as of the last look at the bus
    epoch: str = ""  #: changes when the bus is recreated, without its former content


#: Beyond it Lua, and JSON's readers, no longer count one by one.
_Exact: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Word: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]


class PublishRequest(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One batch of one producer, and the producer's state that the bus needs.

    The bounds are checked when it is decoded: over HTTP it is a frame (`frames.py`), an array in the order of the
    fields.
    """

    partition: Annotated[int, msgspec.Meta(ge=0, le=1023)]
    #: its secret, the key of its state on the bus; *body* has its id
    producer: Annotated[str, msgspec.Meta(pattern="^[0-9A-Za-z_-]{1,64}$")]
    #: sequence number of the first of the *events* in *body*
    first: Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
    events: Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH_EVENTS)]
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_BATCH_BYTES)]
    generation: _Word = ""  #: of the stream with the producer's last batch; empty: there is none yet
    silent_ms: _Exact = 0  #: since the bus last accepted a batch of this producer
    #: (cause, events), counted with the batch and only if it is accepted
    losses: Annotated[tuple[tuple[_Word, _Exact], ...], msgspec.Meta(max_length=MAX_LOSSES)] = ()
    #: how long the bus remembers the producer after this batch
    life_ms: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIFE_MS)] = PRODUCER_LIFE_MS


class OnceRequest(msgspec.Struct, frozen=True, gc=False):
    """A batch of events, each the only one of a producer of its own: all are stored, or none."""

    partition: int
    producers: tuple[str, ...]  #: the secret of each event, all different
    body: bytes  #: the batch, under the id of a producer that has no other
    life_ms: int  #: how long the bus remembers the producers


def nothing() -> None:
    """Do nothing."""


class Transport(Protocol):
    """One connection to one bus, for one thread; only `close` may be called from another.

    A batch may be published again: its sequence numbers make this idempotent. Without an answer a call raises or
    returns an `EventBusError` of one line with its cure.
    """

    def describe(self) -> BusDescription:
        """Return the facts about the bus. No round trip."""
        ...

    def publish(
        self, requests: Sequence[PublishRequest], meanwhile: Callable[[], object] = nothing
    ) -> list[PublishReply | EventBusError]:
        """Publish batches of any partitions in one round trip, those of one partition in the order given.

        *meanwhile* is called once, if at all: where it can be, when all is sent and the answers are to come.

        A missing partition is created; its batches are answered MISSING and can be sent again. The same applies to a
        bus that was recreated, if this process can use it; else no batch was stored, and the answer is a ConfigError
        with the reason.

        Returns: an answer each, in the order of *requests*; an error where a batch got none.
        Raises:  BusUnavailable: no answer at all; any of them may have been taken. BusRefused.
        """
        ...

    def last(self, producers: Sequence[tuple[int, str]]) -> list[int | None]:
        """Return the last sequence number that the bus has of each (partition, producer's secret), in one round trip.

        Returns: 0 for an unknown producer, None if there was no answer for it.
        Raises:  BusUnavailable, BusRefused: no answer at all.
        """
        ...

    def shorten_life(self, producers: Sequence[tuple[int, str]]) -> None:
        """Let the bus forget each (partition, producer's secret) after `PRODUCER_LIFE_MS` at most.

        Best effort: without an answer the bus remembers them for longer.
        """
        ...

    def close(self) -> None:
        """Close the connection; a call that waits in another thread ends with an error. Idempotent."""
        ...
