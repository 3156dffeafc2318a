"""Who works which partitions: everybody computes the same, all get as many, and little moves."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from eventbus.consume.rebalancer import share_out

SIZES = [(1, 1), (2, 1), (5, 1), (1, 16), (2, 16), (3, 16), (5, 16), (16, 16), (20, 16), (3, 64), (7, 64), (200, 64)]


def names(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [f"host-{chance.randrange(10**9)}-{number}-{chance.randbytes(3).hex()}" for number in range(count)]


def pairs(workers: list[str], partitions: int) -> set[tuple[str, int]]:
    return {(name, number) for name, share in share_out(workers, partitions).items() for number in share}


@pytest.mark.parametrize(("workers", "partitions"), SIZES)
def test_every_partition_has_a_worker_and_every_worker_as_many_as_the_others(workers: int, partitions: int) -> None:
    shares = share_out(names(workers), partitions)
    sizes = [len(share) for share in shares.values()]
    assert len(sizes) == workers
    assert set().union(*shares.values()) == set(range(partitions))
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    workers_of = Counter(number for share in shares.values() for number in share).values()
    assert max(workers_of) - min(workers_of) <= 1
    assert max(workers_of) == 1 or workers > partitions


def test_in_whatever_order_the_members_are_seen_the_shares_are_the_same() -> None:
    some = names(7)
    mixed = random.Random(2).sample(some, len(some))
    assert share_out(some, 64) == share_out(mixed, 64) == share_out([*mixed, some[0]], 64)


def test_a_group_without_members_has_no_shares() -> None:
    assert share_out([], 16) == {}


def test_a_name_that_is_no_text_has_a_share_too() -> None:
    assert share_out(["a", b"\xff".decode("utf-8", "surrogateescape")], 2).keys() == {"a", "\udcff"}


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
def test_who_comes_takes_his_share_and_little_else_moves(workers: int) -> None:
    begun, least = 0, 0
    for seed in range(20):
        some = names(workers + 1, seed)
        begun += len(pairs(some, 64) - pairs(some[:-1], 64))
        least += len(share_out(some, 64)[some[-1]])
    assert begun <= 1.7 * least


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
def test_what_was_of_one_who_goes_is_shared_out_and_little_else_moves(workers: int) -> None:
    ended, least = 0, 0
    for seed in range(20):
        some = names(workers, seed)
        ended += len(pairs(some, 64) - pairs(some[:-1], 64))
        least += len(share_out(some, 64)[some[-1]])
    assert ended <= 1.7 * least
