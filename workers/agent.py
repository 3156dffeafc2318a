"""`eventbus worker agent`: this machine is a node."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eventbus.cli.input.finite import Finite
from workers.options import metrics_option, worker_help

if TYPE_CHECKING:
    from workers.runtime import Context, Part


@click.command(epilog=worker_help())
@click.option("--node-name", default="", metavar="NAME", help="Name of the node.  [default: the host's, in lower case]")
@click.option("--node-label", "labels", multiple=True, metavar="KEY=VALUE", help="Label the node; may be repeated.")
@click.option(
    "--node-status-update-frequency",
    "status_every_s",
    type=Finite(min=0.05),
    default=10.0,
    show_default=True,
    help="How often the machine is looked at, seconds.",
)
@click.option(
    "--lease-duration",
    "lease_s",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="How long the node may be silent before it counts as lost, seconds; it gives a sign four times as often.",
)
@click.option("--keep-node", is_flag=True, help="Leave the node behind at a clean end: it will be found silent.")
@metrics_option
def agent(
    node_name: str,
    labels: tuple[str, ...],
    status_every_s: float,
    lease_s: int,
    keep_node: bool,
    metrics: str,
) -> None:
    """Make this machine a node: register it, tell how it is, and give a sign of life every few seconds.

    `eventbus get nodes` shows it and `eventbus describe node` all that it tells: addresses, capacity, versions, and the
    conditions Ready, MemoryPressure, DiskPressure, PIDPressure and NetworkUnavailable. What an installed package has
    registered under eventbus.node_status is told as well. When the machine falls silent a lifecycle worker says so. A
    clean end takes the node away. Needs psutil: pip install 'eventbus[agent]'.

    \b
    Examples:
      eventbus worker agent
      eventbus worker agent --node-name db-1 --node-label zone=a
    """
    from eventbus.agent.opening import open_agent
    from workers.runtime import run

    given = dict(_label(label) for label in labels)

    def build(context: Context) -> Part:
        return open_agent(
            context.bus,
            name=node_name,
            labels=given,
            clock=context.clock,
            state_dir=Path(context.settings.state_dir or os.getcwd()),
            status_every_s=status_every_s,
            lease_s=lease_s,
            # Begun anew after other options, it is the same node as before.
            keep_node=lambda: keep_node or not context.ending(),
            on_change=context.on_change,
        )

    sys.exit(run("eventbus-agent", build, metrics=metrics))


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE", param_hint="--node-label")
    return key, value
