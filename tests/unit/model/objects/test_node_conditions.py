"""Conditions of a node: when their times move, and which of their changes are events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eventbus.model.objects.cluster import (
    NodeStatus,
    Transition,
    differs_beyond_heartbeats,
    transitions,
    with_condition,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def status(type: str, value: str, at: datetime = NOW) -> NodeStatus:
    return with_condition(NodeStatus(), type, value, "R", "m", at, at) if value else NodeStatus()


def told(type: str, before: str, after: str) -> list[tuple[str, str]]:
    found: list[Transition] = list(transitions(status(type, before), status(type, after), "n1"))
    assert all(one.message == f"Node n1 status is now: {one.reason}" for one in found)
    return [(one.type, one.reason) for one in found]


def test_the_time_of_a_transition_moves_only_with_the_status() -> None:
    before = status("Ready", "True")
    later = NOW + timedelta(minutes=1)
    same = with_condition(before, "Ready", "True", "Other", "other", later, later).condition("Ready")
    other = with_condition(before, "Ready", "False", "Other", "other", later, later).condition("Ready")
    assert same is not None
    assert other is not None
    assert (same.last_transition_time, same.last_heartbeat_time, same.reason) == (NOW, later, "Other")
    assert other.last_transition_time == later


def test_heartbeat_times_alone_are_no_difference() -> None:
    before = status("Ready", "True")
    assert not differs_beyond_heartbeats(before, with_condition(before, "Ready", "True", "R", "m", NOW, None))
    assert differs_beyond_heartbeats(before, with_condition(before, "Ready", "True", "R", "other", NOW, NOW))


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("", "True", [("Normal", "NodeReady")]),
        ("", "False", [("Warning", "NodeNotReady")]),
        ("", "Unknown", [("Warning", "NodeNotReady")]),
        ("True", "True", []),
        ("True", "False", [("Warning", "NodeNotReady")]),
        ("True", "Unknown", [("Warning", "NodeNotReady")]),
        ("False", "Unknown", [("Warning", "NodeNotReady")]),
        ("Unknown", "False", []),
        ("Unknown", "True", [("Normal", "NodeReady")]),
        ("False", "True", [("Normal", "NodeReady")]),
    ],
)
def test_what_is_told_of_ready(before: str, after: str, wanted: list[tuple[str, str]]) -> None:
    assert told("Ready", before, after) == wanted


@pytest.mark.parametrize(
    ("type", "bad", "good"),
    [
        ("MemoryPressure", "NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
        ("DiskPressure", "NodeHasDiskPressure", "NodeHasNoDiskPressure"),
        ("PIDPressure", "NodeHasInsufficientPID", "NodeHasSufficientPID"),
    ],
)
def test_what_is_told_of_pressure(type: str, bad: str, good: str) -> None:
    assert told(type, "", "True") == told(type, "False", "True") == told(type, "Unknown", "True") == [("Warning", bad)]
    assert told(type, "True", "False") == [("Normal", good)]
    assert told(type, "", "False") == told(type, "Unknown", "False") == told(type, "True", "Unknown") == []


def test_of_other_conditions_nothing_is_told() -> None:
    assert told("NetworkUnavailable", "False", "True") == told("CorpDisk", "", "True") == []
