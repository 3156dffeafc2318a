"""Matchers of labels, in Alertmanager's syntax: `type="Warning"`, `reason=~"Failed.*"`, anchored at both ends.

Source: alertmanager `pkg/labels/parse.go` and `matcher.go`. Regular expressions are RE2's, which need linear time.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from eventbus.errors import ConfigError
from eventbus.model.event import Event, EventType
from eventbus.util.extras import is_needed

#: Labels that each alert has. Labels of the event itself have the prefix.
LABELS: Final = (
    *("type", "reason", "alertname", "kind", "namespace", "name", "component", "host", "controller", "message"),
)
OWN_PREFIX: Final = "label_"

#: Labels with values that are compared with matchers to find near misses.
_COMPARED: Final = ("type", "reason", "kind", "namespace", "component", "host", "controller")

_MATCHER: Final = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(=~|!=|!~|=)\s*")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE: Final = re.compile(r'[^",{}]*')
#: Lookahead and lookbehind, which RE2 does not have.
_LOOKS: Final = re.compile(r"\(\?<?[=!]")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", '"': '"', "\\": "\\"}
#: Results that a matcher with an expression remembers: most labels have few values.
_REMEMBERED: Final = 1000
#: Matchers of one route, one side of an inhibition, or one export.
MAX_MATCHERS: Final = 100
#: Memory of one compiled expression, bytes.
_MAX_PROGRAM: Final = 1 << 20
#: Instructions of all expressions of one silence or one filter: their users may be hostile, and a label of 1 KiB takes
#: about a microsecond for each. An expression without large repetitions has at most about one for each of its bytes.
MAX_USER_PROGRAM: Final = 2_500
#: The answer beyond it.
TOO_LARGE: Final = "the regular expressions are too large: take shorter ones, or smaller repetitions than in a{1000}"


def labels_of(event: Event) -> dict[str, str]:
    """Return the labels of an event; empty ones are left out."""
    about, reason = event.involved_object, event.reason
    labels = {
        "type": event.type,
        "reason": reason,
        "alertname": reason,
        "kind": about.kind,
        "namespace": about.namespace or event.metadata.namespace,
        "name": about.name,
        "component": event.source.component or event.reporting_component,
        "host": event.source.host or event.reporting_instance,
        "controller": event.reporting_component,
        "message": event.message,
    }
    found = {name: value for name, value in labels.items() if value}
    for name, value in event.metadata.labels.items():
        found[OWN_PREFIX + label_name(name)] = value
    return found


def label_name(name: str) -> str:
    """Return *name*, of a label of an event, with `_` for each character that a matcher cannot have."""
    return "".join(each if each.isalnum() and each.isascii() else "_" for each in name)


class MatchType(StrEnum):
    """The operator of a matcher."""

    EQUAL = "="
    NOT_EQUAL = "!="
    MATCHES = "=~"
    NOT_MATCHES = "!~"


_COMPARING: Final = (MatchType.EQUAL, MatchType.NOT_EQUAL)
_EXPRESSIONS: Final = (MatchType.MATCHES, MatchType.NOT_MATCHES)
_EXCLUDING: Final = (MatchType.NOT_EQUAL, MatchType.NOT_MATCHES)


class Matcher(msgspec.Struct, frozen=True):
    """One condition on one label. A label that an alert lacks has the value ""."""

    name: str
    type: MatchType
    value: str

    def test(self) -> Callable[[str], bool]:
        """Return the test of a value. Raises: ConfigError: an invalid expression, or google-re2 is missing."""
        if self.type is MatchType.EQUAL:
            return self.value.__eq__
        if self.type is MatchType.NOT_EQUAL:
            return self.value.__ne__
        return _expression(self.value, wanted=self.type is MatchType.MATCHES)

    def __str__(self) -> str:
        quoted = self.value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        return f'{self.name}{self.type}"{quoted}"'


class Matchers:
    """Conditions that must all hold. Without any, everything matches. *program_size*: instructions of all expressions.

    Raises: ConfigError: see `Matcher.test`, or more than MAX_MATCHERS.
    """

    __slots__ = ("_tests", "all", "program_size")

    def __init__(self, matchers: Iterable[Matcher] = ()) -> None:
        self.all = tuple(matchers)
        if len(self.all) > MAX_MATCHERS:
            raise ConfigError(f"there are {len(self.all)} matchers in one place, and may be {MAX_MATCHERS}")
        self.program_size = sum(_compiled(each.value).programsize for each in self.all if each.type in _EXPRESSIONS)
        self._tests = tuple((matcher.name, matcher.test()) for matcher in self.all)

    def match(self, labels: Mapping[str, str]) -> bool:
        """Return True if every matcher holds."""
        for name, test in self._tests:  # noqa: SIM110  a generator costs twice as much, for each event and route
            if not test(labels.get(name, "")):
                return False
        return True

    def names(self) -> set[str]:
        """Return the labels that are looked at."""
        return {matcher.name for matcher in self.all}

    def __str__(self) -> str:
        return "{" + ",".join(map(str, self.all)) + "}"


def parse_matchers(text: str) -> tuple[Matcher, ...]:
    """Parse `a="b"`, or several with commas, with or without braces. Raises: ConfigError."""
    rest = text.strip()
    if rest.startswith("{") != rest.endswith("}"):
        raise ConfigError(f"{text!r}: a brace is open or missing")
    if rest.startswith("{"):
        rest = rest[1:-1]
    found: list[Matcher] = []
    at = 0
    while at < len(rest):
        start = _MATCHER.match(rest, at)
        if start is None:
            raise ConfigError(f'{text!r} is no matcher: write it as reason="BackOff" or reason=~"Failed.*"')
        value, at = _value(text, rest, start.end())
        found.append(Matcher(start[1], MatchType(start[2]), value))
        separator = re.compile(r"\s*(,|\Z)\s*").match(rest, at)
        if separator is None:
            raise ConfigError(f"{text!r}: a comma is missing after the value of {start[1]}")
        at = separator.end()
    if not found:
        raise ConfigError(f"{text!r} holds no matcher")
    return tuple(found)


def event_matchers(texts: str | Iterable[str]) -> Matchers:
    """Parse matchers of events, which must all hold. Raises: ConfigError: also about one that no event can match."""
    texts = (texts,) if isinstance(texts, str) else texts
    matchers = Matchers(matcher for text in texts for matcher in parse_matchers(text))
    for matcher in matchers.all:
        if problem := matcher_problem(matcher):
            raise ConfigError(problem)
    return matchers


def matcher_problem(matcher: Matcher) -> str:
    """Return why no event can match, with the cure; "" if one can."""
    if matcher.name == "type" and matcher.type in _COMPARING and matcher.value not in list(EventType):
        return f"{matcher}: an event's type is {' or '.join(EventType)}"
    return label_problem(matcher.name)


def likely_mistake(matcher: Matcher) -> str:
    """Return why the matcher probably matches less than is meant; "" if nothing looks like it."""
    name, value = matcher.name, matcher.value
    if matcher.type in _COMPARING:
        if "*" in value and name != "message":
            pattern = ".*".join(re.escape(part) for part in value.split("*"))
            return f'{matcher} compares the whole text: for a pattern write {name}=~"{pattern}"'
        if name in ("reason", "kind") and value[:1].islower():
            return f"{matcher}: most {name}s begin with a capital letter, and case matters"
    elif name == "message" and not value.startswith((".*", "(?")):
        return f"{matcher} matches the whole message: put .* before and after a part of it"
    return ""


def label_problem(label: str, also: str = "") -> str:
    """Return that events have no such label, with the cure; "" if they have. *also*: more that is allowed."""
    if label in LABELS or (label.startswith(OWN_PREFIX) and len(label) > len(OWN_PREFIX)):
        return ""
    near = difflib.get_close_matches(label, LABELS, 1)
    there = f": there are {', '.join(LABELS)}{also}; a label of the event is {OWN_PREFIX}{label}"
    return f"there is no label {label!r}{f'; did you mean {near[0]!r}?' if near else there}"


def near_misses(matchers: Iterable[Matcher], events: Iterable[Event]) -> Iterator[str]:
    """Yield a line for each `=` and `=~` matcher that matches no value of *events*, but nearly some."""
    seen: dict[str, Counter[str]] = {label: Counter() for label in _COMPARED}
    for event in events:
        labels = labels_of(event)
        for label in _COMPARED:
            seen[label][labels.get(label, "")] += event.times_seen
    for matcher in dict.fromkeys(matchers):
        values = seen.get(matcher.name)
        if not values or matcher.type in _EXCLUDING or any(map(matcher.test(), values)):
            continue
        near, cure = _near_value(matcher, values)
        if near is not None:
            times = f"{values[near]} time{'s' if values[near] > 1 else ''}"
            yield f'{matcher.name} "{near}" was seen {times}; your matcher {matcher} matches none{cure}'


def _near_value(matcher: Matcher, values: Counter[str]) -> tuple[str | None, str]:
    """Return the most frequent value that is nearly the matcher's, and why it differs, if that is known."""
    if matcher.type is MatchType.EQUAL:
        lower = {value.lower(): value for value, _ in reversed(values.most_common())}
        found = difflib.get_close_matches(matcher.value.lower(), lower, 1, cutoff=0.8)
        return (lower[found[0]] if found else None), ""
    for wider, cure in (
        (f"(?i:{matcher.value})", ": case matters"),
        (f".*(?:{matcher.value}).*", ": it must match the whole value"),
        (f"(?i:.*(?:{matcher.value}).*)", ": it must match the whole value, and case matters"),
    ):
        try:
            test = Matcher(matcher.name, MatchType.MATCHES, wider).test()
        except ConfigError:  # too large
            continue
        for value, _ in values.most_common():
            if value and test(value):
                return value, cure
    return None, ""


