"""checkpoint: one line of versions of all partitions, whoever adds to it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from eventbus.broker.build import library
from eventbus.broker.functions import Checkpoints
from tests.functions.partition import Partition


@pytest.fixture
def partition(embedded_url: str, prefix: str) -> Iterator[Partition]:
    made = Partition(embedded_url, prefix)
    yield made
    made.close()


def begin(partition: Partition, *versions: int) -> tuple[int, tuple[int, ...]]:
    found = partition.call.checkpoint(versions, whole=True)
    assert isinstance(found, Checkpoints)
    return found.entries[-1]


def test_the_first_is_numbered_by_the_time_and_takes_whole_versions(partition: Partition) -> None:
    assert partition.call.checkpoint([7, 8]) is None
    number, versions = begin(partition, 7, 8)
    assert versions == (7, 8)
    assert abs(number - time.time() * 1_000_000) < 60_000_000


def test_versions_are_joined_and_the_number_grows_by_what_their_sum_does(partition: Partition) -> None:
    first, _ = begin(partition, 7, 8)
    found = partition.call.checkpoint([9, 0], after=first)
    assert found == Checkpoints(first, ((first + 2, (9, 8)),))
    found = partition.call.checkpoint([8, 11], after=first)
    assert found == Checkpoints(first, ((first + 2, (9, 8)), (first + 5, (9, 11))))
    assert partition.call.checkpoint([9, 11], after=first + 5) == Checkpoints(first, ())


def test_a_library_that_was_loaded_anew_goes_on_with_the_line(partition: Partition) -> None:
    """So does that of another build, which shares no memory with it either."""
    first, _ = begin(partition, 7, 8)
    partition.admin.function_load(library(), replace=True)
    assert partition.call.checkpoint([9, 8], after=first) == Checkpoints(first, ((first + 2, (9, 8)),))


@pytest.mark.parametrize(
    "fault",
    [
        "a version that jumped",
        "a version that is lost",
        "rubbish",
        "a line that is lost, and was ahead of the clock",
    ],
)
def test_what_cannot_be_gone_on_with_is_begun_anew_above_all_that_was_given(partition: Partition, fault: str) -> None:
    first, _ = begin(partition, 7, 8)
    lost, versions = None, (7, 9)
    if fault == "a version that jumped":
        versions = (7, 8 + 10_000_000)
    elif fault == "a version that is lost":
        lost, versions = first, (7, 2)
    elif fault == "a line that is lost, and was ahead of the clock":
        first, _ = begin(partition, 7, 8 + 10_000_000)
        partition.admin.delete(partition.keys.checkpoints)
        versions = (1, 1)
    else:
        partition.admin.xadd(partition.keys.checkpoints, {"v": "?"}, id=f"{first + 1}-0")
    assert partition.call.checkpoint(versions, lost=lost) is None
    found = partition.call.checkpoint(versions, after=first, whole=True, lost=lost)
    assert found is not None
    ((number, made),) = found.entries
    assert (made, found.oldest) == (versions, number)
    assert number >= first + 10_000_000


def test_what_somebody_else_has_begun_anew_is_not_begun_again(partition: Partition) -> None:
    first, _ = begin(partition, 7, 8)
    second = partition.call.checkpoint([7, 2], whole=True, lost=first)
    assert second is not None
    assert partition.call.checkpoint([7, 2], whole=True, lost=first) == second


def test_a_line_below_what_a_caller_knows_is_begun_anew_above_that(partition: Partition) -> None:
    first, _ = begin(partition, 7, 8)
    known = first + 30_000_000
    assert partition.call.checkpoint([7, 9], after=known) is None
    found = partition.call.checkpoint([7, 9], after=known, whole=True)
    assert found is not None
    assert found.oldest > known
    assert found.entries == ((found.oldest, (7, 9)),)


def test_many_are_read_in_pages(partition: Partition) -> None:
    first, _ = begin(partition, 7)
    for version in range(8, 610):
        partition.call.checkpoint([version], after=first + version - 8)
    found = partition.call.checkpoint([0], after=first)
    assert found is not None
    assert [number for number, _ in found.entries] == list(range(first + 1, first + 501))
