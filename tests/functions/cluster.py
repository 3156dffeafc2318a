"""A Redis Cluster of several nodes on loopback, made of the embedded server's program: nothing has to be installed."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from eventbus.broker.embedded.server import EmbeddedServer
from tests.functions.nodes import Nodes, wait_for
from tests.support.ports import free_ports

#: Short, so that a failover takes three seconds and not twenty.
NODE_TIMEOUT_MS = 1500
SLOTS = 16384


class Cluster(Nodes):
    """*primaries* nodes with all slots between them, and a replica for each; they end with the block.

    Nodes are numbered: the primaries as they begin, then the replica of the first, of the second, …
    """

    def __init__(self, folder: Path, *, primaries: int = 3, replicas: bool = True, **config: str) -> None:
        nodes = primaries * 2 if replicas else primaries
        ports = free_ports(2 * nodes)
        self._primaries = primaries
        self._bus_ports = ports[nodes:]
        common = {"cluster-enabled": "yes", "bind": "127.0.0.1", "cluster-node-timeout": str(NODE_TIMEOUT_MS)}
        common |= {
            "repl-diskless-sync-delay": "0",
            "cluster-replica-validity-factor": "0",
            "cluster-require-full-coverage": "no",
        } | config
        servers = [
            EmbeddedServer(folder / f"n{i}", config=common | {"port": str(port), "cluster-port": str(bus_port)})
            for i, (port, bus_port) in enumerate(zip(ports, self._bus_ports, strict=False))
        ]
        super().__init__(servers, ports[:nodes])

    def start(self) -> str:
        """Start all nodes, and wait until they are one cluster. Returns: the url."""
        super().start()
        clients = [self._stack.enter_context(self.node(i)) for i in range(len(self._servers))]
        for port, bus_port in zip(self.ports, self._bus_ports, strict=True):
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus_port)
        for i in range(self._primaries):
            first, last = SLOTS * i // self._primaries, SLOTS * (i + 1) // self._primaries - 1
            clients[i].execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        ids = [client.execute_command("CLUSTER", "MYID").decode() for client in clients]
        for i, client in enumerate(clients[self._primaries :]):
            wait_for(partial(_replicates, client, ids[i]))
        for client in clients:
            wait_for(partial(self._is_ready, client))
        return self.url

    @property
    def url(self) -> str:
        """It names the first node only."""
        return f"redis://127.0.0.1:{self.ports[0]}"

    def is_primary(self, number: int) -> bool:
        with self.node(number) as client:
            return bool(client.execute_command("ROLE")[0] == b"master")

    def move_slot(self, slot: int, source: int, target: int) -> int:
        """Move a slot with its keys to another primary, as `redis-cli --cluster reshard` does. Returns: keys moved."""
        with self.node(source) as here, self.node(target) as there:
            its, others = (node.execute_command("CLUSTER", "MYID").decode() for node in (here, there))
            there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", its)
            here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", others)
            moved = 0
            while keys := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
                here.migrate("127.0.0.1", self.ports[target], keys, 0, 5000)
                moved += len(keys)
            for node in (there, here):
                node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", others)
        return moved

    def _is_ready(self, client: Any) -> bool:
        info = client.execute_command("CLUSTER", "INFO")
        known = client.execute_command("CLUSTER", "NODES")
        lines = [known] if isinstance(known, dict) else known.decode().splitlines()
        joined = len(lines[0] if isinstance(lines[0], dict) else lines) == len(self._servers)
        linked = client.info("replication").get("master_link_status", "up") == "up"
        # A node calls itself well before it has heard of all slots.
        told = re.search(rf"cluster_slots_assigned\D+{SLOTS}\b", str(info))
        return "ok" in str(info).split("cluster_slots_assigned")[0] and told is not None and joined and linked


def _replicates(client: Any, primary: str) -> bool:
    """Make it a replica, once it has heard of its primary."""
    return bool(client.execute_command("CLUSTER", "REPLICATE", primary))
