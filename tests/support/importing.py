"""An importer in this process, from an API server of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from eventbus.agent.node.factory import open_objects
from eventbus.broker.bus import Bus
from eventbus.export.sinks.kubernetes import load_config
from eventbus.imports.cluster import Cluster
from eventbus.imports.event_writer import EventWriter
from eventbus.imports.importer import Importer, lease_of
from eventbus.lifecycle.election import Election
from eventbus.lifecycle.runner import server_time
from eventbus.model.kinds import LEASE
from eventbus.model.matchers import event_matchers
from eventbus.util.clock import SystemClock


@contextmanager
def importing(
    bus: Bus,
    kubeconfig: Path,
    *,
    identity: str = "one",
    namespace: str = "",
    match: Sequence[str] = (),
    lease_s: int = 2,
    on_change: Callable[[str, str], None] = lambda _reason, _message: None,
    end: Callable[[int], None] = lambda _code: None,
) -> Iterator[Importer]:
    """Run one until the end of the block; it leaves tidily."""
    clock, client = SystemClock(), bus.client()
    cluster = Cluster(load_config(str(kubeconfig), ""), namespace=namespace)
    importer = Importer(
        bus=bus,
        client=client,
        cluster=cluster,
        writer=EventWriter(bus, client, event_matchers(match)),
        election=Election(
            leases=open_objects(bus, client, LEASE, clock),
            clock=clock,
            identity=identity,
            now=lambda: server_time(client),
            lease_s=lease_s,
            lease=lease_of(cluster.server, namespace, ",".join(match)),
        ),
        clock=clock,
        on_change=on_change,
        end=end,
        close=client.close,
    )
    importer.start()
    try:
        yield importer
    finally:
        importer.stop(60)
