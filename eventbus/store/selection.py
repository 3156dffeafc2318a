"""Decides which objects a reader's namespace, label selector and field selector select."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Generic, TypeVar

from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata, ListOptions
from eventbus.model.selectors.fields import FieldSelector, LabelSelector
from eventbus.store.selected_before import Was

T = TypeVar("T", bound=HasMetadata)


class Selection(Generic[T]):
    """Tells whether an object is, or was, selected. Raises: InvalidSelector, when made."""

    def __init__(self, kind: Kind[T], options: ListOptions) -> None:
        self._labels = LabelSelector.parse(options.label_selector)
        self._fields: FieldSelector[T] = FieldSelector.parse(options.field_selector, kind.fields)
        self._kind = kind
        self._namespace = options.namespace
        self.takes_all = not (self._labels.requirements or self._fields.terms)

    @property
    def namespace(self) -> str:
        """Return the one namespace that is selected; "": all, or none."""
        return self.required("metadata.namespace") or self._namespace

    def matches(self, found: T) -> bool:
        """Return True if the object is selected."""
        return (
            self._namespace in ("", found.metadata.namespace)
            and self._labels.matches(found.metadata.labels)
            and self._fields.matches(found)
        )

    def matched(self, found: T, was: Was | None) -> bool:
        """Return True if the object was selected when it was as *was* says; None, or what *was* lacks: as *found*."""
        if was is None:
            return self.matches(found)
        return (
            self._namespace in ("", found.metadata.namespace)
            and self._labels.matches(was.labels)
            and all(
                (was.fields.get(term.field, self._kind.fields[term.field](found)) == term.value) is not term.negated
                for term in self._fields.terms
            )
        )

    def required(self, field: str) -> str | None:
        """Return the one value that *field* must have; None: any value."""
        return self._fields.required(field)

    def name_prefix(self) -> bytes:
        """Return the prefix, in the index of names, of all members that may be selected."""
        namespace, name = self.namespace, self.required("metadata.name")
        if name is not None and (namespace or not self._kind.namespaced):
            return f"{namespace}/{name}\0".encode("utf-8", "replace")
        return f"{namespace}/".encode("utf-8", "replace") if namespace else b""


def selection_of(kind: Kind[T], namespace: str, label_selector: str, field_selector: str) -> Selection[T]:
    """The selection of many watches at once: those that are alike share it. Raises: InvalidSelector."""
    if len(label_selector) + len(field_selector) > _LONGEST_SHARED:
        return _made(kind, namespace, label_selector, field_selector)
    return _shared(kind, namespace, label_selector, field_selector)


def _made(kind: Kind[T], namespace: str, label_selector: str, field_selector: str) -> Selection[T]:
    asked = ListOptions(namespace=namespace, label_selector=label_selector, field_selector=field_selector)
    return Selection(kind, asked)


_shared: Final = lru_cache(maxsize=256)(_made)
#: Characters: one of 32 KB is 2 MB of terms, which would stay long after the last that watches by it.
_LONGEST_SHARED: Final = 1024
