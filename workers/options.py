"""What all workers' command lines have in common."""

from __future__ import annotations

import click

#: Hidden: shorter than a living worker's pause makes workers rob each other. For tests.
take_over_option = click.option("--take-over-s", type=float, default=15.0, hidden=True)

#: Prometheus metrics, /livez and /readyz of any worker.
metrics_option = click.option(
    "--metrics-port",
    "metrics",
    metavar="[HOST:]PORT",
    default="",
    help="Serve /metrics, /livez and /readyz there (pip install 'eventbus[metrics]').",
)


def worker_help() -> str:
    """The end of each worker's --help."""
    return """Any number of these may run; each event reaches one of them, and what a dead one had begun is taken over
    after 15 s. SIGTERM and Ctrl-C finish what is begun (EVENTBUS_DRAIN_S, 10 s) and exit 0; a second one exits at
    once. Without Redis the worker waits, with a line every 10 s.

    \b
    Settings:
      EVENTBUS_OPTIONS   JSON, like {"burst": 50}: insist on these options; a bus
                         that has others is refused (see `eventbus options`)
      EVENTBUS_DRAIN_S   longest drain, seconds
    """
