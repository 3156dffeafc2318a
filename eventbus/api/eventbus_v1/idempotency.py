"""Requests under an `Idempotency-Key`: the same numbers and borders each time, so that a repeat changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from eventbus.api.eventbus_v1.intake import Packed, spread
from eventbus.api.eventbus_v1.publisher import full
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.broker.redis_transport import RedisTransport
from eventbus.broker.transport import OnceRequest, PublishReply, PublishRequest, PublishStatus, Transport
from eventbus.errors import BusFull, BusUnavailable, EventBusError, InvalidObject
from eventbus.model.encoding.wire import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, pack_batch

#: How long a key is known: a client that repeats later than this is a new one.
LIFE_MS: Final = 10 * 60 * 1000
#: Batches in one round trip.
IN_FLIGHT: Final = 16
#: Round trips for one event with a uid: the second without events that the bus has, after a lost connection, or into a
#: partition that was made; the last one in a batch of its own.
ONCE_ROUNDS: Final = 3
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
        former: Any = client.set(bus.keys[0].idempotency + name.encode(), ours, nx=True, get=True, px=LIFE_MS)
    stored = ours if former is None else bytes(former)
    first_ns, _, digest = stored.partition(b" ")
    if digest != ours.partition(b" ")[2]:
        raise InvalidObject("Idempotency-Key: another body came under it; take a fresh key")
    # With the time in it: the same key, once forgotten, has other numbers.
    producer = _digest(name.encode(), first_ns)[:16]
    return Known(int(first_ns), producer, former is None)


def publish_known(transport: Transport, known: Known, packed: Sequence[Packed]) -> dict[int, EventBusError]:
    """Publish with the numbers of the key. Returns: the failed events by index, to be sent again."""
    failed: dict[int, EventBusError] = {}
    for partition, events in spread(packed):
        numbered = list(_numbered(events))
        for start in range(0, len(numbered), IN_FLIGHT):
            batches = numbered[start : start + IN_FLIGHT]
            requests = [_request(known, partition, first, batch) for first, batch in batches]
            for (_, batch), problem in zip(batches, _publish(transport, requests), strict=True):
                if problem is not None:
                    failed |= dict.fromkeys((event.index for event in batch), problem)
    return failed


def publish_once(
    transport: RedisTransport, user: str, events: Sequence[tuple[str, Packed]], *, life_ms: int
) -> dict[int, EventBusError]:
    """Publish each event under a uid of its own, which is the user's: a repeat within *life_ms* changes nothing.

    Returns: the failed events by index. Each event has a producer of its own, and they share batches. The bus takes
    batches of new events only, so the new events of a mixed batch are sent again without the others.
    """
    named = user.encode("utf-8", "replace")
    secrets = {event.index: _digest(b"once", named, uid.encode("utf-8", "replace"))[:16] for uid, event in events}
    different: dict[str, Packed] = {}
    for _, event in events:
        different.setdefault(secrets[event.index], event)
    waiting, failed = list(different.values()), dict[str, EventBusError]()
    for again in range(ONCE_ROUNDS):
        most = MAX_BATCH_EVENTS if again < ONCE_ROUNDS - 1 else 1  # alone, no other event holds it up
        requests = [
            _once_request(partition, batch, secrets, life_ms)
            for partition, some in spread(waiting)
            for batch in _batches(some, most)
        ]
        problems = _publish_new(transport, requests)
        failed = {secret: problem for secret, problem in failed.items() if isinstance(problem, BusFull)} | problems
        waiting = [different[secret] for secret, problem in problems.items() if not isinstance(problem, BusFull)]
        if not waiting:
            break
    return {index: failed[secret] for index, secret in secrets.items() if secret in failed}


def _once_request(partition: int, batch: Sequence[Packed], secrets: Mapping[int, str], life_ms: int) -> OnceRequest:
    body = pack_batch(os.urandom(8).hex(), 1, [event.body for event in batch])
    return OnceRequest(partition, tuple(secrets[event.index] for event in batch), body, life_ms)


def _publish_new(transport: RedisTransport, requests: Sequence[OnceRequest]) -> dict[str, EventBusError]:
    """Return by its secret why an event is not stored."""
    problems: dict[str, EventBusError] = {}
    for start in range(0, len(requests), IN_FLIGHT):
        some = requests[start : start + IN_FLIGHT]
        try:
            answers = transport.publish_once(some)
        except EventBusError as error:
            rest = [secret for request in requests[start:] for secret in request.producers]
            return problems | dict.fromkeys(rest, error)
        for request, answer in zip(some, answers, strict=True):
            problem, stored = _problem(request.partition, answer), frozenset[int]()
            if isinstance(answer, PublishReply) and answer.status is PublishStatus.DUP:
                problem, stored = _IN_MIXED_BATCH, frozenset(answer.stored)
            if problem is not None:
                new = (secret for position, secret in enumerate(request.producers) if position not in stored)
                problems |= dict.fromkeys(new, problem)
    return problems


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
    body = pack_batch(known.producer, first, [event.body for event in batch])
    return PublishRequest(partition, known.producer, first, len(batch), body, "", 0, (), LIFE_MS)


def _numbered(events: Sequence[Packed]) -> Iterator[tuple[int, list[Packed]]]:
    """Yield the batches with their first sequence numbers."""
    first = 1
    for batch in _batches(events, MAX_BATCH_EVENTS):
        yield first, batch
        first += len(batch)


def _batches(events: Sequence[Packed], most: int) -> Iterator[list[Packed]]:
    batch: list[Packed] = []
    size = 0
    for event in events:
        if batch and (len(batch) == most or size + len(event.body) > MAX_BATCH_BYTES - 512):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(event.body) + 3
    if batch:
        yield batch


def _problem(partition: int, answer: PublishReply | EventBusError) -> EventBusError | None:
    if isinstance(answer, EventBusError):
        return answer
    if answer.status in (PublishStatus.OK, PublishStatus.LOST, PublishStatus.DUP):
        return None
    if answer.status is PublishStatus.FULL:
        return full(partition, answer)
    return BusUnavailable("an earlier batch is missing; send the whole request again")


_IN_MIXED_BATCH: Final = BusUnavailable("other events of its batch are stored; send the whole request again")


def _digest(*parts: bytes) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()
