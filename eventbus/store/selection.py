"""Decides which objects a reader selects now, and which a watch selected before a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, Generic, TypeVar

import msgpack
import msgspec

from eventbus.errors import DeadCause, PoisonBatch
from eventbus.model.event import EventSource
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata, ListOptions
from eventbus.model.selectors import FieldSelector, LabelSelector

T = TypeVar("T", bound=HasMetadata)


class Selection(Generic[T]):
    """Decides whether an object is, or was, selected. Raises: InvalidSelector: from the constructor."""

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

    def matches(self, obj: T) -> bool:
        """Return True if the object is selected."""
        return (
            self._namespace in ("", obj.metadata.namespace)
            and self._labels.matches(obj.metadata.labels)
            and self._fields.matches(obj)
        )

    def matched(self, obj: T, was: Was | None) -> bool:
        """Return True if the object was selected with the values of *was*, and otherwise those of *obj*."""
        if was is None:
            return self.matches(obj)
        return (
            self._namespace in ("", obj.metadata.namespace)
            and self._labels.matches(was.labels)
            and all(
                (was.fields.get(term.field, self._kind.fields[term.field](obj)) == term.value) is not term.negated
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
    """Return the selection of a watch. Watches with the same selectors share it. Raises: InvalidSelector."""
    if len(label_selector) + len(field_selector) > _LONGEST_SHARED:
        return _new_selection(kind, namespace, label_selector, field_selector)
    return _shared(kind, namespace, label_selector, field_selector)


def _new_selection(kind: Kind[T], namespace: str, label_selector: str, field_selector: str) -> Selection[T]:
    options = ListOptions(namespace=namespace, label_selector=label_selector, field_selector=field_selector)
    return Selection(kind, options)


_shared: Final = lru_cache(maxsize=256)(_new_selection)
#: Characters. A selector of 32 KB takes 2 MB, and would stay in the cache after its last watch.
_LONGEST_SHARED: Final = 1024


class Was(msgspec.Struct, frozen=True):
    """An object's former labels, and the former values of those fields that have changed."""

    labels: Mapping[str, str]
    fields: Mapping[str, str]


def encode_was(fields: Mapping[str, Callable[[T], str]], former: T, new: T) -> bytes:
    """Pack the labels of *former*, and those of *fields* that differ in *new*.

    Args:    fields: all that may be selected by.
    Returns: b"" if the two are equal for every selector.
    """
    changed = {name: get(former) for name, get in fields.items() if get(former) != get(new)}
    if not changed and former.metadata.labels == new.metadata.labels:
        return b""
    packed: bytes = msgpack.packb([dict(former.metadata.labels), changed])
    return packed


def decode_was(packed: bytes | None) -> Was | None:
    """Unpack the result of `encode_was`; None if they have not changed. Raises: PoisonBatch: the value is not ours."""
    if not packed:
        return None
    try:
        return Was(*msgspec.msgpack.decode(packed, type=tuple[dict[str, str], dict[str, str]]))
    except ValueError as error:
        raise PoisonBatch(DeadCause.UNREADABLE) from error


def restored(obj: T, was: Was) -> T:
    """Return *obj* with the labels and selectable fields that it had before; other former values are unknown."""
    result: Any = msgspec.structs.replace(obj, metadata=_with(obj.metadata, "labels", was.labels))  # type: ignore[type-var]
    for name, value in was.fields.items():
        result = _put(result, name.split("."), value)
    kept: T = result
    return kept


def _put(obj: Any, path: Sequence[str], value: str) -> Any:
    """Return *obj* with *value* at *path*, which has names of JSON; unchanged without such a field."""
    attribute = _attributes(obj.__class__).get(path[0])
    if attribute is None:
        return obj
    current = getattr(obj, attribute)
    if len(path) > 1:
        return _with(obj, attribute, _put(current, path[1:], value))
    if isinstance(current, EventSource):
        return _with(obj, attribute, _with(current, "component", value))
    if isinstance(current, bool):
        return _with(obj, attribute, value == "true")
    return _with(obj, attribute, value) if isinstance(current, str) else obj


@cache
def _attributes(shape: type) -> Mapping[str, str]:
    """Return the attributes of a struct by their names in JSON; none for other types."""
    if not issubclass(shape, msgspec.Struct):
        return {}
    return {field.encode_name: field.name for field in msgspec.structs.fields(shape)}


def _with(obj: Any, name: str, value: Any) -> Any:
    return msgspec.structs.replace(obj, **{name: value})
