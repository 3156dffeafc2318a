"""Kubernetes-style Events for any distributed system: record what happens, read a short, true history.

    from eventbus import EventBroadcaster, ObjectReference

    with EventBroadcaster() as broadcaster:
        recorder = broadcaster.new_recorder("scheduler")
        recorder.event(ObjectReference("Pod", "default", "web-0"), "Warning", "BackOff", "restarting failed container")

Importing this package does not import redis; opening a bus does. Nor does it import what reads, until it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eventbus.errors import (
    AlreadyExists,
    BroadcasterStopped,
    BusRefused,
    BusUnavailable,
    ConfigError,
    Conflict,
    EventBusError,
    Expired,
    InvalidEvent,
    InvalidObject,
    NotFound,
)
from eventbus.event import Event, EventSeries, EventSource, EventType, ObjectMeta, ObjectReference
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.default import make_event_recorder
from eventbus.record.mux import FullQueue
from eventbus.record.process_hooks import install_signal_handlers
from eventbus.record.recorder import EventRecorder
from eventbus.settings import FullBuffer, Options, Settings

if TYPE_CHECKING:
    from eventbus.agent.heartbeat import heartbeat
    from eventbus.cache.deltas import DeletedFinalStateUnknown, last_state
    from eventbus.cache.factory import SharedInformerFactory
    from eventbus.cache.informer import SharedInformer
    from eventbus.cache.lister import Lister
    from eventbus.kinds import EVENT, KINDS, LEASE, NODE, Kind
    from eventbus.list_watch import ListerWatcher, ListOptions, ObjectList, WatchEvent, WatchEventType
    from eventbus.objects.lease import Lease, LeaseSpec
    from eventbus.objects.node import Node, NodeCondition, NodeSpec, NodeStatus
    from eventbus.store.object_store import ObjectStore

#: What a program that only records never touches is imported when it is asked for: it is half of the import's time.
_READING = {
    "eventbus.agent.heartbeat": ("heartbeat",),
    "eventbus.cache.deltas": ("DeletedFinalStateUnknown", "last_state"),
    "eventbus.cache.factory": ("SharedInformerFactory",),
    "eventbus.cache.informer": ("SharedInformer",),
    "eventbus.cache.lister": ("Lister",),
    "eventbus.kinds": ("EVENT", "KINDS", "LEASE", "NODE", "Kind"),
    "eventbus.list_watch": ("ListerWatcher", "ListOptions", "ObjectList", "WatchEvent", "WatchEventType"),
    "eventbus.objects.lease": ("Lease", "LeaseSpec"),
    "eventbus.objects.node": ("Node", "NodeCondition", "NodeSpec", "NodeStatus"),
    "eventbus.store.object_store": ("ObjectStore",),
}


def __getattr__(name: str) -> Any:
    for module, names in _READING.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    # recording
    "EventBroadcaster",
    "EventRecorder",
    "make_event_recorder",
    "install_signal_handlers",
    "heartbeat",
    "FullBuffer",
    "FullQueue",
    # values
    "Event",
    "EventSeries",
    "EventSource",
    "EventType",
    "ObjectMeta",
    "ObjectReference",
    "Lease",
    "LeaseSpec",
    "Node",
    "NodeCondition",
    "NodeSpec",
    "NodeStatus",
    # reading
    "ObjectStore",
    "Kind",
    "EVENT",
    "NODE",
    "LEASE",
    "KINDS",
    "ListOptions",
    "ObjectList",
    "ListerWatcher",
    "WatchEvent",
    "WatchEventType",
    # mirroring
    "SharedInformerFactory",
    "SharedInformer",
    "Lister",
    "DeletedFinalStateUnknown",
    "last_state",
    # settings
    "Options",
    "Settings",
    # errors
    "AlreadyExists",
    "BroadcasterStopped",
    "BusRefused",
    "BusUnavailable",
    "ConfigError",
    "Conflict",
    "EventBusError",
    "Expired",
    "InvalidEvent",
    "InvalidObject",
    "NotFound",
]
