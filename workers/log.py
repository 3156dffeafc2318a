"""`eventbus worker log`: every event of the bus as a line, raw, before correlation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from eventbus.workers.options import metrics_option, take_over_option, worker_help

if TYPE_CHECKING:
    from eventbus.workers.worker import Context, Part


@click.command(epilog=worker_help())
@click.option("--format", "form", type=click.Choice(["text", "json", "logfmt"]), default="text", show_default=True)
@click.option("--output", metavar="FILE", help="Append to FILE instead of standard output; workers may share it.")
@metrics_option
@take_over_option
def log(form: str, output: str | None, metrics: str, take_over_s: float) -> None:
    """Write every event of the bus as a line with its uid.

    A FILE gets each event exactly once, even if workers die or Redis loses its last writes (repeats are detected in
    the last 256 MiB). Standard output gets each event at least once. Unreadable entries go to the dead letter. If the
    disk is full, the worker waits.

    \b
    Examples:
      eventbus worker log
      eventbus worker log --format json | jq -r .message
      eventbus worker log --format logfmt --output /var/log/events.log
    """
    from eventbus.workers.log_lines import Format
    from eventbus.workers.log_output import open_output
    from eventbus.workers.log_runner import log_worker
    from eventbus.workers.worker import run

    target = open_output(output)

    def build(context: Context) -> Part:
        return log_worker(context, output=target, form=Format(form), take_over_s=take_over_s)

    try:
        sys.exit(run("eventbus-log", build, metrics=metrics))
    finally:
        target.close()
