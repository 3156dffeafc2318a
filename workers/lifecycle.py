"""`eventbus worker lifecycle`: detects lost nodes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from eventbus.cli.input.options import Finite, seconds_option
from eventbus.workers.options import metrics_option, worker_help

if TYPE_CHECKING:
    from eventbus.workers.worker import Context, Part


@click.command(epilog=worker_help("Any number of these may run; one is active."))
@click.option(
    "--on-lost",
    default="",
    metavar="COMMAND",
    help="Run by /bin/sh for each lost node, at most once; EVENTBUS_NODE has its name.",
)
@click.option(
    "--forget-after",
    "forget_after_s",
    callback=seconds_option,
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="Delete nodes that are lost for longer, like 12h or 30d.",
)
@click.option(
    "--node-monitor-period",
    "period_s",
    type=Finite(min=0.1),
    default=5.0,
    show_default=True,
    help="How often the nodes are checked, seconds.",
)
@click.option(
    "--node-startup-grace-period",
    "startup_grace_s",
    type=Finite(min=0.1),
    default=60.0,
    show_default=True,
    help="Time for a new node to report its status, seconds.",
)
@metrics_option
@click.option("--leader-lease-s", type=click.IntRange(min=1), default=8, hidden=True)
def lifecycle(
    on_lost: str, forget_after_s: float, period_s: float, startup_grace_s: float, metrics: str, leader_lease_s: int
) -> None:
    """Watch the leases of all nodes, and record which nodes are lost and which are back.

    A node is lost if its lease was not renewed for its duration, 40 s for an agent. Then its conditions become
    Unknown, and one Warning NodeNotReady is recorded about it. Any number of these workers may run: all watch, one is
    active, and another takes over within 15 s. After an outage of the worker itself, every grace period starts again.
    If most nodes are lost within a minute, it marks them slowly and records PartialDisruption.

    The active worker runs the command of --on-lost, so give all workers the same one. A worker that dies, or is
    stopped, may miss nodes. To miss none, use `eventbus worker notify` with a route for NodeNotReady.

    \b
    Examples:
      eventbus worker lifecycle
      eventbus worker lifecycle --on-lost 'send-page "$EVENTBUS_NODE is lost"'
      eventbus worker lifecycle --forget-after 12h
    """
    from eventbus.lifecycle.node_monitor import Pace
    from eventbus.lifecycle.runner import open_lifecycle
    from eventbus.workers.worker import run

    pace = Pace(period_s=period_s, startup_grace_s=startup_grace_s, forget_after_s=forget_after_s)

    def build(context: Context) -> Part:
        return open_lifecycle(
            context.bus,
            identity=context.name,
            pace=pace,
            election_s=leader_lease_s,
            on_lost=on_lost,
            clock=context.clock,
            on_change=context.on_change,
        )

    sys.exit(run("eventbus-lifecycle", build, metrics=metrics))
