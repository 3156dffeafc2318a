"""The data that a lifecycle worker writes to a Node: it is lost or back, or its lease was renewed at some time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from eventbus.model.event import ObjectMeta
from eventbus.model.objects.cluster import (
    NEVER_UPDATED,
    READY,
    STATUS_UNKNOWN,
    TRUE,
    UNKNOWN,
    Lease,
    Node,
    NodeStatus,
    with_condition,
)

#: On a node that was created for a lease of its name; it is removed with the lease.
FROM_LEASE: Final = "lifecycle.eventbus.dev/from-lease"
#: Why a node without an agent is ready.
HEARTBEAT: Final = "NodeHeartbeat"
#: When a long lease was renewed, for later workers: `<version of the lease> <RFC 3339, by the server's clock>`.
HEARD_AT: Final = "lifecycle.eventbus.dev/heard-at"


def lost(node: Node, lease: Lease | None, now: datetime) -> NodeStatus:
    """Return the status of a lost node. lastHeartbeatTime keeps the time of the node's last heartbeat.

    Source: node controller `node_lifecycle_controller.go` tryUpdateNodeHealth. Departure: all conditions, not three.
    """
    status = node.status
    was_heard = status.condition(READY) is not None
    reason = STATUS_UNKNOWN if was_heard else NEVER_UPDATED
    message = f"Agent {'stopped posting' if was_heard else 'never posted'} node status."
    for type in dict.fromkeys([*(condition.type for condition in status.conditions), READY]):
        former = status.condition(type)
        heartbeat = former.last_heartbeat_time if former else None
        if type == READY and lease is not None and lease.spec.renew_time is not None:
            heartbeat = lease.spec.renew_time
        status = with_condition(status, type, UNKNOWN, reason, message, now, heartbeat)
    return status


def recovered(node: Node, lease: Lease | None, now: datetime) -> NodeStatus:
    """Return the status of a node that sends heartbeats again and has no agent."""
    heartbeat = lease.spec.renew_time if lease is not None else None
    return with_condition(node.status, READY, TRUE, HEARTBEAT, "node is renewing its lease", now, heartbeat)


def made_for(name: str, lease: Lease, now: datetime) -> Node:
    """Return the node for a lease that was written without a node."""
    node = Node(metadata=ObjectMeta(name=name, annotations={FROM_LEASE: "true"}))
    return msgspec.structs.replace(node, status=recovered(node, lease, now))


def read_heard_at(node: Node, lease: Lease, now: datetime) -> float:
    """Return for how many seconds *lease* has not changed; 0: no worker has noted it."""
    version, _, text = node.metadata.annotations.get(HEARD_AT, "").partition(" ")
    if version != lease.metadata.resource_version:
        return 0.0
    try:
        return max(0.0, (now - datetime.fromisoformat(text)).total_seconds())
    except (ValueError, TypeError):  # written by another program
        return 0.0


def write_heard_at(node: Node, lease: Lease, at: datetime) -> Node | None:
    """Return *node* with the time of the renewal; None: it has it already."""
    metadata, version = node.metadata, lease.metadata.resource_version
    if metadata.annotations.get(HEARD_AT, "").partition(" ")[0] == version:
        return None
    note = f"{version} {at.astimezone(UTC).isoformat(timespec='seconds')}"
    noted = msgspec.structs.replace(metadata, annotations=dict(metadata.annotations) | {HEARD_AT: note})
    return msgspec.structs.replace(node, metadata=noted)
