"""`eventbus worker sink`: correlates events into the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from eventbus.workers.options import metrics_option, take_over_option, worker_help

if TYPE_CHECKING:
    from eventbus.workers.worker import Context, Part


@click.command(epilog=worker_help())
@metrics_option
@take_over_option
def sink(metrics: str, take_over_s: float) -> None:
    """Correlate events and store them: count repeats, aggregate, filter spam, write and acknowledge in one step.

    \b
    Examples:
      eventbus worker sink
      EVENTBUS_REDIS_URL=redis://redis:6379/0 eventbus worker sink
    """
    from eventbus.correlate.store_recorded_events import sink_worker
    from eventbus.workers.worker import run

    def build(context: Context) -> Part:
        return sink_worker(
            bus=context.bus,
            clock=context.clock,
            block_ms=context.settings.worker_block_ms,
            name=context.name,
            take_over_s=take_over_s,
            on_change=context.on_change,
        )

    sys.exit(run("eventbus-sink", build, metrics=metrics))
