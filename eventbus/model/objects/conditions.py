"""Conditions of a node: set with the rule of their times, compared, and the events that their transitions are.

Pure functions. Words and messages are the kubelet's and the node controller's.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from eventbus.model.objects.node import Node, NodeCondition, NodeStatus

#: The namespace of the nodes' leases; each lease has its node's name.
NODE_LEASES: Final = "kube-node-lease"
#: Namespace and name of the lease for the leader election of lifecycle workers.
LIFECYCLE_LEASE: Final = ("eventbus-system", "eventbus-lifecycle")
#: The duration of a lease that does not set its own.
DEFAULT_LEASE_S: Final = 40

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
READY: Final = "Ready"
MEMORY_PRESSURE: Final = "MemoryPressure"
DISK_PRESSURE: Final = "DiskPressure"
PID_PRESSURE: Final = "PIDPressure"
NETWORK_UNAVAILABLE: Final = "NetworkUnavailable"

#: Why Ready is Unknown: the node fell silent, or was never heard of.
STATUS_UNKNOWN, NEVER_UPDATED = "NodeStatusUnknown", "NodeStatusNeverUpdated"

NORMAL, WARNING = "Normal", "Warning"
#: Condition → reasons of the events that say it is True, and that it is not.
_REASONS: Final = {
    READY: ("NodeReady", "NodeNotReady"),
    MEMORY_PRESSURE: ("NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
    DISK_PRESSURE: ("NodeHasDiskPressure", "NodeHasNoDiskPressure"),
    PID_PRESSURE: ("NodeHasInsufficientPID", "NodeHasSufficientPID"),
}


class Transition(NamedTuple):
    """An event for a change of a node's status: its type, reason, message and the time of the change."""

    type: str
    reason: str
    message: str
    at: datetime | None


def with_condition(
    status: NodeStatus, type: str, value: str, reason: str, message: str, now: datetime, heartbeat: datetime | None
) -> NodeStatus:
    """*status* with that condition in its place; lastTransitionTime moves only if *value* is another than before."""
    now, heartbeat = now.replace(microsecond=0), heartbeat and heartbeat.replace(microsecond=0)
    former = status.condition(type)
    since = former.last_transition_time if former and former.status == value else now
    made = NodeCondition(type, value, heartbeat, since or now, reason, message)
    if former is None:
        return msgspec.structs.replace(status, conditions=(*status.conditions, made))
    conditions = tuple(made if one.type == type else one for one in status.conditions)
    return msgspec.structs.replace(status, conditions=conditions)


def differs_beyond_heartbeats(one: NodeStatus, other: NodeStatus) -> bool:
    """True if more than the heartbeat times of the conditions differs."""
    return _without_heartbeats(one) != _without_heartbeats(other)


def transitions(before: NodeStatus, after: NodeStatus, name: str) -> Iterator[Transition]:
    """Yield the events for a write that changed *before* to *after*.

    Source:     kubelet `nodestatus/setters.go`, node controller `RecordNodeStatusChange`.
    Departures: bad conditions are Warnings, so that a list of warnings contains dead nodes; a pressure condition that
                was unknown before and is absent now makes no event.
    """
    for condition in after.conditions:
        former = before.condition(condition.type)
        was = former.status if former else ""
        if condition.type in _REASONS and condition.status != was and _is_news(condition, was):
            holds = condition.status == TRUE
            good = holds == (condition.type == READY)
            reason = _REASONS[condition.type][0 if holds else 1]
            message = f"Node {name} status is now: {reason}"
            yield Transition(NORMAL if good else WARNING, reason, message, condition.last_transition_time)


def _is_news(condition: NodeCondition, was: str) -> bool:
    """Return False if the condition only confirms its state from before the node went silent, or its default."""
    if condition.type == READY:
        return not (was == UNKNOWN and condition.status == FALSE)
    return condition.status == TRUE or (condition.status == FALSE and was == TRUE)


def rebooted(before: Node, after: Node) -> Transition | None:
    """Return the event for a reboot of the node's machine since the last write of its status, or None."""
    former, boot_id = before.status.node_info.boot_id, after.status.node_info.boot_id
    if not former or not boot_id or former == boot_id:
        return None
    message = f"Node {after.metadata.name} has been rebooted, boot id: {boot_id}"
    return Transition(WARNING, "Rebooted", message, None)


def _without_heartbeats(status: NodeStatus) -> NodeStatus:
    conditions = tuple(msgspec.structs.replace(one, last_heartbeat_time=None) for one in status.conditions)
    return msgspec.structs.replace(status, conditions=conditions)


__all__ = [
    "DEFAULT_LEASE_S",
    "DISK_PRESSURE",
    "FALSE",
    "LIFECYCLE_LEASE",
    "MEMORY_PRESSURE",
    "NETWORK_UNAVAILABLE",
    "NEVER_UPDATED",
    "NODE_LEASES",
    "PID_PRESSURE",
    "READY",
    "STATUS_UNKNOWN",
    "TRUE",
    "UNKNOWN",
    "Transition",
    "differs_beyond_heartbeats",
    "rebooted",
    "transitions",
    "with_condition",
]
