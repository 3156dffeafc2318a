"""The read path, client-go's tools/cache: a local, indexed copy of the store's objects, with handlers for changes.

Knows nothing of Redis: everything is read through `eventbus.list_watch.ListerWatcher`.
"""

from eventbus.cache.delta_fifo import DeltaFIFO, FifoClosed
from eventbus.cache.deltas import DeletedFinalStateUnknown, Delta, DeltaType, last_state, object_key
from eventbus.cache.factory import InformedKind, ObjectSource, SharedInformerFactory
from eventbus.cache.indexer import NAMESPACE, Indexer
from eventbus.cache.informer import InformerStopped, SharedInformer
from eventbus.cache.lister import Lister, NamespaceLister
from eventbus.cache.reflector import Reflector, VeryShortWatch
from eventbus.cache.registration import HandlerRegistration
from eventbus.cache.stop_signal import StopSignal

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
