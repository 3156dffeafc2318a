"""Starts a broadcaster's threads on the bus: watchers, the sink worker, exports.

Everything is imported late: a program that only records loads none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from eventbus.broker.function_values import GroupPolicy
from eventbus.clock import Clock
from eventbus.consume.handler import Handler, Watcher
from eventbus.errors import ConfigError
from eventbus.record import process_hooks
from eventbus.record.losses import Losses
from eventbus.settings import Settings

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus
    from eventbus.export.options import ExportOptions
    from eventbus.export.worker import ExportRunner
    from eventbus.remote.stream import RemoteStream
    from eventbus.sinks.contract import EventSink


def start_watcher(
    bus: Bus, handler: Handler, *, group: str | None, since: datetime | None, clock: Clock, block_ms: int
) -> Watcher:
    """Watch the stream: with *group* as a member of it, else without a name. *since* is aware; None: from now on.

    Raises: BusUnavailable, BusRefused.
    """
    with process_hooks.no_fork():  # these imports are not needed for recording
        from eventbus.consume.watchers import GroupWatcher, StreamWatcher

    since_ms = None if since is None else int(since.timestamp() * 1000)
    if group is None:
        stream = StreamWatcher(bus=bus, handler=handler, clock=clock, since_ms=since_ms, block_ms=block_ms)
        stream.start()
        return stream
    watcher = GroupWatcher(
        bus=bus,
        group=group,
        handler=handler,
        clock=clock,
        policy=GroupPolicy.WAIT,
        start="$" if since_ms is None else f"{max(0, since_ms - 1)}-18446744073709551615",
        block_ms=block_ms,
    )
    watcher.start()
    return watcher


def open_remote_stream(url: str, settings: Settings, since: datetime | None) -> RemoteStream:
    """Open the raw stream of the API worker at *url* at its end, or at *since*."""
    from eventbus.remote.address import parse_api_url
    from eventbus.remote.stream import RemoteStream

    return RemoteStream(parse_api_url(url, settings), since=since)


def start_remote_watcher(stream: RemoteStream, handler: Handler) -> Watcher:
    """Watch through an API worker."""
    from eventbus.record.remote_watcher import RemoteWatcher

    watcher = RemoteWatcher(stream=stream, handler=handler)
    watcher.start()
    return watcher


def start_store_sink(open_bus: Callable[[], Bus], *, clock: Clock, block_ms: int, losses: Losses) -> Watcher:
    """Run the store's sink worker once the bus can be opened."""
    from eventbus.correlate.sink_runner import SinkRunner
    from eventbus.record.deferred_start import DeferredStart

    runner = DeferredStart(
        "the sink worker",
        open_bus=open_bus,
        make=lambda bus: SinkRunner(bus=bus, clock=clock, block_ms=block_ms),
        losses=losses,
    )
    runner.start()
    return runner


def start_export(
    sink: EventSink,
    options: ExportOptions,
    open_bus: Callable[[], Bus],
    *,
    clock: Clock,
    block_ms: int,
    losses: Losses,
) -> Watcher:
    """Run an export to *sink* once the bus can be opened. Raises: ConfigError: no sink, or an invalid name."""
    from eventbus.export.worker import ExportRunner
    from eventbus.record.deferred_start import DeferredStart
    from eventbus.sinks.contract import EventSink
    from eventbus.sinks.registry import check_name
    from eventbus.sinks.shared import share

    if not isinstance(sink, EventSink):
        raise ConfigError(f"{sink!r} is no sink: see eventbus.sinks.EventSink")
    name = check_name(sink.name)

    def make(bus: Bus) -> ExportRunner:
        shared = share(sink, bus.partitions)
        return ExportRunner(bus=bus, make_sink=lambda: shared, clock=clock, options=options, block_ms=block_ms)

    runner = DeferredStart(f"the export to {name}", open_bus=open_bus, make=make, losses=losses, give_up=sink.close)
    runner.start()
    return runner
