"""Decides which worker of a group works which partitions: a pure rule that every worker computes by itself.

Nobody has to agree for events to be safe: a partition that two work is a group with two consumers, as on a bus of one
partition. One that nobody works waits, until all members see the same members again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from itertools import product
from typing import TypeVar

Item = TypeVar("Item", str, int)
Place = TypeVar("Place", str, int)


def share_out(workers: Collection[str], partitions: int) -> Mapping[str, frozenset[int]]:
    """The partitions of each worker. All get as many, but for one more or less.

    Each partition has one worker while there are no more workers than partitions; beyond that each worker has one
    partition, and partitions have several workers. Who comes or goes moves little else than what is his: each pair
    has a score that depends on nothing but its two names (rendezvous hashing), and the highest are taken first.
    """
    names, numbers = sorted(set(workers)), range(partitions)
    ranked = sorted(product(names, numbers), key=lambda pair: _score(*pair))
    if len(names) <= partitions:
        chosen = _balanced([(partition, name) for name, partition in ranked], partitions, len(names))
        pairs = [(name, partition) for partition, name in chosen]
    else:
        pairs = _balanced(ranked, len(names), partitions)
    return {name: frozenset(partition for one, partition in pairs if one == name) for name in names}


def _balanced(ranked: Sequence[tuple[Item, Place]], items: int, places: int) -> list[tuple[Item, Place]]:
    """Give each of *items* one of *places*, the best ranked pairs first, with full places passed over."""
    if not places:
        return []
    least, larger = divmod(items, places)
    taken: dict[Item, Place] = {}
    load: Counter[Place] = Counter()
    for item, place in ranked:
        if item in taken or load[place] > least or (load[place] == least and not larger):
            continue
        larger -= load[place] == least
        load[place] += 1
        taken[item] = place
    return list(taken.items())


def _score(worker: str, partition: int) -> bytes:
    return blake2b(f"{partition}/{worker}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
