"""Reads the local copy: without requests or waiting, and as current as its informer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from eventbus.cache.indexer import NAMESPACE, Indexer
from eventbus.errors import NotFound
from eventbus.model.list_watch import HasMetadata
from eventbus.model.selectors import LabelSelector

T = TypeVar("T", bound=HasMetadata)


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
        found = self._indexer.get_by_key(f"{self._namespace}/{name}" if self._namespace else name)
        if found is None:
            raise NotFound(f'{self._resource} "{name}" not found')
        return found


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
    return [found for found in objects if chosen.matches(found.metadata.labels)]
