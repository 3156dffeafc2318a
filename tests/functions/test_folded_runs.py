"""A run of equal events is sent as one row: everything comes out as if each event was decided alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from eventbus.broker.functions import CorrelateCall, Functions
from eventbus.model.encoding.wire import from_microseconds
from eventbus.model.event import Event, ObjectMeta
from eventbus.settings import Options
from tests.builders import make_event
from tests.functions.conftest import MakePartition
from tests.functions.partition import T0, Partition
from tests.functions.picture import differences, picture
from tests.thin import thin

LARGEST = 2**31 - 1


class Unfolded(Functions):
    """Sends each event of a run in a row of its own."""

    def correlate_and_store(self, group: str, consumer: str, options: Options, call: CorrelateCall) -> list[str]:
        alone = msgspec.structs.replace(call, batches=call.unfolded())
        return super().correlate_and_store(group, consumer, options, alone)


class Counting(Functions):
    """Notes how many calls had to be made again without runs."""

    unfolded = 0

    def correlate_and_store(self, group: str, consumer: str, options: Options, call: CorrelateCall) -> list[str]:
        def unfolded() -> Sequence[bytes]:
            self.unfolded += 1
            return call.unfolded()

        noting = msgspec.structs.replace(call, unfolded=unfolded)
        return super().correlate_and_store(group, consumer, options, noting)


def repeats(rng: random.Random, n: int, number: int) -> list[Event]:
    """*n* events with one subject, message and count, at times that mostly grow, each with its own name."""
    us, message = 1_600_000_000_000_000 + number, rng.choice("abcd")
    count = rng.choice([1] * 9 + [0, -1, -3, LARGEST, LARGEST - 4, -LARGEST - 1])
    kind = rng.choice(["Normal", "Normal", "Warning"])
    events = []
    for i in range(n):
        us += rng.choice([0, 1, 1, 1, 700, 1_000_000, 1_000_000, -2])
        last_us = rng.choice([us, us, us, us + 1_000])
        events.append(
            make_event(
                metadata=ObjectMeta(name=f"web-0.{number + i:x}", namespace="default"),
                message=message,
                type=kind,
                count=count if i == 0 else 1,
                first_timestamp=from_microseconds(us),
                last_timestamp=None if rng.random() < 0.02 else from_microseconds(last_us),
            )
        )
    return events


def batches_of(rng: random.Random, number: int) -> list[list[Event]]:
    batches = []
    for _ in range(rng.randint(1, 3)):
        batch: list[Event] = []
        for _ in range(rng.randint(1, 4)):
            batch += repeats(rng, rng.choice([1, 2, 3, 12]), number + len(batch))
        batches.append(batch)
        number += len(batch)
    return batches


def play(partition: Partition, seed: int) -> list[Any]:
    """Record batches, some late, in a story that depends on *seed* only. Returns all replies."""
    rng, at_ms, replies = random.Random(seed), T0, []
    for number in range(0, 6_000, 1_000):
        deliveries = partition.deliver(*batches_of(rng, number))
        if rng.random() < 0.3:
            deliveries.reverse()
        at_ms += rng.choice([0, 0, 1_000, 20_000, 61_000, 700_000, -5_000])
        if rng.random() < 0.15:
            with partition.memory_full():
                replies.append(partition.record_deliveries(deliveries, at_ms=at_ms))
        else:
            replies.append(partition.record_deliveries(deliveries, at_ms=at_ms))
        removal = rng.random()
        if removal < 0.2:
            for event in partition.stored():
                partition.store.delete(event.metadata.namespace, event.metadata.name)
        elif removal < 0.4:
            ids = partition.admin.zrange(partition.keys.index_expiry, 0, -1)
            partition.expire(in_ms=2 * partition.options.event_ttl_s * 1000, keys=ids)
    return replies


@pytest.mark.parametrize("seed", thin(range(30), lambda seed: seed < 8))
def test_a_run_comes_out_as_if_each_event_was_decided_alone(make_partition: MakePartition, seed: int) -> None:
    rng = random.Random(seed)
    options = {
        "burst": rng.choice([0, 1, 4, 20]),
        "qps": rng.choice([0, 0.07, 1.3]),
        "max_events": rng.choice([1, 2, 10]),
        "report_suppressed": rng.random() < 0.7,
        "exempt_types": rng.choice([(), ("Warning",)]),
    }
    folded, alone = make_partition(**options), make_partition(**options)
    alone.call = Unfolded(alone.client, alone.keys)
    assert play(folded, seed) == play(alone, seed)
    pictures = [picture(each, each.state()) for each in (folded, alone)]
    assert differences(*pictures) == []


@pytest.mark.parametrize(("count", "is_unfolded"), [(LARGEST - 4, False), (LARGEST - 3, True), (-2, True)])
def test_a_run_in_which_the_count_overflows_or_passes_zero_is_sent_again(
    make_partition: MakePartition, count: int, is_unfolded: bool
) -> None:
    partition = make_partition(burst=1_000)
    partition.call = counting = Counting(partition.client, partition.keys)
    partition.record(make_event(count=count))
    names = [ObjectMeta(name=f"web-0.{n}", namespace="default") for n in range(4)]
    letters = partition.record(*(make_event(metadata=name) for name in names))
    assert counting.unfolded == is_unfolded
    (event,) = partition.stored()
    if count == -2:
        assert (letters, event.count, event.metadata.name) == ("kkcp", 2, "web-0.2")
    else:
        assert event.count == (-LARGEST - 1 if is_unfolded else LARGEST)


def test_a_corrupt_state_is_counted_once_although_the_call_is_sent_again(make_partition: MakePartition) -> None:
    partition = make_partition(burst=1_000)
    partition.call = counting = Counting(partition.client, partition.keys)
    partition.record(make_event(count=-2))
    (state,) = partition.admin.scan_iter(match=partition.keys.correlation + b"*", count=10_000)
    partition.admin.set(state, b"\xc1")
    assert partition.record(*[make_event()] * 4) == "kkcp"
    assert counting.unfolded == 1
    assert partition.admin.hget(partition.keys.corrupt, "times") == b"1"
