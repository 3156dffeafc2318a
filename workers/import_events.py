"""`eventbus worker import`: writes the events of a Kubernetes cluster into the store."""

from __future__ import annotations

import os
import sys
from datetime import datetime

import click

from eventbus.workers.options import match_option, metrics_option, worker_help


@click.command("import", epilog=worker_help("Any number of these may run for a cluster; one acts."))
@click.option(
    "--kubeconfig",
    "path",
    default="",
    metavar="FILE",
    help="The cluster.  [default: that of this pod, else $KUBECONFIG, else ~/.kube/config]",
)
@click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig.  [default: its current one]")
@click.option("-n", "--namespace", default="", metavar="NAME", help="Only the events of this namespace.")
@match_option
@metrics_option
@click.option("--leader-lease-s", type=click.IntRange(min=1), default=8, hidden=True)
def import_events(
    path: str, context: str, namespace: str, match: tuple[str, ...], metrics: str, leader_lease_s: int
) -> None:
    """Write the events of a Kubernetes cluster into the store, and follow their changes.

    Events keep their name, uid, count, series and times: they are not correlated. One that is stored changes only if it
    has happened again. One worker acts; another takes over within 10 s, and goes on where it stopped. If the cluster
    has forgotten this position, all of its events are compared. An API worker of another bus is a cluster, too; one of
    this bus is refused. Needs the verbs list and watch on events, and pip install 'eventbus[kubernetes]'.

    \b
    Examples:
      eventbus worker import
      eventbus worker import --kubeconfig prod.yaml --context prod
      eventbus worker import -n shop --match 'type="Warning"'
    """
    from eventbus.agent.node.factory import open_objects
    from eventbus.lifecycle.election import Election
    from eventbus.lifecycle.runner import server_time
    from eventbus.model.kinds import LEASE
    from eventbus.model.matchers import event_matchers
    from eventbus.util.extras import extra_needed
    from eventbus.workers.worker import Context, Part, run

    with extra_needed("kubernetes", "eventbus worker import"):
        from eventbus.export.sinks.kubernetes import load_config
        from eventbus.imports.cluster import Cluster
        from eventbus.imports.event_writer import EventWriter
        from eventbus.imports.importer import Importer, lease_of

    config = load_config(path or os.environ.get("KUBECONFIG", ""), context)
    matchers = event_matchers(match)

    def build(worker: Context) -> Part:
        client = worker.bus.client(name="eventbus-import")

        def now() -> datetime:
            return server_time(client)

        cluster = Cluster(config, namespace=namespace)
        return Importer(
            bus=worker.bus,
            client=client,
            cluster=cluster,
            writer=EventWriter(worker.bus, client, matchers),
            election=Election(
                leases=open_objects(worker.bus, client, LEASE, worker.clock),
                clock=worker.clock,
                identity=worker.name,
                now=now,
                lease_s=leader_lease_s,
                lease=lease_of(cluster.server, namespace, ",".join(map(str, matchers.all))),
            ),
            clock=worker.clock,
            on_change=worker.on_change,
            end=worker.end,
            close=client.close,
        )

    doing = f", and imports the events of {config.cluster.server}"
    sys.exit(run("eventbus-import", build, metrics=metrics, doing=doing))
