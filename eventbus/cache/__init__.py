"""The read path, client-go's tools/cache: a local, indexed copy of the store's objects, with handlers for changes.

It does not use Redis: all objects come from an `eventbus.model.list_watch.ListerWatcher`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventbus.cache.delta_fifo import DeletedFinalStateUnknown, Delta, DeltaFIFO, DeltaType, FifoClosed, last_state
    from eventbus.cache.factory import ObjectSource, SharedInformerFactory
    from eventbus.cache.indexer import NAMESPACE, Indexer, Lister, NamespaceLister, object_key
    from eventbus.cache.informer import InformerStopped, SharedInformer
    from eventbus.cache.processor import HandlerRegistration
    from eventbus.cache.reflector import Reflector, StopSignal, VeryShortWatch
    from eventbus.model.list_watch import InformedKind

#: Module → the names that it gives to this package: a command that lists imports no informer.
_MODULES = {
    "delta_fifo": ("DeltaFIFO", "FifoClosed", "DeletedFinalStateUnknown", "Delta", "DeltaType", "last_state"),
    "factory": ("ObjectSource", "SharedInformerFactory"),
    "indexer": ("NAMESPACE", "Indexer", "Lister", "NamespaceLister", "object_key"),
    "informer": ("InformerStopped", "SharedInformer"),
    "processor": ("HandlerRegistration",),
    "reflector": ("Reflector", "StopSignal", "VeryShortWatch"),
}
_HOME = {name: f"eventbus.cache.{module}" for module, names in _MODULES.items() for name in names}
_HOME["InformedKind"] = "eventbus.model.list_watch"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    # for programs
    "SharedInformerFactory",
    "SharedInformer",
    "HandlerRegistration",
    "Lister",
    "NamespaceLister",
    "DeletedFinalStateUnknown",
    "last_state",
    "object_key",
    "InformerStopped",
    # the sources of a factory
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
