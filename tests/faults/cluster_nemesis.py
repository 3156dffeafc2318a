"""The faults of the soak over a cluster of 3 + 3: nodes die, freeze, give over and get other slots."""

from __future__ import annotations

import random
import time

from eventbus.broker.connection.cluster import key_slot
from tests.faults.process_nemesis import ProcessNemesis
from tests.faults.scene import Scene, until
from tests.functions.cluster import NODE_TIMEOUT_MS, Cluster

SHARDS = 3
PARTITIONS = 6


class ClusterNemesis(ProcessNemesis):
    """Knows every fault of nodes as well; each is over when all shards have a primary and a replica that follows it."""

    def __init__(self, scene: Scene, cluster: Cluster, chance: random.Random) -> None:
        three = ",".join(f"127.0.0.1:{port}" for port in cluster.ports[:SHARDS])  # of which one at least lives
        super().__init__(scene, lambda: f"redis://{three}", chance, mark="cluster: ")
        self._cluster = cluster
        self.faults |= {
            "cluster: primary killed": self.kill_primary,
            "cluster: primary frozen": self.freeze_primary,
            "cluster: replica killed": self.kill_replica,
            "cluster: failover": self.fail_over,
            "cluster: slot moved": self.move_slot,
        }

    def kill_primary(self) -> None:
        """Its replica takes over; it comes back as a replica."""
        primary, replica = self._shard()
        self._cluster.kill(primary)
        until(lambda: self._cluster.is_primary(replica), 60)
        time.sleep(self._chance.uniform(0, 2))
        self._cluster.restart(primary)
        self._until_whole()

    def freeze_primary(self) -> None:
        """For longer than the others wait, or not; when it wakes up it may take itself for the primary still."""
        primary, _ = self._shard()
        self._cluster.freeze(primary)
        time.sleep(self._chance.uniform(0.3, 4) * NODE_TIMEOUT_MS / 1000)
        self._cluster.thaw(primary)
        self._until_whole()

    def kill_replica(self) -> None:
        _, replica = self._shard()
        self._cluster.kill(replica)
        time.sleep(self._chance.uniform(0, 2))
        self._cluster.restart(replica)
        self._until_whole()

    def fail_over(self) -> None:
        """As an operator does before he works on a node."""
        _, replica = self._shard()
        with self._cluster.node(replica) as node:
            node.execute_command("CLUSTER", "FAILOVER")
        until(lambda: self._cluster.is_primary(replica), 60)
        self._until_whole()

    def move_slot(self) -> None:
        """The slot of a partition goes to another primary and back, under load."""
        slot = key_slot(self._scene.bus.keys[self._chance.randrange(PARTITIONS)].meta)
        source, target = self._owner(slot), self._chance.choice([self._primary(n) for n in range(SHARDS)])
        if source == target:
            return
        assert self._cluster.move_slot(slot, source, target) > 0
        time.sleep(self._chance.uniform(0, 2))
        assert self._cluster.move_slot(slot, target, source) > 0

    def _shard(self) -> tuple[int, int]:
        """Primary and replica of any."""
        number = self._chance.randrange(SHARDS)
        primary = self._primary(number)
        return primary, (primary + SHARDS) % (2 * SHARDS)

    def _primary(self, shard: int) -> int:
        return shard if self._cluster.is_primary(shard) else shard + SHARDS

    def _owner(self, slot: int) -> int:
        """The node that has *slot*."""
        with self._cluster.node(0) as node:
            for first, last, primary, *_ in node.execute_command("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return self._cluster.ports.index(primary[1])
        raise AssertionError(f"nobody has slot {slot}")

    def _until_whole(self) -> None:
        until(lambda: all(self._is_whole(number) for number in range(SHARDS)), 90)

    def _is_whole(self, shard: int) -> bool:
        """One of the two is primary, the other follows it, and both know that the cluster is well."""
        roles = []
        for number in (shard, shard + SHARDS):
            with self._cluster.node(number) as node:
                found = node.info("replication")
                roles.append((found["role"], found.get("master_link_status", "up")))
                if "cluster_state:ok" not in _text(node.execute_command("CLUSTER", "INFO")):
                    return False
        return sorted(roles) == [("master", "up"), ("slave", "up")]


def _text(info: object) -> str:
    if isinstance(info, dict):
        return "\n".join(f"{name}:{value}" for name, value in info.items())
    return info.decode() if isinstance(info, bytes) else str(info)
