"""limit_rate: buckets that several callers share."""

from __future__ import annotations

import time

import pytest

from eventbus.broker.function_values import BucketUse
from tests.functions.partition import Partition

#: So slow that no token comes back during a test.
HOURS = 36_000


def use(name: str, tokens: int = 1, *, burst: int = 3, rate: int = 1) -> BucketUse:
    return BucketUse(name.encode(), rate, burst, tokens)


def owe(partition: Partition, name: str, seconds: float) -> None:
    """Have the bucket full again so many seconds from now."""
    full_at = int((time.time() + seconds) * 1_000_000)
    partition.admin.set(partition.keys.rate + name.encode(), full_at, px=int(seconds * 1000))


def test_a_burst_is_had_and_then_each_token_takes_its_time(partition: Partition) -> None:
    taken = [partition.call.limit_rate([use("a", burst=HOURS // 2, tokens=HOURS // 2)], all_or_none=False)]
    owe(partition, "a", HOURS)
    (wait_s,) = partition.call.limit_rate([use("a", burst=HOURS // 2)], all_or_none=False)
    assert taken == [[0.0]]
    assert HOURS // 2 - 600 < wait_s <= HOURS // 2 + 1
    assert partition.call.limit_rate([use("another", burst=1)], all_or_none=False) == [0.0]


def test_a_bucket_lives_until_it_is_full(partition: Partition) -> None:
    partition.call.limit_rate([use("a", 600, burst=600, rate=10)], all_or_none=False)
    key = partition.keys.rate + b"a"
    life_ms, full_at = partition.admin.pttl(key), int(partition.admin.get(key) or 0)
    assert 0 < life_ms <= 60_000
    assert abs(full_at / 1_000_000 - time.time()) < 600


def test_those_that_have_a_token_give_it_though_another_has_none(partition: Partition) -> None:
    owe(partition, "empty", HOURS)
    waits_s = partition.call.limit_rate([use("empty"), use("full", 600)], all_or_none=False)
    assert waits_s[0] > 0 == waits_s[1]
    assert partition.admin.exists(partition.keys.rate + b"full")


def test_all_or_none_takes_none_where_one_has_none(partition: Partition) -> None:
    owe(partition, "empty", HOURS)
    waits_s = partition.call.limit_rate([use("empty"), use("full")], all_or_none=True)
    assert waits_s[0] > 0 == waits_s[1]
    assert not partition.admin.exists(partition.keys.rate + b"full")


def test_what_is_taken_beyond_the_burst_is_owed(partition: Partition) -> None:
    partition.call.limit_rate([use("a", 30_000, burst=4)], all_or_none=True)
    (wait_s,) = partition.call.limit_rate([use("a", burst=4)], all_or_none=True)
    assert 29_000 < wait_s <= 29_997


def test_thousands_of_buckets_are_one_call(partition: Partition) -> None:
    uses = [use(f"{number}", 600) for number in range(2_500)]
    assert partition.call.limit_rate(uses, all_or_none=True) == [0.0] * 2_500
    assert all(partition.call.limit_rate(uses, all_or_none=True))


@pytest.mark.parametrize("value", [b"rubbish", b"-5", b"99999999999999999999"])
def test_rubbish_is_a_full_bucket_and_is_counted(partition: Partition, value: bytes) -> None:
    partition.admin.set(partition.keys.rate + b"a", value)
    assert partition.call.limit_rate([use("a")], all_or_none=True) == [0.0]
    assert partition.admin.hget(partition.keys.spoiled, "times") == b"1"


def test_a_clock_that_was_set_back_costs_no_more_than_the_largest_call(partition: Partition) -> None:
    owe(partition, "a", 100 * HOURS)
    (wait_s,) = partition.call.limit_rate([use("a", burst=10)], all_or_none=True)
    assert wait_s == 32_768 + 1
