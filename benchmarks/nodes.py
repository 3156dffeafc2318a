"""What a fleet of silent-or-not costs: CPU of Redis and of the acting lifecycle worker while so many nodes give signs.

python -m benchmarks.nodes [--nodes 1000] [--seconds 60]; `benchmarks.scale` computes what more nodes cost.

Each simulated node does what an agent's two threads do: a lease is renewed and the node read every 10 s, its status
written every 300 s, spread evenly. The load is made here, over loopback; server and worker are processes of their own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.meter import cpu_of
from eventbus.agent.node.factory import open_objects
from eventbus.agent.node.lease_renewal import LeaseRenewal
from eventbus.broker.bus import open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.health.status import read_lifecycle
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import LEASE, NODE
from eventbus.model.objects.cluster import Node, NodeCondition, NodeStatus, NodeSystemInfo
from eventbus.settings import Settings
from eventbus.util.clock import SystemClock

RENEW_S, REPORT_S = 10.0, 300.0
HISTORY_BYTES = LEASE.changes_bytes or 0


class Measured(NamedTuple):
    """What so many nodes cost, and whether the load was right."""

    redis_cores: float
    worker_cores: float
    change_bytes: float  #: appended to the changes of leases
    late_s: float  #: at the most
    lost: int  #: nodes that were called lost


def main() -> int:
    """Measure, and print a table. Returns: 1 if a node was called lost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eb") as folder:
        server = EmbeddedServer(Path(folder))
        try:
            found = measure(server.start(), asked.nodes, asked.seconds)
        finally:
            server.stop()
    print("| nodes | Redis, cores | lifecycle worker, cores | changes of leases, MiB/s | late by, s | called lost |")
    print("|--:|--:|--:|--:|--:|--:|")
    rate = found.change_bytes / asked.seconds / 2**20
    print(
        f"| {asked.nodes:,} | {found.redis_cores:.3f} | {found.worker_cores:.3f} | {rate:.2f} | {found.late_s:.2f}"
        f" | {found.lost} |"
    )
    return int(found.lost > 0)


def measure(url: str, nodes: int, seconds: float) -> Measured:
    """Simulate so many agents for *seconds*, with a lifecycle worker as a process."""
    bus, clock = open_bus(url, Settings()), SystemClock()
    client = bus.client()
    stored, leases = open_objects(bus, client, NODE, clock), open_objects(bus, client, LEASE, clock)
    renewals = [
        LeaseRenewal(leases=leases, clock=clock, name=f"node-{n:06}", holder=f"node-{n:06}_1", duration_s=40)
        for n in range(nodes)
    ]
    for n, renewal in enumerate(renewals):
        stored.create(_node(f"node-{n:06}"))
        renewal.renew()
    env = dict(os.environ) | {"EVENTBUS_REDIS_URL": url}
    worker = subprocess.Popen(
        [sys.executable, "-m", "eventbus", "worker", "lifecycle"],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not read_lifecycle(bus, client).alive:
            time.sleep(0.1)
        pids = int(client.info("server")["process_id"]), worker.pid
        changes = bus.keys[0].changes_of("leases")
        before, began = [cpu_of(pid) for pid in pids], time.perf_counter()
        added = client.xinfo_stream(changes)["entries-added"]
        late_s = _load(stored, renewals, nodes, seconds)
        lasted = time.perf_counter() - began
        redis, lifecycle = ((cpu_of(pid) - used) / lasted for pid, used in zip(pids, before, strict=True))
        added = client.xinfo_stream(changes)["entries-added"] - added
        size = (client.memory_usage(changes, samples=0) or 0) / max(1, client.xlen(changes))
        unknown = sum(one.status.conditions[-1].status != "True" for one in stored.list().items)
    finally:
        worker.kill()
        worker.wait()
        client.close()
    return Measured(redis, lifecycle, added * size, late_s, unknown)


def _load(stored: object, renewals: list[LeaseRenewal], nodes: int, seconds: float) -> float:
    """Do for *seconds* what the agents of all nodes do. Returns: by how much it was late at the most."""
    began, done, late = time.perf_counter(), 0, 0.0
    while (now := time.perf_counter() - began) < seconds:
        due = int(now * nodes / RENEW_S)
        if done >= due:
            time.sleep(0.005)
            continue
        late = max(late, now - done * RENEW_S / nodes)
        n = done % nodes
        renewals[n].renew()
        found = stored.get(f"node-{n:06}")  # type: ignore[attr-defined]
        if done % int(REPORT_S / RENEW_S) == 0:
            stored.update_status(_reported(found))  # type: ignore[attr-defined]
        done += 1
    return late


def _node(name: str) -> Node:
    types = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Ready")
    conditions = tuple(
        NodeCondition(type, "True" if type == "Ready" else "False", None, None, "AgentHasNoReason", "agent is fine")
        for type in types
    )
    status = NodeStatus(
        capacity={"cpu": "2", "memory": "16777216Ki", "pods": "110", "ephemeral-storage": "104857600Ki"},
        conditions=conditions,
        node_info=NodeSystemInfo(kubelet_version="v0.1.0", os_image="Debian GNU/Linux 12 (bookworm)"),
    )
    return Node(metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}), status=status)


def _reported(node: Node) -> Node:
    capacity = dict(node.status.capacity) | {"reports": str(int(node.status.capacity.get("reports", "0")) + 1)}
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, capacity=capacity))


if __name__ == "__main__":
    raise SystemExit(main())
