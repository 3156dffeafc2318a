"""`eventbus worker notify`: sends notifications about events, by rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from eventbus.cli.input.options import seconds_option
from eventbus.workers.options import metrics_option, take_over_option, worker_help


@click.command(epilog=worker_help("Any number of these may run; one acts."))
@click.option(
    "--rules",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Routes and receivers in Alertmanager's words. Read again when it changes, and at SIGHUP.",
)
@click.option(
    "--since",
    "since_s",
    callback=seconds_option,
    metavar="DURATION",
    help="Where no notifier has run before, begin with the events of the last DURATION, like 1h.  [default: now]",
)
@click.option("--dry-run", is_flag=True, help="Print the notifications instead of sending them; store nothing.")
@click.option("--external-url", default="", metavar="URL", help="Address of your page or API, for links in messages.")
@click.option(
    "--heartbeat-url",
    default="",
    envvar="EVENTBUS_NOTIFY_HEARTBEAT_URL",
    metavar="URL",
    help="GET this URL each minute while notifications work, so that a monitor reports when it stops.",
)
@metrics_option
@take_over_option
def notify(path: Path, metrics: str, **given: Any) -> None:
    """Send notifications about stored events to chats, pagers, mail and webhooks.

    The rules file has Alertmanager's words: a tree of routes with matchers, receivers, inhibition and time intervals.
    Routes without a matcher on type take Warnings only. An alert is an object and a reason; it resolves after a
    silence, or by a good event. One worker acts; another takes over within 20 s, and repeats at most one notification
    of each group and receiver. State and positions are in Redis. A file with a mistake ends the worker at start with
    exit code 2; later, the former rules stay. See docs/warnings.md. Needs pip install 'eventbus[notify]'.

    \b
    Examples:
      eventbus worker notify --rules rules.yaml
      eventbus worker notify --rules rules.yaml --dry-run --since 1h
      eventbus rules check rules.yaml
    """
    from eventbus.workers.notify_run import NotifyFlags, run_notify

    sys.exit(run_notify(NotifyFlags(path=path, **given), metrics=metrics))
