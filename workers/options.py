"""Command-line options that all workers share."""

from __future__ import annotations

import click

from eventbus.cli.input.options import Finite

#: Hidden, for tests: with a time shorter than a live worker's pause, workers take over each other's batches.
take_over_option = click.option("--take-over-s", type=Finite(min=0), default=15.0, hidden=True)

#: Selects events for `worker export` and `worker import`.
match_option = click.option(
    "--match",
    multiple=True,
    metavar="MATCHER",
    help='Only events that match, like type="Warning" or reason=~"Failed.*"; several must all match.',
)

#: Prometheus metrics, /livez and /readyz of any worker.
metrics_option = click.option(
    "--metrics-port",
    "metrics",
    metavar="[HOST:]PORT",
    default="",
    help="Serve /metrics, /livez and /readyz there; without HOST, only to this machine. Other machines: 0.0.0.0:9108 "
    "(pip install 'eventbus[metrics]').",
)


#: Help text of workers that share a stream.
_SHARED = """Any number of these may run. Each event is processed by one of them; the others take over the batches of a
    dead worker after 15 s."""
_REST = """ SIGTERM and Ctrl-C end the worker after the started batches; a second signal ends it at once. Without Redis,
    it waits, with a log line every 10 s.

    \b
    Settings:
      EVENTBUS_OPTIONS   JSON, like {"burst": 50}: required options; a bus
                         with other options is rejected (see `eventbus options`)
      EVENTBUS_DRAIN_S   longest drain, seconds  [default: 10]

    \b
    Exit codes:
      0      stopped, and all started work is finished
      1      the drain timed out (EVENTBUS_DRAIN_S), and another worker takes over; or
             the reader of standard output has exited
      2      this bus, or these settings, cannot be used
      128+n  ended at once by a second signal n: 130 Ctrl-C, 143 SIGTERM
    """


def worker_help(first: str = _SHARED) -> str:
    """Return the end of a worker's --help; *first*: how many of these workers may run, and why."""
    return first + _REST
