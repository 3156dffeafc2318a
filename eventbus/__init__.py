"""Kubernetes-style Events for any distributed system: record events, and read a short, correct history.

    from eventbus import EventBroadcaster, ObjectReference

    with EventBroadcaster() as broadcaster:
        recorder = broadcaster.new_recorder("scheduler")
        recorder.event(ObjectReference("Pod", "default", "web-0"), "Warning", "BackOff", "restarting failed container")

Importing this package is cheap: each module is imported when one of its names is first used, and redis when a bus is
opened.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventbus.agent.node.heartbeat import heartbeat
    from eventbus.cache.delta_fifo import DeletedFinalStateUnknown, last_state
    from eventbus.cache.factory import SharedInformerFactory
    from eventbus.cache.indexer import Lister
    from eventbus.cache.informer import SharedInformer
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
    from eventbus.model.event import Event, EventSeries, EventSource, EventType, ObjectMeta, ObjectReference
    from eventbus.model.kinds import EVENT, KINDS, LEASE, NODE, Kind
    from eventbus.model.list_watch import ListerWatcher, ListOptions, ObjectList, WatchEvent, WatchEventType
    from eventbus.model.objects.cluster import Lease, LeaseSpec, Node, NodeCondition, NodeSpec, NodeStatus
    from eventbus.record.broadcaster import EventBroadcaster
    from eventbus.record.default import make_event_recorder, make_events_recorder
    from eventbus.record.process_hooks import install_signal_handlers
    from eventbus.record.recorder import EventRecorder, EventsRecorder
    from eventbus.settings import FullBuffer, Options, Settings
    from eventbus.store.object_store import ObjectStore

#: Module → the names that this package exports from it. Commands, and programs that only read, import no recorder.
_MODULES = {
    "eventbus.agent.node.heartbeat": ("heartbeat",),
    "eventbus.cache.delta_fifo": (
        "DeletedFinalStateUnknown",
        "last_state",
    ),
    "eventbus.cache.factory": ("SharedInformerFactory",),
    "eventbus.cache.informer": ("SharedInformer",),
    "eventbus.cache.indexer": ("Lister",),
    "eventbus.errors": (
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
    ),
    "eventbus.model.event": (
        "Event",
        "EventSeries",
        "EventSource",
        "EventType",
        "ObjectMeta",
        "ObjectReference",
    ),
    "eventbus.model.kinds": (
        "EVENT",
        "KINDS",
        "Kind",
        "LEASE",
        "NODE",
    ),
    "eventbus.model.list_watch": (
        "ListOptions",
        "ListerWatcher",
        "ObjectList",
        "WatchEvent",
        "WatchEventType",
    ),
    "eventbus.model.objects.cluster": (
        "Lease",
        "LeaseSpec",
        "Node",
        "NodeCondition",
        "NodeSpec",
        "NodeStatus",
    ),
    "eventbus.record.broadcaster": ("EventBroadcaster",),
    "eventbus.record.default": ("make_event_recorder", "make_events_recorder"),
    "eventbus.record.process_hooks": ("install_signal_handlers",),
    "eventbus.record.recorder": ("EventRecorder", "EventsRecorder"),
    "eventbus.settings": (
        "FullBuffer",
        "Options",
        "Settings",
    ),
    "eventbus.store.object_store": ("ObjectStore",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


__all__ = [
    # recording
    "EventBroadcaster",
    "EventRecorder",
    "EventsRecorder",
    "make_event_recorder",
    "make_events_recorder",
    "install_signal_handlers",
    "heartbeat",
    "FullBuffer",
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