def _value(text: str, rest: str, at: int) -> tuple[str, int]:
    if rest[at : at + 1] == '"':
        quoted = _QUOTED.match(rest, at)
        if quoted is None:
            raise ConfigError(f"{text!r}: a quote is not closed")
        return _ESCAPE.sub(lambda found: _unescaped(text, found[1]), quoted[1]), quoted.end()
    bare = _BARE.match(rest, at)
    assert bare is not None
    if bare[0].startswith("="):
        raise ConfigError(f"{text!r}: write one =, or put the value in quotes")
    if bare[0].startswith("~") or rest[bare.end() : bare.end() + 1] in ('"', "{", "}"):
        raise ConfigError(f"{text!r}: put the value in quotes")
    return bare[0].strip(), bare.end()


def _unescaped(text: str, character: str) -> str:
    try:
        return _ESCAPED[character]
    except KeyError:
        raise ConfigError(f'{text!r}: \\{character} is no escape; there are \\n, \\" and \\\\') from None


def _expression(pattern: str, *, wanted: bool) -> Callable[[str], bool]:
    """Return a test against an anchored expression that remembers the results for values seen lately."""
    compiled = _compiled(pattern)
    remembered: dict[str, bool] = {}

    def test(value: str) -> bool:
        result = remembered.get(value)
        if result is None:
            result = (compiled.match(value) is not None) is wanted
            if len(remembered) >= _REMEMBERED:
                remembered.clear()
            if len(value) < 200:
                remembered[value] = result
        return result

    return test


def _compiled(pattern: str) -> Any:
    """Compile an anchored expression; the library caches the newest. Raises: ConfigError."""
    try:
        import re2
    except ImportError:
        raise ConfigError(f"=~ and !~: {is_needed('notify')}", cure="pip install 'eventbus[notify]'") from None
    options = re2.Options()
    options.max_mem = _MAX_PROGRAM
    options.log_errors = False
    options.dot_nl = True  # as in Alertmanager
    try:
        return re2.compile(f"^(?:{pattern})$", options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        cure = ": RE2 has no lookahead and no lookbehind; use a matcher with !~ or !=" if _LOOKS.search(pattern) else ""
        raise ConfigError(f"{pattern!r} is no regular expression: {_words(why)}{cure}") from None


def _words(why: object) -> str:
    return why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
