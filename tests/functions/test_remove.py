"""remove_event.lua: a person takes an event out of the store; the correlator's count is not theirs to take."""

from __future__ import annotations

import time

import pytest

from eventbus.broker.functions import WriteStatus, Written
from tests.builders import make_event
from tests.functions.partition import Partition, changed

EIGHT_DAYS = 8 * 24 * 3_600_000


@pytest.fixture
def key(partition: Partition) -> bytes:
    partition.record(make_event(), make_event())
    (found,) = partition.answers()
    return found


@pytest.mark.parametrize("wanted", ["", "its own"])
def test_the_event_goes_with_a_deleted_change_and_the_count_stays(
    partition: Partition, key: bytes, wanted: str
) -> None:
    version = str(partition.version())

    answer = partition.call.remove_event(partition.options, key, version if wanted else "")

    assert answer == Written(WriteStatus.OK, str(int(version) + 1))
    assert [(kind, found) for kind, found, _ in partition.changes()] == [("A", int(version)), ("D", int(version) + 1)]
    assert partition.stored() == []
    assert partition.answers()[key].count == 2
    state = partition.state()
    assert not {"index:name:events", "index:object", "index:expiry"} & state.keys()
    assert abs(state["index:forget"][0][key] - time.time() * 1000 - EIGHT_DAYS) < 60_000
    assert partition.record(make_event()) == "r"
    assert partition.stored()[0].count == 3


def test_another_version_is_a_conflict_and_nothing_is_written(partition: Partition, key: bytes) -> None:
    before = partition.state()
    answer = partition.call.remove_event(partition.options, key, "12")
    assert answer == Written(WriteStatus.CONFLICT, str(partition.version()))
    assert changed(before, partition.state()) == set()


def test_what_is_not_there_is_missing(partition: Partition, key: bytes) -> None:
    assert partition.call.remove_event(partition.options, b"0" * 14) == Written(WriteStatus.MISSING)
    partition.call.remove_event(partition.options, key)
    before = partition.state()
    # Only its counts are left.
    assert partition.call.remove_event(partition.options, key) == Written(WriteStatus.MISSING)
    assert changed(before, partition.state()) == set()
