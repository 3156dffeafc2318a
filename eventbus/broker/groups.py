"""Deletes a consumer group from the bus, with everything that is kept for it."""

from __future__ import annotations

from typing import Any

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.group_members import share_group
from eventbus.broker.health.partition_status import node_of
from eventbus.broker.redis_errors import redis_errors


def delete_group(bus: Bus, client: Client, name: str) -> int:
    """Destroy group *name* on every partition: entries that it has not read are not kept any more. Safe to repeat.

    A worker of the group that still runs makes it again. Returns: the number of partitions that had the group.

    Raises: BusUnavailable: it may be gone on some partitions; call again.  BusRefused: no right to.
    Redis:  MULTI, XGROUP DESTROY incoming, HDEL meta and workers, DEL attempts, EXEC; partition after partition.
    """
    found = 0
    starts = f"{name}/".encode(), f"{share_group(name)}/".encode()
    for keys in bus.keys:
        node = node_of(client, keys.meta)
        with redis_errors():
            beats: list[bytes] = [field for field in node.hgetall(keys.workers) if field.startswith(starts)]
            pipe: Any = node.pipeline(transaction=True)
            pipe.xgroup_destroy(keys.incoming, name)
            pipe.hdel(keys.meta, *(f"{what}:{name}" for what in _FIELDS))
            pipe.delete(keys.attempts + name.encode())
            if beats:
                pipe.hdel(keys.workers, *beats)
            found += bool(pipe.execute()[0])
    return found


#: The fields of a group in `meta`.
_FIELDS = ("floor", "floor_to", "policy", "beats", "alive", "lost", "untold", "lost_batches")
