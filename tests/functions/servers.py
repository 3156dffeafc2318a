"""Servers of a test's own: for what cannot be done to a shared one, as killing it or emptying it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from eventbus.broker.embedded.server import EmbeddedServer, inspect_binary
from tests.support.ports import free_ports


def binaries() -> dict[str, Path | None]:
    """The embedded server's program, and a Redis on PATH where there is one."""
    found: dict[str, Path | None] = {"embedded": None}
    on_path = shutil.which("redis-server")
    if on_path and inspect_binary(Path(on_path)):
        found["redis on PATH"] = Path(on_path)
    return found


@contextmanager
def own_server(directory: Path, binary: Path | None = None, **config: str) -> Iterator[EmbeddedServer]:
    """A server that has written a reply's effects before the reply; stopped in the end."""
    server = EmbeddedServer(directory, binary=binary, config={"appendfsync": "always"} | config)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def one_node_cluster(directory: Path) -> Iterator[str]:
    """Redis Cluster on one node that has all slots. Yields its url; it takes two seconds until it is up."""
    port, bus_port = free_ports(2)
    config = {"cluster-enabled": "yes", "port": str(port), "cluster-port": str(bus_port), "bind": "127.0.0.1"}
    url = f"redis://127.0.0.1:{port}"
    with own_server(directory, None, **config), Redis.from_url(url) as node:
        node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while node.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            time.sleep(0.02)
        yield url


def kill(server: EmbeddedServer) -> None:
    """Kill the server, as a power cut does, and start it again on the same files."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while server.running():
        time.sleep(0.002)
    server.start()
