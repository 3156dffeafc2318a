"""Field selectors: parsed, applied and refused in the words of the API server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from eventbus.model.event import Event, ObjectMeta
from eventbus.model.selectors.labels import InvalidSelector, LabelSelector

T = TypeVar("T")


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


#: The selectable fields of every kind.
OBJECT_FIELDS: Final[Mapping[str, Callable[[_HasMetadata], str]]] = {
    "metadata.name": lambda found: found.metadata.name,
    "metadata.namespace": lambda found: found.metadata.namespace,
}

_REFERENCE_FIELDS: Final[Mapping[str, Callable[[Event], str]]] = {
    "kind": lambda event: event.involved_object.kind,
    "namespace": lambda event: event.involved_object.namespace,
    "name": lambda event: event.involved_object.name,
    "uid": lambda event: event.involved_object.uid,
    "apiVersion": lambda event: event.involved_object.api_version,
    "resourceVersion": lambda event: event.involved_object.resource_version,
    "fieldPath": lambda event: event.involved_object.field_path,
}
_COMMON_FIELDS: Final[Mapping[str, Callable[[Event], str]]] = {
    **OBJECT_FIELDS,
    "reason": lambda event: event.reason,
    "type": lambda event: str(event.type),
}
#: The selectable fields of core/v1 events.
EVENT_FIELDS: Final[Mapping[str, Callable[[Event], str]]] = {
    **{f"involvedObject.{name}": getter for name, getter in _REFERENCE_FIELDS.items()},
    **_COMMON_FIELDS,
    "source": lambda event: event.source.component or event.reporting_component,
    "reportingComponent": lambda event: event.reporting_component,
}
#: The same fields under the names of events.k8s.io/v1.
EVENTS_V1_FIELDS: Final[Mapping[str, Callable[[Event], str]]] = {
    **{f"regarding.{name}": getter for name, getter in _REFERENCE_FIELDS.items()},
    **_COMMON_FIELDS,
    "reportingController": lambda event: event.reporting_component,
}


class FieldTerm(NamedTuple):
    """One part of a field selector: the field equals the value, or (*negated*) does not."""

    field: str
    negated: bool
    value: str


class FieldSelector(Generic[T]):
    """Terms about the fields of a kind that must all hold; exact comparison only. Frozen by convention, thread-safe."""

    def __init__(self, terms: tuple[FieldTerm, ...], fields: Mapping[str, Callable[[T], str]]) -> None:
        self.terms = terms
        self._fields = fields

    @classmethod
    def parse(cls, text: str, fields: Mapping[str, Callable[[T], str]]) -> FieldSelector[T]:
        r"""Parse `a=b,c==d,e!=f`; in values, escape `,`, `=` and `\` with a backslash; "" selects everything.

        Args:   fields: how to read each field that can be selected by, as `EVENT_FIELDS`.
        Raises: InvalidSelector: worded as the API server does.
        Source: apimachinery `pkg/fields/selector.go`.
        """
        terms = tuple(_field_term(text, part) for part in re.findall(r"(?:[^\\,]|\\.|\\$)+", text, re.DOTALL))
        for term in terms:
            if term.field not in fields:
                raise InvalidSelector(_unknown(term.field, fields))
        return cls(terms, fields)

    def matches(self, found: T) -> bool:
        """Return True if the object is selected."""
        return all((self._fields[term.field](found) == term.value) is not term.negated for term in self.terms)

    def required(self, field: str) -> str | None:
        """Return the one value that *field* must have, for a look-up in an index; None if any will do."""
        return next((term.value for term in self.terms if term.field == field and not term.negated), None)


def escape_value(value: str) -> str:
    """Write *value* so that it can stand in a field selector."""
    return re.sub(r"([\\,=])", r"\\\1", value)


def _field_term(text: str, part: str) -> FieldTerm:
    found = re.search("!=|==|=", part)
    if found is None:
        raise InvalidSelector(f"invalid selector: '{text}'; can't understand '{part}'")
    return FieldTerm(part[: found.start()], found[0] == "!=", _unescape(part[found.end() :]))


def _unknown(field: str, fields: Mapping[str, object]) -> str:
    """Word the error for an unknown field: the API server has other words for kinds with no fields of their own."""
    if fields.keys() == OBJECT_FIELDS.keys():
        return f'"{field}" is not a known field selector: only {", ".join(map(_quoted, fields))}'
    return f"field label not supported: {field}"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _unescape(value: str) -> str:
    plain, characters = [], iter(value)
    for character in characters:
        if character == "=":
            # A number, because that is how Go prints a character there.
            raise InvalidSelector(f"invalid field selector: unescaped character in value: {ord(character)}")
        if character == "\\":
            character = next(characters, "")
            if character not in ("\\", ",", "="):
                raise InvalidSelector(f"invalid field selector: invalid escape sequence: \\{character}")
        plain.append(character)
    return "".join(plain)


__all__ = [
    "LabelSelector",
    "FieldSelector",
    "FieldTerm",
    "escape_value",
    "EVENTS_V1_FIELDS",
    "EVENT_FIELDS",
    "OBJECT_FIELDS",
    "InvalidSelector",
]
