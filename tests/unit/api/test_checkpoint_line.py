"""The line of checkpoints: one number a change, and where each stands."""

from __future__ import annotations

import random

import pytest

from eventbus.api.versions.checkpoint_line import CheckpointLine
from eventbus.errors import Expired

#: Two partitions: three changes of the first and two of the second, then one and four.
ENTRIES = [(1000, (10, 20)), (1005, (13, 22)), (1010, (14, 26))]


def line(*entries: tuple[int, tuple[int, int]]) -> CheckpointLine:
    found = CheckpointLine(2)
    found.take(entries[0][0], entries)
    return found


def test_each_change_has_one_number_by_checkpoint_partition_and_version() -> None:
    found = line(*ENTRIES)
    first = [found.number(0, version) for version in (11, 12, 13)] + [found.number(1, version) for version in (21, 22)]
    second = [found.number(0, 14)] + [found.number(1, version) for version in range(23, 27)]
    assert [*first, *second] == list(range(1001, 1011))


def test_what_is_as_old_as_the_oldest_has_a_number_nobody_can_go_on_from() -> None:
    found = line(*ENTRIES)
    assert found.number(0, 10) == found.number(1, 3) == 999
    with pytest.raises(Expired):
        found.position(999)
    with pytest.raises(Expired):
        found.position(1011)


def test_a_number_is_the_sum_less_the_base_wherever_a_watch_may_stand() -> None:
    found = line(*ENTRIES)
    positions = [found.position(number) for number in range(1000, 1011)]
    assert [sum(position) - found.base for position in positions] == list(range(1000, 1011))
    assert positions[3:6] == [(13, 20), (13, 21), (13, 22)]
    assert list(found.behind((13, 20))) == [(13, 22), (14, 26)]
    assert list(found.behind((13, 22))) == [(14, 26)]
    assert found.first_covering((11, 20)) == (13, 22)


def test_a_line_that_was_begun_anew_or_trimmed_too_far_is_another_epoch() -> None:
    found = line(*ENTRIES)
    found.take(1005, [(1011, (15, 26))])
    assert (found.epoch, len(found), found.number(0, 13)) == (0, 3, 1004)
    found.take(5000, [(5000, (1, 2))])
    assert (found.epoch, found.newest, found.versions, len(found)) == (1, 5000, (1, 2), 1)


def test_any_line_numbers_all_changes_without_a_hole() -> None:
    dice = random.Random(7)
    for _ in range(50):
        versions, entries = [5, 50, 500], [(100, (5, 50, 500))]
        for _ in range(10):
            grown = [dice.choice((0, 0, 1, 3)) for _ in versions]
            versions = [sum(pair) for pair in zip(versions, grown, strict=True)]
            if sum(grown):
                entries.append((entries[-1][0] + sum(grown), (versions[0], versions[1], versions[2])))
        found = CheckpointLine(3)
        found.take(100, entries)
        changes = [(part, v) for part, start in enumerate((5, 50, 500)) for v in range(start + 1, versions[part] + 1)]
        numbers = sorted(found.number(part, version) for part, version in changes)
        assert numbers == list(range(101, 101 + len(changes)))
        for part, version in changes:
            position = found.position(found.number(part, version))
            assert position[part] == version
