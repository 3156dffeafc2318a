"""What a reader asked for: a namespace, labels, fields."""

from __future__ import annotations

from typing import Generic, TypeVar

from eventbus.kinds import EVENT, Kind
from eventbus.list_watch import HasMetadata, ListOptions
from eventbus.selectors import FieldSelector, LabelSelector
from eventbus.store.items import Was

T = TypeVar("T", bound=HasMetadata)


class Selection(Generic[T]):
    """Says whether an object is, or was, selected. Raises: InvalidSelector, when made."""

    def __init__(self, kind: Kind[T], options: ListOptions) -> None:
        self._namespace = options.namespace
        self._labels = LabelSelector.parse(options.label_selector)
        self._fields: FieldSelector[T] = FieldSelector.parse(options.field_selector, kind.fields)
        self._kind = kind
        self.takes_all = not (self._labels.requirements or self._fields.terms)

    def matches(self, found: T) -> bool:
        """Whether the object is selected."""
        return (
            self._namespace in ("", found.metadata.namespace)
            and self._labels.matches(found.metadata.labels)
            and self._fields.matches(found)
        )

    def matched(self, found: T, was: Was | None) -> bool:
        """Whether the object was selected when it was as *was* says, and otherwise as *found*."""
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

    def index(self) -> tuple[str, bytes]:
        """The shortest index that has all of them, `name` or `object`, and how its members begin."""
        namespace = self._fields.required("metadata.namespace") or self._namespace
        name = self._fields.required("metadata.name")
        if name is not None and (namespace or not self._kind.namespaced):
            return "name", f"{namespace}/{name}\0".encode()
        about, about_name = (self._fields.required(f"involvedObject.{field}") for field in ("kind", "name"))
        if self._kind.type is EVENT.type and namespace and about is not None and about_name is not None:
            return "object", f"{namespace}/{about.lower()}/{about_name}\0".encode()
        return "name", f"{namespace}/".encode() if namespace else b""


__all__ = ["Selection"]
