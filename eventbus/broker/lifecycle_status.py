"""Reads which worker monitors the nodes: the lease of the lifecycle workers, and the number of nodes. Only reads."""

from __future__ import annotations

from typing import Any

import msgpack
import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.health.partition_status import node_of
from eventbus.broker.keys import item_key
from eventbus.broker.redis_errors import redis_errors
from eventbus.model.decodable import decodable
from eventbus.model.frozen import decode_frozen
from eventbus.model.objects.cluster import LIFECYCLE_LEASE, Lease

#: The active worker renews its lease every two seconds. After so many leases without a renewal it is gone.
GONE_AFTER_LEASES = 2


class LifecycleStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The monitoring of nodes: the active worker, and the number of nodes."""

    nodes: int
    holder: str  #: the active worker; "": there was none, or it has ended
    seen_s: float | None  #: since it renewed its lease, by the server's clock
    alive: bool

    @property
    def unwatched(self) -> bool:
        """Return True if there are nodes and no worker would notice that one fell silent."""
        return bool(self.nodes) and not self.alive


def read_lifecycle(bus: Bus, client: Client) -> LifecycleStatus:
    """Read the status. Raises: BusUnavailable, BusRefused. Redis: TIME, GET, ZCARD."""
    keys = bus.keys[0]
    with redis_errors():
        pipe: Any = node_of(client, keys.meta).pipeline(transaction=False)
        pipe.time()
        pipe.get(keys.object_of("leases") + item_key(*LIFECYCLE_LEASE))
        pipe.zcard(keys.index_name_of("nodes"))
        time, packed, nodes = pipe.execute(raise_on_error=False)
    nodes = nodes if isinstance(nodes, int) else 0  # a key of another type is found by the check of keys
    lease = None if not isinstance(packed, bytes) else _lease(packed)
    if lease is None or not lease.spec.holder_identity or lease.spec.renew_time is None:
        return LifecycleStatus(nodes, "", None, False)
    seen_s = max(0.0, time[0] + time[1] / 1e6 - lease.spec.renew_time.timestamp())
    alive = seen_s < GONE_AFTER_LEASES * (lease.spec.lease_duration_seconds or 1)
    return LifecycleStatus(nodes, lease.spec.holder_identity, seen_s, alive)


def say_unwatched(found: LifecycleStatus) -> str:
    """Describe the problem with the monitoring of nodes; "" if there is none."""
    if not found.unwatched:
        return ""
    nodes = "1 node" if found.nodes == 1 else f"{found.nodes} nodes"
    return f"no lifecycle worker is alive: {nodes} may fall silent unnoticed (eventbus worker lifecycle)"


def _lease(packed: bytes) -> Lease | None:
    try:
        body = msgpack.unpackb(packed, raw=True)[3]
        return msgspec.json.decode(body, type=decodable(Lease), dec_hook=decode_frozen)
    except (ValueError, TypeError, LookupError):  # not ours
        return None


__all__ = ["LifecycleStatus", "read_lifecycle", "say_unwatched"]
