"""A Redis Cluster of several nodes on loopback, made of the embedded server's program: nothing has to be installed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from eventbus.broker.embedded.server import EmbeddedServer
from tests.functions.ports import free_ports

#: Short, so that a failover takes three seconds and not twenty.
NODE_TIMEOUT_MS = 1500
SLOTS = 16384
READY_S = 60.0


class Cluster:
    """*primaries* nodes with all slots between them, and a replica for each; they end with the block.

    Nodes are numbered: the primaries as they begin, then the replica of the first, of the second, …
    """

    def __init__(self, folder: Path, *, primaries: int = 3, replicas: bool = True, **config: str) -> None:
        nodes = primaries * 2 if replicas else primaries
        ports = free_ports(2 * nodes)
        self._primaries = primaries
        self.ports, self._bus_ports = ports[:nodes], ports[nodes:]
        common = {"cluster-enabled": "yes", "bind": "127.0.0.1", "cluster-node-timeout": str(NODE_TIMEOUT_MS)}
        common |= {
            "repl-diskless-sync-delay": "0",
            "cluster-replica-validity-factor": "0",
            "cluster-require-full-coverage": "no",
        } | config
        self._nodes = [
            EmbeddedServer(folder / f"n{i}", config=common | {"port": str(port), "cluster-port": str(bus_port)})
            for i, (port, bus_port) in enumerate(zip(self.ports, self._bus_ports, strict=True))
        ]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> str:
        """Start all nodes, and wait until they are one cluster. Returns: the url."""
        for node in self._nodes:
            node.start()
            self._stack.callback(node.stop)
        clients = [self._stack.enter_context(self.node(i)) for i in range(len(self._nodes))]
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

    def stop(self) -> None:
        """Stop all nodes. Idempotent."""
        self._stack.close()

    def running(self) -> bool:
        return any(node.running() for node in self._nodes)

    @property
    def pid(self) -> int | None:
        """Return the process id of the first node."""
        return self._nodes[0].pid

    @property
    def url(self) -> str:
        """It names the first node only."""
        return f"redis://127.0.0.1:{self.ports[0]}"

    def node(self, number: int) -> Any:
        """A plain client for one node."""
        return Redis(port=self.ports[number], socket_timeout=10, retry=Retry(NoBackoff(), 0))

    def kill(self, number: int) -> None:
        """Kill a node, as a power cut does; it stays away."""
        os.kill(self._nodes[number].pid or 0, signal.SIGKILL)
        wait_for(lambda: not self._nodes[number].running())

    def freeze(self, number: int) -> None:
        os.kill(self._nodes[number].pid or 0, signal.SIGSTOP)
        self._stack.callback(self.thaw, number)

    def thaw(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._nodes[number].pid or 0, signal.SIGCONT)

    def restart(self, number: int) -> None:
        """Start a killed node again on its own files."""
        self._nodes[number].start()

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
        joined = len(lines[0] if isinstance(lines[0], dict) else lines) == len(self._nodes)
        linked = client.info("replication").get("master_link_status", "up") == "up"
        return "ok" in str(info).split("cluster_slots_assigned")[0] and joined and linked


def wait_for(condition: Callable[[], object], within_s: float = READY_S) -> None:
    """Wait for it; fail if it does not come."""
    deadline = time.monotonic() + within_s
    while not _holds(condition):
        assert time.monotonic() < deadline, "the cluster never came to that"
        time.sleep(0.02)


def _holds(condition: Callable[[], object]) -> bool:
    try:
        return bool(condition())
    except (RedisError, OSError):
        return False


def _replicates(client: Any, primary: str) -> bool:
    """Make it a replica, once it has heard of its primary."""
    return bool(client.execute_command("CLUSTER", "REPLICATE", primary))
