"""Notes on its node when a lease that holds for long was renewed, for workers that come later."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from eventbus.objects.lease import Lease
from eventbus.objects.node import Node

#: `<version of the lease> <RFC 3339, by the server's clock>`.
HEARD_AT: Final = "lifecycle.eventbus.dev/heard-at"


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
    """*node* with the note; None: it has it."""
    metadata, version = node.metadata, lease.metadata.resource_version
    if metadata.annotations.get(HEARD_AT, "").partition(" ")[0] == version:
        return None
    note = f"{version} {at.astimezone(UTC).isoformat(timespec='seconds')}"
    made = msgspec.structs.replace(metadata, annotations=dict(metadata.annotations) | {HEARD_AT: note})
    return msgspec.structs.replace(node, metadata=made)
