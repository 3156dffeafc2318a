"""`publish_once`: each event under its uid is in the stream once, whatever is repeated, cut off, or sent elsewhere."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from eventbus.api.eventbus_v1.idempotency import publish_once
from eventbus.api.eventbus_v1.intake import Packed
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.keys import partition_of
from eventbus.broker.redis_transport import RedisTransport
from eventbus.broker.transport import OnceRequest, PublishReply
from eventbus.errors import BusFull, BusUnavailable, EventBusError
from eventbus.model.encoding.wire import MAX_EVENT_BYTES, pack_event, unpack_batch, unpack_event
from eventbus.settings import Options, Settings
from tests.builders import make_event, make_reference
from tests.thin import one

LIFE_MS = 60_000


@pytest.fixture(params=one([3, 1]))
def bus(embedded_url: str, prefix: str, request: pytest.FixtureRequest) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=request.param))


@pytest.fixture
def transport(bus: Bus) -> Iterator[RedisTransport]:
    made = RedisTransport(bus)
    yield made
    made.close()


def packed(bus: Bus, uids: Sequence[str], size: int = 4) -> list[tuple[str, Packed]]:
    """An event about a pod for each uid, with a message that cannot be compressed."""
    found = []
    for index, uid in enumerate(uids):
        event = make_event(
            involved_object=make_reference(name=uid), message=random.Random(uid).randbytes(size // 2).hex()
        )
        found.append((uid, Packed(index, partition_of(event.involved_object, bus.partitions), pack_event(event))))
    return found


def in_stream(bus: Bus) -> Counter[str]:
    """How often an event about each pod is in the stream."""
    client, found = bus.client(), Counter[str]()
    for keys in bus.keys:
        for _, fields in client.xrange(keys.incoming):
            batch = unpack_batch(fields[b"b"])
            found.update(unpack_event(event).involved_object.name for event in batch.events)
    client.close()
    return found


class Disturbed(RedisTransport):
    """Calls *before* ahead of the first round trip, and *after* behind it."""

    def __init__(self, bus: Bus, before: Callable[[], object] = list, after: Callable[[], object] = list) -> None:
        super().__init__(bus)
        self._before, self._after = before, after
        self.round_trips = 0

    def publish_once(self, requests: Sequence[OnceRequest]) -> list[PublishReply | EventBusError]:
        before, after = self._before, self._after
        self._before = self._after = list
        before()
        answers = super().publish_once(requests)
        self.round_trips += 1
        after()
        return answers


def cut() -> None:
    raise BusUnavailable("the reply was cut")


def test_overlapping_requests_of_several_workers_store_each_event_once(bus: Bus) -> None:
    uids = [f"u{number}" for number in range(400)]
    failed: list[dict[int, EventBusError]] = []

    def work(seed: int) -> None:
        choice, transport = random.Random(seed), RedisTransport(bus)
        for _ in range(8):
            failed.append(publish_once(transport, "user", packed(bus, choice.sample(uids, 200)), life_ms=LIFE_MS))
        transport.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [{}] * 32
    assert in_stream(bus) == dict.fromkeys(uids, 1)


def test_a_reply_that_is_cut_stores_each_event_once(bus: Bus) -> None:
    transport = Disturbed(bus, after=cut)
    assert publish_once(transport, "user", packed(bus, ["a", "b", "c"]), life_ms=LIFE_MS) == {}
    assert in_stream(bus) == {"a": 1, "b": 1, "c": 1}
    transport.close()


def test_events_that_another_worker_stores_meanwhile_do_not_hold_up_the_others(
    bus: Bus, transport: RedisTransport
) -> None:
    other = Disturbed(bus, before=lambda: publish_once(transport, "user", packed(bus, ["b", "d"]), life_ms=LIFE_MS))
    assert publish_once(other, "user", packed(bus, ["a", "b", "c", "b"]), life_ms=LIFE_MS) == {}
    assert in_stream(bus) == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert other.round_trips == 2
    other.close()


def test_large_events_are_spread_over_batches(bus: Bus, transport: RedisTransport) -> None:
    events = packed(bus, [f"u{number}" for number in range(20)], size=MAX_EVENT_BYTES - 1024)
    assert publish_once(transport, "user", events, life_ms=LIFE_MS) == {}
    assert in_stream(bus) == {uid: 1 for uid, _ in events}


def test_events_that_fail_are_named_by_their_index(embedded_url: str, prefix: str) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix), options=Options(incoming_bytes=1024 * 1024))
    transport = RedisTransport(bus)
    for start in range(0, 128, 32):
        events = packed(bus, [f"u{number}" for number in range(start, start + 32)], size=12 * 1024)
        failed = publish_once(transport, "user", events, life_ms=LIFE_MS)
    assert {type(error) for error in failed.values()} == {BusFull}
    assert in_stream(bus).keys() & {uid for uid, one in events} == {
        uid for uid, one in events if one.index not in failed
    }
    transport.close()
