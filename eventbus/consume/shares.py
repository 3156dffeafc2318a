"""Decides which worker of a group works which partitions: a pure function that every worker computes by itself.

Events are safe without agreement: two workers of one partition are two consumers of a group, as on a bus of one
partition. A partition without a worker waits until all members see the same members again.
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
    """Return the partitions of each worker. The numbers differ by one at most.

    If there are no more workers than partitions, each partition has one worker. Otherwise each worker has one
    partition, and partitions have several workers. A join or leave moves few other partitions: the score of each pair
    depends on its two names only (rendezvous hashing), and the best pairs are taken first.
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
    """Assign each of *items* to one of *places*, the best ranked pairs first; full places are skipped."""
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
