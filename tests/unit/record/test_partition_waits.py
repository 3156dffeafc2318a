"""A partition that fails waits, longer each time, and the others know nothing of it."""

from __future__ import annotations

import math

from eventbus.record.sender import FIRST_BACKOFF_S, LAST_BACKOFF_S, PartitionWaits
from eventbus.testing.clock import FakeClock


def test_only_the_partition_that_failed_waits() -> None:
    clock = FakeClock()
    waits = PartitionWaits(clock)
    assert waits.due_in_s() == math.inf
    waits.failed(3)
    assert [waits.backs_off(partition) for partition in range(5)] == [False, False, False, True, False]
    assert 0 < waits.due_in_s() <= 2 * FIRST_BACKOFF_S
    clock.advance(2 * FIRST_BACKOFF_S)
    assert not waits.backs_off(3)
    assert 3 in waits.failed_partitions
    assert waits.due_in_s() == 0
    waits.succeeded(3)
    assert 3 not in waits.failed_partitions
    assert waits.due_in_s() == math.inf


def test_it_waits_longer_each_time_up_to_a_bound() -> None:
    clock = FakeClock()
    waits = PartitionWaits(clock)
    longest = 0.0
    for _ in range(100):
        waits.failed(0)
        longest = max(longest, waits.due_in_s())
    assert LAST_BACKOFF_S / 4 < longest <= LAST_BACKOFF_S
    waits.failed(0, soon=True)
    assert waits.due_in_s() <= FIRST_BACKOFF_S
