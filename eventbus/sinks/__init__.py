"""Sinks that correlated events are exported to, one file each. Systems only: no positions, no retries, no Redis."""

from eventbus.sinks.opening import SinkOptions, make_sink
from eventbus.sinks.sink import BatchSink, EventPatch, EventSink, SinkAnswer, SinkMode, SinkWrite, Verb, delivery_id

__all__ = [
    "make_sink",
    "SinkOptions",
    "EventSink",
    "BatchSink",
    "SinkMode",
    "SinkWrite",
    "SinkAnswer",
    "EventPatch",
    "Verb",
    "delivery_id",
]
