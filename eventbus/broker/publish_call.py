"""Builds and parses calls of the function `publish`. `redis_transport.py` sends them, many in a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from eventbus.broker.build import function_command
from eventbus.broker.keys import Keys

#: How long Redis remembers a producer's last sequence after its last batch. A producer that was idle for half of it
#: takes a fresh id, so a missing state always means that the server has lost it.
PRODUCER_LIFE_MS = 2 * 3600 * 1000
#: The same for a producer with a spool: another process may have to continue after it was killed, weeks later.
SPOOLED_LIFE_MS = 30 * 86_400 * 1000


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

    With REFUSED *refused*: the positions in the batch of the events that cannot be recorded, and why.
    """

    status: PublishStatus
    generation: str = ""
    last: int = 0
    group: str = ""
    refused: tuple[tuple[int, str], ...] = ()


class PublishState(msgspec.Struct, frozen=True):
    """The state of the producer that `publish` needs besides the batch."""

    bound_bytes: int
    generation: str
    silent_ms: int
    bus_id: str = ""  #: of the bus that was opened; "" is not compared
    life_ms: int = PRODUCER_LIFE_MS  #: of the producer's state in Redis


def publish_command(
    keys: Keys,
    producer: str,
    first: int,
    n: int,
    body: bytes,
    state: PublishState,
    losses: Sequence[tuple[str, int]] = (),
) -> tuple[Any, ...]:
    """Build the FCALL of one publish, for a pipeline. Safe to repeat: the sequence makes it idempotent.

    *producer*: its secret, part of the key of its state. A client that may publish and knew it could corrupt the state,
    so it is in no event.
    *losses* (cause, events) are counted with the batch, and only if it is accepted.
    """
    return function_command(
        "publish",
        (keys.incoming, keys.incoming_meta, keys.producer + producer.encode(), keys.meta),
        first,
        n,
        body,
        state.bound_bytes,
        state.generation,
        state.silent_ms,
        state.life_ms,
        state.bus_id,
        *(part for loss in losses for part in loss),
    )


def parse_reply(reply: Sequence[Any]) -> PublishReply:
    """Parse the reply of one publish."""
    status = PublishStatus(reply[0].decode())
    if status is PublishStatus.GAP:
        return PublishReply(status, last=int(reply[1]))
    if status is PublishStatus.FULL:
        return PublishReply(status, group=reply[1].decode())
    return PublishReply(status, generation=reply[1].decode() if len(reply) > 1 else "")
