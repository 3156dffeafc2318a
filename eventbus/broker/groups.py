"""The consumer groups of a bus: the heartbeats of their members, and their deletion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client, node_of
from eventbus.broker.functions import beat_command
from eventbus.broker.keys import name_text
from eventbus.broker.redis_errors import redis_errors, translate


def share_group(group: str) -> str:
    """Return the name under which the members' counters of *group* are kept, among those of its consumers."""
    return f"share:{group}"


class GroupMembers:
    """The members of one group, among them the own worker *name*. One thread and one client."""

    def __init__(self, *, bus: Bus, client: Client, group: str, name: str) -> None:
        self._bus = bus
        self._client = client
        self._group = group
        self._name = name
        self._start = f"{share_group(group)}/"

    def beat(self, partitions: Iterable[int], *, member: bool = True) -> dict[str, str] | None:
        """Raise this worker's counters on *partitions* and, as *member*, on the bus, in one round trip a node.

        Returns: the counters of all members; None: the node that has them did not answer.
        Raises:  BusUnavailable: no node was reached, or functions are missing; call again.
        Redis:   FCALL beat, HGETALL eb:{0}:workers.
        """
        pipe: Any = self._client.pipeline(transaction=False)
        for partition in partitions:
            pipe.execute_command(*beat_command(self._bus.keys[partition], self._group, self._name))
        if member:
            pipe.execute_command(*beat_command(self._bus.keys[0], share_group(self._group), self._name))
        pipe.execute_command("HGETALL", self._bus.keys[0].workers)
        with redis_errors():
            replies = pipe.execute(raise_on_error=False)
        *beats, counters = replies
        if isinstance(counters, Exception):
            return None
        if member and isinstance(beats[-1], Exception):
            raise translate(beats[-1])
        return self._members(counters)

    def leave(self) -> None:
        """Leave the group: this worker gets no share any more. Safe to repeat."""
        self.forget([self._name])

    def forget(self, names: Sequence[str]) -> None:
        """Remove the dead members *names*. A member that lives after all joins again with its next heartbeat."""
        with redis_errors():
            self._client.hdel(self._bus.keys[0].workers, *(self._start + name for name in names))

    def _members(self, reply: Any) -> dict[str, str]:
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        counters = {name_text(field): name_text(beats) for field, beats in pairs}
        return {
            field.removeprefix(self._start): beats for field, beats in counters.items() if field.startswith(self._start)
        }


def delete_group(bus: Bus, client: Client, name: str) -> int:
    """Destroy group *name* on every partition: entries that it has not read are not kept any more. Safe to repeat.

    A worker of the group that still runs makes it again. Returns: the number of partitions that had the group.

    Raises: BusUnavailable: it may be gone on some partitions; call again.  BusRefused: no right to.
    Redis:  MULTI, XGROUP DESTROY incoming, HDEL meta and workers, DEL attempts, EXEC; partition after partition.
    """
    partitions = 0
    starts = f"{name}/".encode(), f"{share_group(name)}/".encode()
    for keys in bus.keys:
        node = node_of(client, keys.meta)
        with redis_errors():
            beats: list[bytes] = [field for field in node.hgetall(keys.workers) if field.startswith(starts)]
            pipe: Any = node.pipeline(transaction=True)
            pipe.xgroup_destroy(keys.incoming, name)
            pipe.hdel(keys.meta, *(f"{field}:{name}" for field in _FIELDS))
            pipe.delete(keys.attempts + name.encode())
            if beats:
                pipe.hdel(keys.workers, *beats)
            partitions += bool(pipe.execute()[0])
    return partitions


#: The fields of a group in `meta`.
_FIELDS = ("floor", "floor_to", "policy", "beats", "alive", "lost", "untold", "lost_batches")
