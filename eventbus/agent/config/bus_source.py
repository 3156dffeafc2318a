"""Pods from the bus: an informer on the pods with this node as spec.nodeName."""

from __future__ import annotations

import threading

import msgspec

from eventbus.agent.config.pod_config import PodConfig
from eventbus.agent.pods.updates import CONFIG_HASH, CONFIG_SOURCE, RUN_BY_UP, Source, is_mirror
from eventbus.cache.delta_fifo import DeletedFinalStateUnknown
from eventbus.cache.factory import ObjectSource, SharedInformerFactory
from eventbus.cache.informer import SharedInformer
from eventbus.model.kinds import POD
from eventbus.model.list_watch import ListOptions
from eventbus.model.objects.pod import Pod
from eventbus.model.selectors import escape_value


class BusSource:
    """Sets the pods that the bus has for this node, and the mirrors of the node's static pods.

    While the bus is unavailable, no list is set, and the pods run on.
    """

    def __init__(
        self,
        config: PodConfig,
        store: ObjectSource,
        *,
        node: str,
    ) -> None:
        config.expect(Source.BUS)
        self._config = config
        self._lock = threading.Lock()
        self._has_listed = False

        def mine(options: ListOptions) -> ListOptions:
            return msgspec.structs.replace(options, field_selector=f"spec.nodeName={escape_value(node)}")

        self._factory = SharedInformerFactory(store, tweak_list_options=mine)
        self._informer: SharedInformer[Pod] = self._factory.informer_for(POD)
        self._handlers = self._informer.add_event_handler(
            on_add=lambda _pod, _initial: self._set_pods(),
            on_update=lambda _old, new: self._set_pods(new),
            on_delete=self._set_pods_without,
        )

    def start(self) -> None:
        """Begin to read. `look` sets a first list without pods."""
        self._factory.start()

    def look(self) -> None:
        """Set the pods if the first list is complete: no handler is called for an empty list."""
        if not self._has_listed and self._informer.has_synced:
            self._set_pods()

    def stop(self) -> None:
        self._factory.stop()

    def _set_pods_without(self, last: Pod | DeletedFinalStateUnknown[Pod]) -> None:
        """Set the deleted pod first: a pod that was forced out of the store has no other deletion time."""
        if isinstance(last, Pod) and last.metadata.deletion_timestamp is not None:
            self._set_pods(last)
        self._set_pods()

    def _set_pods(self, *changed: Pod) -> None:
        """Set the pods of the index and *changed*, which may have left the index before its handler is called."""
        if not self._handlers.has_synced:
            return  # half a list would take the rest away
        with self._lock:
            self._has_listed = True
            pods = {pod.metadata.uid: pod for pod in (*changed, *self._informer.indexer.list())}
            self._config.set(Source.BUS, [_of_bus(pod) for pod in pods.values() if not _is_run_by_up(pod)])


def _is_run_by_up(pod: Pod) -> bool:
    """Return True for a mirror of an `eventbus up` on the same machine, which removes it itself."""
    return is_mirror(pod) and RUN_BY_UP in pod.metadata.annotations


def _of_bus(pod: Pod) -> Pod:
    """Return *pod* without its own annotation of a source: only files make static pods."""
    if is_mirror(pod):
        return pod
    annotations = {
        key: value for key, value in pod.metadata.annotations.items() if key not in (CONFIG_SOURCE, CONFIG_HASH)
    }
    if len(annotations) == len(pod.metadata.annotations):
        return pod
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))
