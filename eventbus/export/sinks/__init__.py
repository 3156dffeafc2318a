"""The sinks that correlated events are exported to, a module or package for each system.

A sink has no position, retries or Redis client."""

from eventbus.export.sinks.contract import (
    BatchSink,
    CollectingSink,
    DeletingSink,
    EventPatch,
    EventSink,
    OrderedSink,
    SinkAnswer,
    SinkMode,
    SinkWrite,
    Verb,
    delivery_id,
)
from eventbus.export.sinks.registry import SinkOptions, make_sink

__all__ = [
    "make_sink",
    "SinkOptions",
    "EventSink",
    "BatchSink",
    "CollectingSink",
    "DeletingSink",
    "OrderedSink",
    "SinkMode",
    "SinkWrite",
    "SinkAnswer",
    "EventPatch",
    "Verb",
    "delivery_id",
]
