"""What a fleet of silent-or-not costs: CPU of Redis and of the acting lifecycle worker while so many nodes give signs.

python -m benchmarks.nodes [--nodes 1000] [--seconds 60]

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


def main() -> int:
    """Measure, and print a table with what it comes to for more nodes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eb") as folder:
        server = EmbeddedServer(Path(folder))
        url = server.start()
        try:
            return _measure(url, asked.nodes, asked.seconds)
        finally:
            server.stop()


def _measure(url: str, nodes: int, seconds: float) -> int:
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
        server_pid = int(client.info("server")["process_id"])
        before, began, info = (cpu_of(server_pid), cpu_of(worker.pid)), time.perf_counter(), client.info("stats")
        late_s = _load(stored, renewals, nodes, seconds)
        lasted = time.perf_counter() - began
        after = (cpu_of(server_pid), cpu_of(worker.pid))
        length = client.xlen(bus.keys[0].changes_of("leases"))
        size = client.memory_usage(bus.keys[0].changes_of("leases"), 0) or 0
        unknown = sum(one.status.conditions[-1].status != "True" for one in stored.list().items)
    finally:
        worker.kill()
        worker.wait()
        client.close()
    _print(nodes, lasted, [100 * (b - a) / lasted for a, b in zip(before, after, strict=True)])
    print(
        f"\n{nodes / RENEW_S:g} renewals a second for {lasted:.0f} s; the load was late by {late_s:.2f} s at the most;"
    )
    print(
        f"changes of leases: {length} entries, {size / 2**20:.1f} MiB; {info.get('total_commands_processed')} commands"
    )
    print(f"before; nodes that were called lost: {unknown}")
    return int(unknown > 0)


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


def _print(nodes: int, seconds: float, shares: list[float]) -> None:
    print("| nodes | Redis, % of a core | lifecycle, % of a core | |")
    print("|---|---|---|---|")
    print(f"| {nodes:,} | {shares[0]:.1f} | {shares[1]:.1f} | measured over {seconds:.0f} s |")
    for more in (10_000, 100_000):
        if more > nodes:
            redis, worker = (share * more / nodes for share in shares)
            print(f"| {more:,} | {redis:.0f} | {worker:.0f} | computed |")


if __name__ == "__main__":
    raise SystemExit(main())
