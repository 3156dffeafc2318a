"""`eventbus worker export`: correlated events to an external sink."""

from __future__ import annotations

import sys
from typing import Any

import click

from eventbus.cli.input.options import Finite
from eventbus.workers.options import match_option, metrics_option, worker_help


@click.command(epilog=worker_help())
@click.option("--to", "url", default="", metavar="URL", help="Target: see above.  [default: EVENTBUS_EXPORT_TO(_FILE)]")
@click.option("--name", default="", help="Name of the sink, for its position.  [default: made from the URL]")
@click.option(
    "--from",
    "start",
    default="",
    metavar="WHEN",
    help="Start of a new sink: now, beginning (all stored events), a time, or a period like 10m.  "
    "[default: beginning for postgresql and kubernetes, which keep one of each event; now for others]",
)
@match_option
@click.option(
    "--repeats",
    default="every",
    show_default=True,
    metavar="RULE",
    help="Repeats that the sink gets: every, or at-most-every=5m.",
)
@click.option(
    "--batch", type=click.IntRange(1, 1000), default=500, show_default=True, help="Events written at once, at most."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Finite(0.1, 300),
    default=10.0,
    show_default=True,
    help="Longest wait for an answer of the sink, seconds; webhooks at most 10.",
)
@click.option(
    "--rate", type=Finite(min=0), default=0.0, help="Events a second that a worker writes, at most.  [default: any]"
)
@click.option(
    "--outage",
    type=click.Choice(["pause", "count"]),
    default="pause",
    show_default=True,
    help="If the sink does not answer: wait, or drop an event after 12 tries, as client-go does.",
)
@click.option("--dry-run", is_flag=True, help="Print the stored events that a new sink would get; send nothing.")
@metrics_option
@click.option("--take-over-s", type=Finite(min=0), default=25.0, hidden=True)
def export(metrics: str, **given: Any) -> None:
    """Write correlated events, and every change of them, to an external system.

    \b
    postgresql://user@host/database  rows, one an event (EVENTBUS_POSTGRES_PASSWORD)
    kubernetes:                      Events of a cluster, by kubeconfig or from inside
    https://host/path                CloudEvents by POST
    otlp://host:4318, otlps://host   log records to an OpenTelemetry collector (EVENTBUS_EXPORT_HEADERS)
    loki+https://host                the same to Grafana Loki
    elasticsearch+https://host/NAME  documents of a data stream; opensearch+https: too
    clickhouse+https://host/DB/TABLE rows, one for each change
    splunk+https://host:8088         events of the HTTP Event Collector
    nats://host:4222/STREAM          messages of a JetStream stream; nats+tls: too
    kafka://host:9092/TOPIC          messages of a topic of Kafka; kafka+tls: too
    s3://BUCKET/PREFIX               objects of JSON Lines; s3+https://host/BUCKET/PREFIX too
    syslog://host:601                messages of RFC 5424; syslog+tls: too
    file:/var/log/events.jsonl       JSON Lines, rotated
    stdout:                          JSON Lines
    scheme:…                         a sink that an installed package has registered

    Extras: pip install 'eventbus[postgres]', 'eventbus[kubernetes]', 'eventbus[webhook]', 'eventbus[otlp]',
    'eventbus[nats]', 'eventbus[kafka]', 'eventbus[s3]'.

    With counts=shown in the query of the URL, a sink gets the counts of `eventbus get events`, with suppressed repeats.
    Otherwise it gets the counts that client-go would have written.

    --match has Alertmanager's syntax. The labels are type, reason, kind, namespace, name, component, host, controller,
    message, and label_team for the label team of an event. =~ and !~ need pip install 'eventbus[notify]'.

    Secrets are read from the environment or from files, not from the command line; see docs/sinks.md. Put a secret URL
    into EVENTBUS_EXPORT_TO, or into the file of EVENTBUS_EXPORT_TO_FILE. For each sink and partition, one worker
    writes and the others stand by. An unknown host or database ends the worker at start with exit code 2. If the sink
    is unavailable, the worker waits. An event that the sink rejects goes to the dead letter. `eventbus status` shows
    each sink.

    \b
    Examples:
      eventbus worker export --to stdout: | jq -r .event.message
      eventbus worker export --to 'file:events.jsonl?max-size=100MiB&keep=9' --from now
      eventbus worker export --to postgresql://events@db/events --metrics-port 9108
      eventbus worker export --to otlps://otlp.example.com --match 'namespace="shop"'
      eventbus worker export --to otlp://collector:4318 --match 'type="Warning"' --dry-run
      eventbus worker export --to https://hooks.example.com/events --match 'type="Warning"'
    """
    from eventbus.workers.export_sink import ExportFlags, run_export

    sys.exit(run_export(ExportFlags(**given), metrics=metrics))
