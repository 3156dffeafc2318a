"""Gives pods what comes from the bus, while there is one: mirrors, statuses, ConfigMaps, Secrets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from eventbus.agent.pods.status_manager import PodObjects
from eventbus.errors import BusUnavailable, EventBusError, NotFound
from eventbus.kinds import CONFIGMAP, POD, SECRET, Kind
from eventbus.log import log
from eventbus.objects.configmap import ConfigMap
from eventbus.objects.pod import Pod
from eventbus.objects.secret import Secret
from eventbus.remote.store import RemoteStore
from eventbus.store.object_store import ObjectStore

T = TypeVar("T", ConfigMap, Secret)


class BusSide:
    """The store, from `attach` to `detach`; before, between and afterwards there is none. Thread-safe.

    It is a `ConfigSource`: while the bus is away, what was read last is given again.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._store: ObjectStore | RemoteStore | None = None
        self._pods: _OneAtATime | None = None
        self._read: dict[tuple[str, str, str], Any] = {}

    def attach(self, store: ObjectStore | RemoteStore) -> None:
        """Use *store* from now on; it stays the caller's."""
        with self._lock:
            self._store = store
            self._pods = _OneAtATime(store.objects(POD), self._lock)

    def detach(self) -> None:
        """Use it no more; waits for the call under way."""
        with self._lock:
            self._store = self._pods = None

    def pods(self) -> PodObjects | None:
        """Return the pods of the store; None: there is no bus now."""
        return self._pods

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """Implements `ConfigSource`: while the bus is away, what was read last."""
        return self._get(CONFIGMAP, namespace, name)

    def secret(self, namespace: str, name: str) -> Secret | None:
        """Implements `ConfigSource`: while the bus is away, what was read last."""
        return self._get(SECRET, namespace, name)

    def _get(self, kind: Kind[T], namespace: str, name: str) -> T | None:
        key = kind.plural, namespace, name
        with self._lock:
            if self._store is not None:
                try:
                    self._read[key] = self._store.objects(kind).get(name, namespace)
                except NotFound:
                    self._read.pop(key, None)
                except BusUnavailable:
                    pass
                except EventBusError as error:  # this user may not read it: that is the pod's problem, not ours
                    log.error("%s %s/%s cannot be read: %s", kind.name, namespace, name, error)
            found: T | None = self._read.get(key)
            return found


class _OneAtATime:
    """Pods of a store, for many threads: a writer is one thread's at a time."""

    def __init__(self, pods: PodObjects, lock: threading.RLock) -> None:
        self._pods = pods
        self._lock = lock

    def get(self, name: str, namespace: str = "") -> Pod:
        with self._lock:
            return self._pods.get(name, namespace)

    def create(self, found: Pod) -> Pod:
        with self._lock:
            return self._pods.create(found)

    def modify(
        self, name: str, change: Callable[[Pod], Pod], namespace: str = "", *, version: str = "", uid: str = ""
    ) -> Pod:
        with self._lock:
            return self._pods.modify(name, change, namespace, version=version, uid=uid)

    def delete(self, name: str, namespace: str = "", *, version: str = "") -> None:
        with self._lock:
            self._pods.delete(name, namespace, version=version)


__all__ = ["BusSide"]
