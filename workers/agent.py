"""`eventbus worker agent`: this machine is a node, and may run pods."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from eventbus.cli.input.options import Finite
from eventbus.workers.options import metrics_option, worker_help


@click.command(epilog=worker_help("One runs on each machine."))
@click.option("--node-name", default="", metavar="NAME", help="Name of the node.  [default: the host's, in lower case]")
@click.option("--node-label", "labels", multiple=True, metavar="KEY=VALUE", help="Label the node; may be repeated.")
@click.option(
    "--node-status-update-frequency",
    "status_every_s",
    type=Finite(min=0.05),
    default=10.0,
    show_default=True,
    help="Interval at which the machine is measured, seconds.",
)
@click.option(
    "--lease-duration",
    "lease_s",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="Time without a heartbeat after which the node is lost, seconds; heartbeats are sent four times as often.",
)
@click.option("--keep-node", is_flag=True, help="Keep the node after a clean exit; it is then reported as lost.")
@click.option(
    "--manifests",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Run the Pods of the YAML and JSON files in this folder; they are read on changes and every 20 s.",
)
@click.option("--manifest-url", default="", metavar="URL", help="Run the Pods of this URL, which is read every 20 s.")
@click.option(
    "--pods-from-bus",
    "from_bus",
    multiple=True,
    metavar="NAMESPACE",
    help="Run Pods of the store with this node as spec.nodeName; may be repeated.",
)
@click.option(
    "--allow-command",
    "allow_commands",
    multiple=True,
    metavar="PATTERN",
    help="Absolute paths that Pods of the bus or a URL may run or see, like '/opt/jobs/*'; may be repeated.",
)
@click.option(
    "--allow-env",
    multiple=True,
    metavar="PATTERN",
    help="Variables that Pods of the bus or a URL may set, like 'JOB_*'; may be repeated.  [default: none]",
)
@click.option(
    "--allow-user", "allow_users", multiple=True, type=int, metavar="UID", help="Pods may run as this user as well."
)
@click.option(
    "--allow-group",
    "allow_groups",
    multiple=True,
    type=int,
    metavar="GID",
    help="Pods may have this group as well; may be repeated. The group with the number of an allowed user is allowed.",
)
@click.option(
    "--max-pods",
    type=click.IntRange(min=0),
    default=110,
    show_default=True,
    help="Largest number of pods; more are rejected.",
)
@click.option(
    "--pressure-thresholds",
    default="",
    metavar="LIST",
    help="Below these limits, the node has MemoryPressure or DiskPressure.  "
    "[default: memory.available<100Mi,nodefs.available<10%]",
)
@click.option(
    "--standalone", is_flag=True, help="Run pods without a node and a bus; events are sent when there is a bus."
)
@click.option("--leave-pods", is_flag=True, help="Leave the processes running at the end, for the next agent.")
@metrics_option
def agent(labels: tuple[str, ...], metrics: str, **given: Any) -> None:
    """Make this machine a node: register it, report its status, and send heartbeats.

    `eventbus get nodes` shows the node, and `eventbus describe node` its addresses, capacity, versions, and the
    conditions Ready, MemoryPressure, DiskPressure, PIDPressure and NetworkUnavailable. Installed packages can add
    status functions (eventbus.node_status). If the heartbeats stop, a lifecycle worker records it. A clean exit
    deletes the node. Needs pip install 'eventbus[agent]'.

    With --manifests it runs pods: groups of processes that start and end together, are checked by
    probes, and are restarted with back-off. They run also without a bus, and continue if the agent is killed; the next
    agent takes over. The files must belong to root or the agent's user, and other users must not be able to write
    them. At a clean exit, pods get their grace period, but at most EVENTBUS_DRAIN_S; a second signal kills them.
    `eventbus logs POD` shows their logs.

    \b
    Examples:
      eventbus worker agent
      eventbus worker agent --node-name db-1 --node-label zone=a
      eventbus worker agent --manifests /etc/eventbus/manifests
      eventbus worker agent --manifests ./pods --standalone
      eventbus worker agent --pods-from-bus jobs --allow-command '/opt/jobs/*'
    """
    from eventbus.agent.pods.options import PodOptions
    from eventbus.workers.agent_node import NodeFlags, run_agent

    pods = PodOptions(**{name: given.pop(name) for name in PodOptions.__struct_fields__})
    sys.exit(run_agent(NodeFlags(labels=dict(map(_label, labels)), **given), pods, metrics=metrics))


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE", param_hint="--node-label")
    return key, value
