"""`eventbus worker metrics`: serves the numbers of the whole bus to Prometheus."""

from __future__ import annotations

import sys

import click

_EXIT_CODES = """\b
    Exit codes:
      0      stopped
      2      this bus, user or address cannot be used
      128+n  ended by a second signal n: 130 Ctrl-C, 143 SIGTERM
    """


@click.command(epilog=_EXIT_CODES)
@click.option(
    "--metrics-port",
    "metrics",
    metavar="[HOST:]PORT",
    default="9107",
    show_default=True,
    help="Serve /metrics, /livez and /readyz there, to this machine alone unless HOST says more, like 0.0.0.0:9107.",
)
def metrics(metrics: str) -> None:
    """Serve the numbers of the bus to Prometheus (pip install 'eventbus[metrics]').

    It has the lag of all groups and exports, the used share of each bound, the counters of `eventbus status`, the
    memory of Redis, and the occurrences by type and reason. One of these is enough for a bus. It only reads Redis: a
    user with the role metrics is enough.

    A scrape reads the bus, at most once in 5 s, however many Prometheus servers there are. If Redis does not answer,
    eventbus_bus_up is 0, and the other numbers of the bus are missing.

    \b
    Examples:
      eventbus worker metrics
      eventbus worker metrics --metrics-port 0.0.0.0:9107
    """
    from eventbus.util.extras import extra_needed

    with extra_needed("metrics"):
        from eventbus.workers.bus_metrics import serve

    sys.exit(serve(metrics))
