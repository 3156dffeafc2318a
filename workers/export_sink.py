"""Runs the sink of `eventbus worker export`, after a check for permanent errors."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

import click

from eventbus.broker.bus import open_bus
from eventbus.cli.session import find_url
from eventbus.errors import EventUnbuildable
from eventbus.export.rules import ExportOptions, make_options, start_of
from eventbus.export.sinks import EventSink, SinkWrite, Verb, make_sink
from eventbus.export.sinks.common import json_line
from eventbus.export.sinks.contract import CheckedSink
from eventbus.export.sinks.registry import given_url, safe_sink_url, split_counts
from eventbus.export.worker import ExportRunner
from eventbus.model.matchers import labels_of
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock
from eventbus.workers.near_misses import warn_of_near_misses
from eventbus.workers.worker import Context, Part, run


class ExportFlags(NamedTuple):
    """The options of `eventbus worker export`; see its --help."""

    url: str
    name: str
    start: str
    match: tuple[str, ...]
    repeats: str
    batch: int
    timeout_s: float
    rate: float
    outage: str
    take_over_s: float
    dry_run: bool


def run_export(flags: ExportFlags, *, metrics: str) -> int:
    """Export until a signal; return the exit code. Raises: ConfigError and other permanent errors, before the start."""
    to, counts = split_counts(given_url(flags.url, os.environ))

    def open_sink(bus_id: str = "") -> EventSink:
        return make_sink(to, os.environ, name=flags.name, timeout_s=flags.timeout_s, bus_id=bus_id)

    first = open_sink()  # reports errors in the URL before anything starts
    try:
        if isinstance(first, CheckedSink):
            first.check()
    finally:
        first.close()
    start = flags.start or ("beginning" if flags.dry_run else start_of(first.mode))
    options = make_options(
        SystemClock(),
        start=start,
        match=flags.match,
        repeats=flags.repeats,
        outage=flags.outage,
        counts=counts,
        batch_events=flags.batch,
        rate_per_s=flags.rate,
        take_over_s=flags.take_over_s,
    )

    if flags.dry_run:
        return _dry_run(open_sink(), options, f"{safe_sink_url(to)} as {first.name}")

    def build(context: Context) -> Part:
        if flags.match:
            warn_of_near_misses(context, options.matchers.all)
        return ExportRunner(
            bus=context.bus,
            make_sink=lambda: open_sink(context.bus.id),
            clock=context.clock,
            options=options,
            block_ms=context.settings.worker_block_ms,
            name=context.name,
            on_change=context.on_change,
            on_gone=lambda: context.end(1),
        )

    events = f" events that match {options.matchers}" if flags.match else ""
    doing = f", and writes{events} to {safe_sink_url(to)} as {first.name}; a new sink begins {_begins(start)}"
    return run("eventbus-export", build, metrics=metrics, doing=doing)


def _dry_run(sink: EventSink, options: ExportOptions, target: str) -> int:
    """Print the stored events that a new sink would get, as JSON Lines. Nothing is sent or stored. Returns: 0 or 1."""
    settings = Settings.from_environ(os.environ)
    bus = open_bus(find_url(settings), settings)
    client = bus.client(name="eventbus-export-dry-run")
    matching = refused = 0
    try:
        events = ObjectStore(bus, client).list().items
        for event in events:
            if not (options.start.takes(event) and options.matchers.match(labels_of(event))):
                continue
            matching += 1
            write = SinkWrite.of(Verb.CREATE, event)
            try:
                sys.stdout.buffer.write(json_line(write))
            except EventUnbuildable as error:
                refused += 1
                click.echo(f"{write.delivery_id} cannot be sent, and would go to the dead letter: {error}", err=True)
        sys.stdout.flush()
    finally:
        client.close()
        sink.close()
    cannot = f"; {refused} cannot be sent" if refused else ""
    found = f"{matching} of {len(events)} stored events match{cannot}"
    click.echo(f"dry run: {found}; nothing was written to {target}", err=True)
    return 1 if refused else 0


def _begins(start: str) -> str:
    if start == "now":
        return "now (--from beginning: with all stored events)"
    return "with all stored events" if start == "beginning" else f"at {start}"
