"""Requests under an `Idempotency-Key`: the same numbers and borders each time, so that a repeat changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from eventbus.api.eventbus_v1.intake import Packed, spread
from eventbus.api.eventbus_v1.publisher import full
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.broker.transport import PublishReply, PublishRequest, PublishStatus, Transport
from eventbus.errors import BusUnavailable, EventBusError, InvalidObject
from eventbus.model.encoding.wire import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, pack_batch

#: How long a key is known: a client that repeats later than this is a new one.
LIFE_MS: Final = 10 * 60 * 1000
#: Batches of one partition in one round trip.
IN_FLIGHT: Final = 16
#: Batches in one round trip of events with uids of their own, each of which is a batch.
ONCE_IN_FLIGHT: Final = 512
#: Longest key.
MAX_KEY: Final = 256


class Known(msgspec.Struct, frozen=True):
    """A key as Redis has it: when it first came, and the id that its numbers are under."""

    time_ns: int
    producer: str
    is_new: bool


def know(bus: Bus, client: Client, *, user: str, key: str, body: bytes, now_ns: int) -> Known:
    """Keep the digest of *body* under *user*'s *key*, or find it kept.

    Raises: InvalidObject: the key is too long, or another body came under it.  BusUnavailable.
    Redis:  SET NX GET on idempotency.
    """
    if not 0 < len(key) <= MAX_KEY:
        raise InvalidObject(f"Idempotency-Key: must have 1 to {MAX_KEY} characters")
    name = _digest(user.encode("utf-8", "replace"), key.encode("utf-8", "replace"))
    ours = b"%d %s" % (now_ns, _digest(body).encode())
    with redis_errors():
        found: Any = client.set(bus.keys[0].idempotency + name.encode(), ours, nx=True, get=True, px=LIFE_MS)
    held = ours if found is None else bytes(found)
    first_ns, _, digest = held.partition(b" ")
    if digest != ours.partition(b" ")[2]:
        raise InvalidObject("Idempotency-Key: another body came under it; take a fresh key")
    # With the time in it: the same key, once forgotten, has other numbers.
    producer = _digest(name.encode(), first_ns)[:16]
    return Known(int(first_ns), producer, found is None)


def publish_known(transport: Transport, known: Known, packed: Sequence[Packed]) -> dict[int, EventBusError]:
    """Publish with the numbers of the key. Returns: the failed events by index, to be sent again."""
    failed: dict[int, EventBusError] = {}
    for partition, events in spread(packed):
        for batches in _rounds(events):
            requests = [_request(known, partition, first, batch) for first, batch in batches]
            for (_, batch), problem in zip(batches, _publish(transport, requests), strict=True):
                if problem is not None:
                    failed |= dict.fromkeys((one.index for one in batch), problem)
    return failed


def publish_once(
    transport: Transport, user: str, events: Sequence[tuple[str, Packed]], *, life_ms: int
) -> dict[int, EventBusError]:
    """Publish each event under a uid of its own, which is the user's: a repeat within *life_ms* changes nothing.

    Returns: the failed events by index. Each has a batch and a producer of its own: for a fast sender of many events,
    `publish_known` costs less.
    """
    failed: dict[int, EventBusError] = {}
    for start in range(0, len(events), ONCE_IN_FLIGHT):
        some = events[start : start + ONCE_IN_FLIGHT]
        requests = []
        for uid, one in some:
            producer = _digest(b"once", user.encode("utf-8", "replace"), uid.encode("utf-8", "replace"))[:16]
            body = pack_batch(producer, 1, [one.body])
            requests.append(PublishRequest(one.partition, producer, 1, 1, body, "", 0, (), life_ms))
        for (_, one), problem in zip(some, _publish(transport, requests), strict=True):
            if problem is not None:
                failed[one.index] = problem
    return failed


def _publish(transport: Transport, requests: Sequence[PublishRequest]) -> list[EventBusError | None]:
    """Twice, if it must be: a partition may have to be made first."""
    problems: list[EventBusError | None] = []
    for _ in range(2):
        try:
            answers = transport.publish(requests)
            problems = [_problem(request.partition, answer) for request, answer in zip(requests, answers, strict=True)]
        except EventBusError as error:
            problems = [error] * len(requests)
        if not any(problems):
            break
    return problems


def _request(known: Known, partition: int, first: int, batch: Sequence[Packed]) -> PublishRequest:
    body = pack_batch(known.producer, first, [one.body for one in batch])
    return PublishRequest(partition, known.producer, first, len(batch), body, "", 0, (), LIFE_MS)


def _rounds(events: Sequence[Packed]) -> Iterator[list[tuple[int, list[Packed]]]]:
    """Batches with their first sequence number, as many as go into one round trip."""
    batches: list[tuple[int, list[Packed]]] = []
    size = 0
    for number, one in enumerate(events, start=1):
        if not batches or len(batches[-1][1]) == MAX_BATCH_EVENTS or size + len(one.body) > MAX_BATCH_BYTES - 512:
            if len(batches) == IN_FLIGHT:
                yield batches
                batches = []
            batches.append((number, []))
            size = 0
        batches[-1][1].append(one)
        size += len(one.body) + 3
    if batches:
        yield batches


def _problem(partition: int, answer: PublishReply | EventBusError) -> EventBusError | None:
    if isinstance(answer, EventBusError):
        return answer
    if answer.status in (PublishStatus.OK, PublishStatus.LOST, PublishStatus.DUP):
        return None
    if answer.status is PublishStatus.FULL:
        return full(partition, answer)
    return BusUnavailable("an earlier batch is missing; send the whole request again")


def _digest(*parts: bytes) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()
