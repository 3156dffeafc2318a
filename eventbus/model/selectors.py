"""Label selectors and field selectors: parsed, applied and refused in the words of the API server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from eventbus.errors import EventBusError
from eventbus.model.event import Event
from eventbus.model.list_watch import HasMetadata
from eventbus.model.names import MAX_LABEL, is_dns_subdomain, is_qualified_name

#: Requirements of a label selector, terms of a field selector. Each is compared with each object of a list.
MAX_TERMS: Final = 64


class InvalidSelector(EventBusError, ValueError):
    """The selector cannot be read, or names a field that cannot be selected by. Cure: fix the selector."""

    exit_code = 2


class LabelOperator(StrEnum):
    """The relation of a label to a requirement's values; `=` and `==` are IN, `!=` is NOT_IN, each with one value."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    NOT_EXISTS = "!"
    GREATER = ">"
    LESS = "<"


class Requirement(msgspec.Struct, frozen=True):
    """One part of a label selector."""

    key: str
    operator: LabelOperator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if *labels* fulfil it. A missing label fulfils NOT_IN, as in Kubernetes."""
        match self.operator:
            case LabelOperator.EXISTS:
                return self.key in labels
            case LabelOperator.NOT_EXISTS:
                return self.key not in labels
            case LabelOperator.IN:
                return labels.get(self.key) in self.values
            case LabelOperator.NOT_IN:
                return labels.get(self.key) not in self.values
            case LabelOperator.GREATER | LabelOperator.LESS:
                return self._compares(labels.get(self.key))

    def _compares(self, value: str | None) -> bool:
        if value is None or not _is_integer(value):
            return False
        (bound,) = self.values
        return int(value) > int(bound) if self.operator is LabelOperator.GREATER else int(value) < int(bound)


class LabelSelector(msgspec.Struct, frozen=True):
    """Requirements that must all be fulfilled; without any it selects everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Read `a=b,a!=b,a in (x,y),a notin (x),a,!a` (and `>`, `<` with integers); "" selects everything.

        Raises: InvalidSelector: worded as the API server does; also for more than `MAX_TERMS` requirements.
        Source: apimachinery `pkg/labels/selector.go`.
        """
        requirements = tuple(islice(_LabelParser(text).requirements(), MAX_TERMS + 1))
        _check_count(len(requirements))
        return cls(requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if an object with these labels is selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)


class _Token(NamedTuple):
    text: str  # "" at the end
    is_word: bool


_TOKEN: Final = re.compile(r"\s*(?:(?P<word>[^\s=!(),<>]+)|(?P<symbol>==|!=|[=!(),<>]))")
_END: Final = _Token("", False)
_OPERATORS: Final = {
    "=": LabelOperator.IN,
    "==": LabelOperator.IN,
    "!=": LabelOperator.NOT_IN,
    "in": LabelOperator.IN,
    "notin": LabelOperator.NOT_IN,
    ">": LabelOperator.GREATER,
    "<": LabelOperator.LESS,
}
_EXPECTED_OPERATORS: Final = "in, notin, =, ==, !=, gt, lt"


class _LabelParser:
    """Reads one text from left to right; `in` and `notin` are words that only count where an operator may stand."""

    def __init__(self, text: str) -> None:
        self._tokens = [_Token(match[0].strip(), match["word"] is not None) for match in _TOKEN.finditer(text)]
        self._tokens.reverse()

    def requirements(self) -> Iterator[Requirement]:
        while (token := self._peek()) is not _END:
            if not token.is_word and token.text != "!":
                raise InvalidSelector(f"found '{token.text}', expected: !, identifier, or 'end of string'")
            try:
                yield self._requirement()
            except InvalidSelector as error:
                raise InvalidSelector(f"unable to parse requirement: {error}") from None
            self._pass_comma()

    def _pass_comma(self) -> None:
        token = self._take()
        if token is _END:
            return
        if token.text != ",":
            raise InvalidSelector(f"found '{token.text}', expected: ',' or 'end of string'")
        after = self._peek()
        if not after.is_word and after.text != "!":
            raise InvalidSelector(f"found '{after.text}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        negated = self._peek().text == "!"
        if negated:
            self._take()
        key = self._identifier()
        _check_key(key)
        if self._peek().text in ("", ","):
            return Requirement(key, LabelOperator.NOT_EXISTS if negated else LabelOperator.EXISTS)
        token = self._take()
        operator = _OPERATORS.get(token.text)
        if operator is None:
            raise InvalidSelector(f"found '{token.text}', expected: {_EXPECTED_OPERATORS}")
        values = self._values() if token.is_word else self._value()
        _check_values(key, operator, values)
        return Requirement(key, operator, values)

    def _value(self) -> frozenset[str]:
        if self._peek().text in ("", ","):
            return frozenset({""})
        return frozenset({self._identifier()})

    def _values(self) -> frozenset[str]:
        """Parse a bracketed list, where nothing between two commas or brackets is the empty value."""
        opening = self._take()
        if opening.text != "(":
            raise InvalidSelector(f"found '{opening.text}' expected: '('")
        values: set[str] = set()
        while True:
            values.add(self._take().text if self._peek().is_word else "")
            token = self._take()
            if token.text == ")":
                return frozenset(values)
            if token.text != ",":
                raise InvalidSelector(f"found '{token.text}', expected: ',' or ')'")

    def _identifier(self) -> str:
        token = self._take()
        if not token.is_word:
            raise InvalidSelector(f"found '{token.text}', expected: identifier")
        return token.text

    def _peek(self) -> _Token:
        return self._tokens[-1] if self._tokens else _END

    def _take(self) -> _Token:
        return self._tokens.pop() if self._tokens else _END


_SHAPE: Final = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_BAD_NAME: Final = (
    f"name part must {_SHAPE} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_BAD_VALUE: Final = (
    f"a valid label must be an empty string or {_SHAPE} (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_BAD_PREFIX: Final = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def _check_key(key: str) -> None:
    if is_qualified_name(key):
        return
    prefix, slash, name = key.rpartition("/")
    problem = _BAD_PREFIX if slash and not is_dns_subdomain(prefix) else _BAD_NAME
    if len(name) > MAX_LABEL:
        problem = f"name part must be no more than {MAX_LABEL} bytes"
    # The API server prints "<nil>" as the path of a selector.
    raise InvalidSelector(f'<nil>: Invalid value: "{key}": {problem}')


def _check_values(key: str, operator: LabelOperator, values: frozenset[str]) -> None:
    for i, value in enumerate(sorted(values)):
        if operator in (LabelOperator.GREATER, LabelOperator.LESS) and not _is_integer(value):
            problem = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise InvalidSelector(f'values[{i}]: Invalid value: "{value}": {problem}')
        if len(value) > MAX_LABEL:
            problem = f"must be no more than {MAX_LABEL} bytes"
        elif value and ("/" in value or not is_qualified_name(value)):
            problem = _BAD_VALUE
        else:
            continue
        raise InvalidSelector(f'values[{i}][{key}]: Invalid value: "{value}": {problem}')


def _is_integer(text: str) -> bool:
    """As Go reads an int64; labels are short."""
    return re.fullmatch(r"[+-]?[0-9]{1,63}", text) is not None and -(1 << 63) <= int(text) < 1 << 63


T = TypeVar("T")


#: The selectable fields of every kind.
OBJECT_FIELDS: Final[Mapping[str, Callable[[HasMetadata], str]]] = {
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
        Raises: InvalidSelector: worded as the API server does; also for more than `MAX_TERMS` terms.
        Source: apimachinery `pkg/fields/selector.go`.
        """
        parts = re.findall(r"(?:[^\\,]|\\.|\\$)+", text, re.DOTALL)
        _check_count(len(parts))
        terms = tuple(_field_term(text, part) for part in parts)
        for term in terms:
            if term.field not in fields:
                raise InvalidSelector(_unknown(term.field, fields))
        return cls(terms, fields)

    def matches(self, obj: T) -> bool:
        """Return True if the object is selected."""
        return all((self._fields[term.field](obj) == term.value) is not term.negated for term in self.terms)

    def required(self, field: str) -> str | None:
        """Return the one value that *field* must have, for a look-up in an index; None if any will do."""
        return next((term.value for term in self.terms if term.field == field and not term.negated), None)


def escape_value(value: str) -> str:
    """Write *value* so that it can stand in a field selector."""
    return re.sub(r"([\\,=])", r"\\\1", value)


def _check_count(count: int) -> None:
    if count > MAX_TERMS:
        raise InvalidSelector(f"the selector has more than {MAX_TERMS} terms")


def _field_term(text: str, part: str) -> FieldTerm:
    operator = re.search("!=|==|=", part)
    if operator is None:
        raise InvalidSelector(f"invalid selector: '{text}'; can't understand '{part}'")
    return FieldTerm(part[: operator.start()], operator[0] == "!=", _unescape(part[operator.end() :]))


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
