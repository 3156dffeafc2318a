"""Writes the verdicts of a lifecycle worker: a node is lost, is back, was made by a lease alone."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from eventbus.event import ObjectMeta
from eventbus.objects.conditions import NEVER_UPDATED, READY, STATUS_UNKNOWN, TRUE, UNKNOWN, with_condition
from eventbus.objects.lease import Lease
from eventbus.objects.node import Node, NodeStatus

#: On a node that was created for a lease of its name; it is removed with the lease.
FROM_LEASE: Final = "lifecycle.eventbus.dev/from-lease"
#: Why a node without an agent is ready.
HEARTBEAT: Final = "NodeHeartbeat"


def lost(node: Node, lease: Lease | None, now: datetime) -> NodeStatus:
    """The status of a node that fell silent. lastHeartbeatTime stays the node's own: it says which sign was the last.

    Source: node controller `node_lifecycle_controller.go` tryUpdateNodeHealth. Departure: all conditions, not three.
    """
    status = node.status
    was_heard = status.condition(READY) is not None
    reason = STATUS_UNKNOWN if was_heard else NEVER_UPDATED
    message = f"Agent {'stopped posting' if was_heard else 'never posted'} node status."
    for type in dict.fromkeys([*(one.type for one in status.conditions), READY]):
        former = status.condition(type)
        heartbeat = former.last_heartbeat_time if former else None
        if type == READY and lease is not None and lease.spec.renew_time is not None:
            heartbeat = lease.spec.renew_time
        status = with_condition(status, type, UNKNOWN, reason, message, now, heartbeat)
    return status


def recovered(node: Node, lease: Lease | None, now: datetime) -> NodeStatus:
    """Return the status of a node that gives signs again and has no agent to report more."""
    heartbeat = lease.spec.renew_time if lease is not None else None
    return with_condition(node.status, READY, TRUE, HEARTBEAT, "node is renewing its lease", now, heartbeat)


def made_for(name: str, lease: Lease, now: datetime) -> Node:
    """The node of a lease that was put without one."""
    node = Node(metadata=ObjectMeta(name=name, annotations={FROM_LEASE: "true"}))
    return msgspec.structs.replace(node, status=recovered(node, lease, now))
