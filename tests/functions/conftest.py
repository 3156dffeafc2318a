"""A partition of its own for each test; in `make test-long` on each kind of server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from tests.functions.partition import Partition

MakePartition: TypeAlias = Callable[..., Partition]


@pytest.fixture
def make_partition(any_server_url: str, prefix: str) -> Iterator[MakePartition]:
    """Opens a bus with the given options; closed, and its keys deleted, after the test."""
    made: list[Partition] = []

    def make(**options: Any) -> Partition:
        made.append(Partition(any_server_url, f"{prefix}-{len(made)}", **options))
        return made[-1]

    yield make
    for partition in made:
        partition.close()


@pytest.fixture
def partition(make_partition: MakePartition) -> Partition:
    """With the default options, but nothing is suppressed as spam and nothing reported unless the test says so."""
    return make_partition(burst=1_000)
