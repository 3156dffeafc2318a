"""The local copy: objects by key, and by the values that index functions return for them; and its listers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from eventbus.errors import NotFound
from eventbus.model.list_watch import HasMetadata
from eventbus.model.selectors import LabelSelector
from eventbus.util.log import log

T = TypeVar("T", bound=HasMetadata)

#: Returns the values of an object in an index.
IndexFunc: TypeAlias = Callable[[T], Iterable[str]]

#: The index every indexer has.
NAMESPACE: Final = "namespace"


def object_key(obj: HasMetadata) -> str:
    """Return `namespace/name`, or `name` without a namespace."""
    metadata = obj.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


class Indexer(Generic[T]):
    """Objects by key. Thread-safe; every call returns at once, with values that later changes do not touch.

    Lists have no order that can be relied upon. An index function that raises costs the object its place in this
    index, and a log line; it is called under the lock, so it must be quick and must not call back.

    Source: client-go `tools/cache/thread_safe_store.go`. Departure: there an index function that fails panics.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._objects: dict[str, T] = {}
        self._funcs: dict[str, IndexFunc[T]] = {NAMESPACE: lambda obj: (obj.metadata.namespace,)}
        # index → value → keys, never none; the keys of a dict, which takes a quarter of a set's memory
        self._indices: dict[str, dict[str, dict[str, None]]] = {NAMESPACE: {}}

    def add_indexers(self, index_funcs: Mapping[str, IndexFunc[T]]) -> None:
        """Add indexes by name, also when there are objects already.

        Raises: ValueError: a name is taken; then none was added.
        """
        with self._lock:
            taken = self._funcs.keys() & index_funcs.keys()
            if taken:
                raise ValueError(f"indexer conflict: {', '.join(sorted(taken))}")
            for name, func in index_funcs.items():
                self._funcs[name] = func
                self._indices[name] = {}
                for key, obj in self._objects.items():
                    self._enter(name, key, obj)

    def add(self, obj: T) -> None:
        """Store *obj* in place of the object with its key."""
        key = object_key(obj)
        with self._lock:
            self._leave_all(key)
            self._objects[key] = obj
            for name in self._funcs:
                self._enter(name, key, obj)

    def delete_key(self, key: str) -> None:
        """Remove the object with that key, if there is one."""
        with self._lock:
            self._leave_all(key)
            self._objects.pop(key, None)

    def get(self, obj: T) -> T | None:
        """Return the object with the key of *obj*."""
        return self.get_by_key(object_key(obj))

    def get_by_key(self, key: str) -> T | None:
        """Return the object with that key."""
        with self._lock:
            return self._objects.get(key)

    def list_keys(self) -> list[str]:
        """Return all keys."""
        with self._lock:
            return list(self._objects)

    def items(self) -> list[tuple[str, T]]:
        """Return all objects, each with its key."""
        with self._lock:
            return list(self._objects.items())

    def __len__(self) -> int:
        """Return the number of objects it holds."""
        return len(self._objects)

    def index(self, name: str, obj: T) -> list[T]:
        """Return the objects that share a value of *obj* in this index; *obj* need not be held.

        Raises: ValueError: no such index.
        """
        with self._lock:
            index = self._index(name)
            keys = {key for value in self._values(name, obj) for key in index.get(value, ())}
            return self._held(keys)

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects that have *value* in this index. Raises: ValueError: no such index."""
        with self._lock:
            return self._held(self._index(name).get(value, ()))

    def index_keys(self, name: str, value: str) -> list[str]:
        """Return the keys of `by_index`. Raises: ValueError: no such index."""
        with self._lock:
            return list(self._index(name).get(value, ()))

    def index_values(self, name: str) -> list[str]:
        """Return all values in this index. Raises: ValueError: no such index."""
        with self._lock:
            return list(self._index(name))

    def _held(self, keys: Iterable[str]) -> list[T]:
        # An index function that fails for a removed object leaves its keys in the index.
        return [self._objects[key] for key in keys if key in self._objects]

    def _index(self, name: str) -> dict[str, dict[str, None]]:
        if name not in self._indices:
            raise ValueError(f"index with name {name} does not exist")
        return self._indices[name]

    def _enter(self, name: str, key: str, obj: T) -> None:
        for value in self._values(name, obj):
            self._indices[name].setdefault(value, {})[key] = None

    def _leave_all(self, key: str) -> None:
        old = self._objects.get(key)
        if old is None:
            return
        for name, index in self._indices.items():
            for value in self._values(name, old):
                keys = index.get(value, {})
                keys.pop(key, None)
                if not keys:
                    index.pop(value, None)

    def _values(self, name: str, obj: T) -> tuple[str, ...]:
        try:
            return tuple(self._funcs[name](obj))
        except Exception:
            log.exception("Index %s failed on %s; the object is missing in it", name, object_key(obj))
            return ()

    # The last one: from here on `list` is not the type.
    def list(self) -> list[T]:
        """Return all objects."""
        with self._lock:
            return list(self._objects.values())


class NamespaceLister(Generic[T]):
    """Reads objects of one namespace; of the namespace "" those that have none."""

    def __init__(self, indexer: Indexer[T], resource: str, namespace: str) -> None:
        self._indexer = indexer
        self._resource = resource
        self._namespace = namespace

    def list(self, selector: str | LabelSelector = "") -> list[T]:
        """Return all that *selector* (of labels) selects, in no particular order. Raises: InvalidSelector."""
        return _select(self._indexer.by_index(NAMESPACE, self._namespace), selector)

    def get(self, name: str) -> T:
        """Return one object. Raises: NotFound: worded as the API server does."""
        obj = self._indexer.get_by_key(f"{self._namespace}/{name}" if self._namespace else name)
        if obj is None:
            raise NotFound(f'{self._resource} "{name}" not found')
        return obj


class Lister(Generic[T]):
    """Reads objects of one kind."""

    def __init__(self, indexer: Indexer[T], resource: str) -> None:
        self._indexer = indexer
        self._resource = resource

    def list(self, selector: str | LabelSelector = "") -> list[T]:
        """Return all that *selector* (of labels) selects, of every namespace, in no particular order."""
        return _select(self._indexer.list(), selector)

    def get(self, name: str) -> T:
        """Return one object of a kind without namespaces. Raises: NotFound: worded as the API server does."""
        return self.namespaced("").get(name)

    def namespaced(self, namespace: str) -> NamespaceLister[T]:
        """Return a lister of one namespace."""
        return NamespaceLister(self._indexer, self._resource, namespace)


def _select(objects: Iterable[T], selector: str | LabelSelector) -> list[T]:
    chosen = LabelSelector.parse(selector) if isinstance(selector, str) else selector
    return [obj for obj in objects if chosen.matches(obj.metadata.labels)]
