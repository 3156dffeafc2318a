"""The read path, client-go's tools/cache: a local, indexed copy of the store's objects, with handlers for changes.

Knows nothing of Redis: everything is read through `eventbus.model.list_watch.ListerWatcher`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventbus.cache.delta_fifo import DeltaFIFO, FifoClosed
    from eventbus.cache.deltas import DeletedFinalStateUnknown, Delta, DeltaType, last_state, object_key
    from eventbus.cache.factory import ObjectSource, SharedInformerFactory
    from eventbus.cache.indexer import NAMESPACE, Indexer
    from eventbus.cache.informer import InformerStopped, SharedInformer
    from eventbus.cache.lister import Lister, NamespaceLister
    from eventbus.cache.reflector import Reflector, VeryShortWatch
    from eventbus.cache.registration import HandlerRegistration
    from eventbus.cache.stop_signal import StopSignal
    from eventbus.model.list_watch import InformedKind

#: Module → the names that it gives to this package: a command that lists imports no informer.
_MODULES = {
    "eventbus.cache.delta_fifo": (
        "DeltaFIFO",
        "FifoClosed",
    ),
    "eventbus.cache.deltas": (
        "DeletedFinalStateUnknown",
        "Delta",
        "DeltaType",
        "last_state",
        "object_key",
    ),
    "eventbus.cache.factory": (
        "ObjectSource",
        "SharedInformerFactory",
    ),
    "eventbus.cache.indexer": (
        "NAMESPACE",
        "Indexer",
    ),
    "eventbus.cache.informer": (
        "InformerStopped",
        "SharedInformer",
    ),
    "eventbus.cache.lister": (
        "Lister",
        "NamespaceLister",
    ),
    "eventbus.cache.reflector": (
        "Reflector",
        "VeryShortWatch",
    ),
    "eventbus.cache.registration": ("HandlerRegistration",),
    "eventbus.cache.stop_signal": ("StopSignal",),
    "eventbus.model.list_watch": ("InformedKind",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    # what programs use
    "SharedInformerFactory",
    "SharedInformer",
    "HandlerRegistration",
    "Lister",
    "NamespaceLister",
    "DeletedFinalStateUnknown",
    "last_state",
    "object_key",
    "InformerStopped",
    # what a factory reads from
    "InformedKind",
    "ObjectSource",
    # the parts
    "NAMESPACE",
    "Delta",
    "DeltaFIFO",
    "DeltaType",
    "FifoClosed",
    "Indexer",
    "Reflector",
    "StopSignal",
    "VeryShortWatch",
]
