"""Access to the bus for pods, while it is connected: mirrors, statuses, ConfigMaps, Secrets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from eventbus.agent.pods.status_manager import PodObjects
from eventbus.errors import BusUnavailable, EventBusError, NotFound
from eventbus.model.kinds import CONFIGMAP, POD, SECRET, Kind
from eventbus.model.objects.config import ConfigMap, Secret
from eventbus.model.objects.pod import Pod
from eventbus.store.object_store import AnyStore
from eventbus.util.log import log

T = TypeVar("T", ConfigMap, Secret)
#: Connections that are kept for the next calls. There are as many as calls under way, which a mass of pods may make.
_MOST_IDLE: Final = 4
#: The kind's plural, namespace and name of an object.
_Key = tuple[str, str, str]


class StoreHandle:
    """The store, from `attach` to `detach`. At other times there is no store. Thread-safe.

    Each running call has its own connection, so a call that waits for the bus delays one pod only.

    It is a `ConfigSource`: while the bus is away, the last answer is returned again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # never held over a call to the bus
        self._store: AnyStore | None = None
        self._idle: list[AnyStore] = []
        self._read: dict[_Key, Any] = {}

    def attach(self, store: AnyStore) -> None:
        """Use *store* from now on; it stays the caller's."""
        self.detach()
        with self._lock:
            self._store = store

    def detach(self) -> None:
        """Begin no more calls. Running calls end by themselves."""
        with self._lock:
            self._store, idle = None, self._idle
            self._idle = []
        for store in idle:
            store.close()

    def pods(self) -> PodObjects | None:
        """Return the pods of the store; None: there is no bus now."""
        return _Pods(self) if self._store is not None else None

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """Implements `ConfigSource`: while the bus is away, the last answer."""
        return self._get(CONFIGMAP, namespace, name)

    def secret(self, namespace: str, name: str) -> Secret | None:
        """Implements `ConfigSource`: while the bus is away, the last answer."""
        return self._get(SECRET, namespace, name)

    def forget_unused(self, pods: Iterable[Pod]) -> None:
        """Forget the ConfigMaps and Secrets that none of *pods* names."""
        if not self._read:
            return
        used = {key for pod in pods for key in _references(pod)}
        with self._lock:
            self._read = {key: config for key, config in self._read.items() if key in used}

    @contextmanager
    def borrowed(self) -> Iterator[AnyStore]:
        """Lend a store that no other caller uses. Raises: BusUnavailable: there is no bus now."""
        with self._lock:
            parent = self._store
            store = self._idle.pop() if self._idle else None
        if parent is None:
            raise BusUnavailable("the agent has no bus now")
        store = store or parent.for_another_thread()
        try:
            yield store
        finally:
            with self._lock:
                stays = self._store is parent and len(self._idle) < _MOST_IDLE
                if stays:
                    self._idle.append(store)
            if not stays:
                store.close()

    def _get(self, kind: Kind[T], namespace: str, name: str) -> T | None:
        key = kind.plural, namespace, name
        try:
            with self.borrowed() as store:
                read = store.objects(kind).get(name, namespace)
            with self._lock:
                self._read[key] = read
        except NotFound:
            with self._lock:
                self._read.pop(key, None)
        except BusUnavailable:
            pass
        except EventBusError as error:  # the agent's user may not read it: the pod reports the missing object
            log.error("%s %s/%s cannot be read: %s", kind.name, namespace, name, error)
        last: T | None = self._read.get(key)
        return last


class _Pods:
    """The pods of a store, for many threads. Implements `PodObjects`; any call may raise BusUnavailable."""

    def __init__(self, side: StoreHandle) -> None:
        self._side = side

    def get(self, name: str, namespace: str = "") -> Pod:
        with self._side.borrowed() as store:
            return store.objects(POD).get(name, namespace)

    def create(self, found: Pod) -> Pod:
        with self._side.borrowed() as store:
            return store.objects(POD).create(found)

    def modify(
        self, name: str, change: Callable[[Pod], Pod], namespace: str = "", *, version: str = "", uid: str = ""
    ) -> Pod:
        with self._side.borrowed() as store:
            return store.objects(POD).modify(name, change, namespace, version=version, uid=uid)

    def delete(self, name: str, namespace: str = "", *, version: str = "") -> None:
        with self._side.borrowed() as store:
            store.objects(POD).delete(name, namespace, version=version)


def _references(pod: Pod) -> Iterator[_Key]:
    """Yield the ConfigMaps and Secrets that *pod* names."""
    namespace = pod.metadata.namespace
    config_maps: list[str] = [source.config_map.name for source in pod.spec.volumes if source.config_map]
    secrets: list[str] = [source.secret.secret_name for source in pod.spec.volumes if source.secret]
    for container in pod.spec.every_container:
        sources = [source.value_from for source in container.env if source.value_from]
        config_maps += [source.config_map_key_ref.name for source in sources if source.config_map_key_ref]
        config_maps += [source.config_map_ref.name for source in container.env_from if source.config_map_ref]
        secrets += [source.secret_key_ref.name for source in sources if source.secret_key_ref]
        secrets += [source.secret_ref.name for source in container.env_from if source.secret_ref]
    yield from ((CONFIGMAP.plural, namespace, name) for name in config_maps)
    yield from ((SECRET.plural, namespace, name) for name in secrets)
