"""The rules of silences and acknowledgements: of their fields, and of the namespaces that they are restricted to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from eventbus.errors import ConfigError
from eventbus.model.matchers import MAX_USER_PROGRAM, TOO_LARGE, Matcher, Matchers, MatchType, label_problem
from eventbus.model.names import is_dns_label
from eventbus.model.objects.silence import Acknowledgement, Silence, SilenceMatcher, SilenceSpec
from eventbus.model.validation import MAX_KIND, MAX_NAME, FieldProblem, invalid_field, missing_field
from eventbus.util.text import byte_length

MAX_MATCHERS: Final = 32
#: Bytes of texts.
MAX_LABEL_NAME: Final = 256
MAX_VALUE: Final = 1024
MAX_COMMENT: Final = 2048
MAX_USER: Final = 1024
#: Times of silences: conversions to local times and rounding stay within the years of `datetime`.
MIN_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TIME: Final = datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC)


def matchers_of(spec: SilenceSpec) -> Matchers:
    """Return the compiled matchers. Raises: ConfigError: an invalid expression, or google-re2 is missing."""
    return Matchers(map(_matcher, spec.matchers))


def namespaces_of(silence: Silence) -> frozenset[str]:
    """Return the namespaces that the silence is restricted to by `namespace="…"`; empty: it is not."""
    return frozenset(
        matcher.value
        for matcher in silence.spec.matchers
        if matcher.name == "namespace" and matcher.is_equal and not matcher.is_regex and matcher.value
    )


def silence_problems(silence: Silence) -> Iterator[FieldProblem]:
    """Yield the problems of a silence."""
    spec = silence.spec
    yield from _common_problems(silence)
    if not spec.matchers:
        yield missing_field("spec.matchers", "at least one matcher")
    elif len(spec.matchers) > MAX_MATCHERS:
        yield invalid_field("spec.matchers", str(len(spec.matchers)), f"at most {MAX_MATCHERS} matchers are allowed")
    else:
        yield from _matchers_problems(spec)
    yield from _time_problems("spec.startsAt", spec.starts_at)
    yield from _time_problems("spec.endsAt", spec.ends_at)
    if spec.ends_at is not None and spec.starts_at is not None and spec.ends_at <= spec.starts_at:
        yield invalid_field("spec.endsAt", spec.ends_at.isoformat(), "must be after startsAt")


def acknowledgement_problems(found: Acknowledgement) -> Iterator[FieldProblem]:
    """Yield the problems of an acknowledgement."""
    about = found.spec.object
    yield from _common_problems(found)
    for field, text, most in (("kind", about.kind, MAX_KIND), ("name", about.name, MAX_NAME)):
        if not text:
            yield missing_field(f"spec.object.{field}")
        yield from _length_problems(f"spec.object.{field}", text, most)
    if about.namespace and not is_dns_label(about.namespace):
        yield invalid_field("spec.object.namespace", about.namespace[:MAX_VALUE], "must be a DNS label")
    if found.spec.same_namespace and not about.namespace:
        yield invalid_field("spec.sameNamespace", "true", "the object is in no namespace")


def _common_problems(found: Silence | Acknowledgement) -> Iterator[FieldProblem]:
    if not _is_uuid(found.metadata.name):
        yield invalid_field("metadata.name", found.metadata.name, "must be a UUID in lower case; leave it empty")
    yield from _length_problems("spec.createdBy", found.spec.created_by, MAX_USER)
    yield from _length_problems("spec.comment", found.spec.comment, MAX_COMMENT)


def _matchers_problems(spec: SilenceSpec) -> Iterator[FieldProblem]:
    tests = []
    for number, matcher in enumerate(spec.matchers):
        field = f"spec.matchers[{number}]"
        too_long = [
            *_length_problems(f"{field}.name", matcher.name, MAX_LABEL_NAME),
            *_length_problems(f"{field}.value", matcher.value, MAX_VALUE),
        ]
        yield from too_long
        if too_long:
            continue
        if problem := label_problem(matcher.name):
            yield invalid_field(f"{field}.name", matcher.name, problem)
        try:
            tests.append(_matcher(matcher).test())
        except ConfigError as error:
            yield invalid_field(f"{field}.value", matcher.value, f"{error}{f'; {error.cure}' if error.cure else ''}")
    if len(tests) < len(spec.matchers):
        return
    if matchers_of(spec).program_size > MAX_USER_PROGRAM:
        yield invalid_field("spec.matchers", f"{len(tests)} matchers", TOO_LARGE)
    if all(test("") for test in tests):
        yield invalid_field("spec.matchers", str(spec.matchers[0]), "at least one must not match the empty string")


def _time_problems(field: str, at: datetime | None) -> Iterator[FieldProblem]:
    if at is None:
        yield missing_field(field)
    elif not MIN_TIME <= at <= MAX_TIME:
        yield invalid_field(field, at.isoformat(), "must be in the years 1970 to 9998 of UTC")


def _length_problems(field: str, text: str, most: int) -> Iterator[FieldProblem]:
    if len(text) > most or byte_length(text) > most:
        yield invalid_field(field, f"{text[:32]}…", f"at most {most} bytes are allowed")


def _matcher(matcher: SilenceMatcher) -> Matcher:
    return Matcher(matcher.name, MatchType(matcher.operator), matcher.value)


def _is_uuid(name: str) -> bool:
    try:
        return len(name) == 36 and str(UUID(name)) == name
    except ValueError:
        return False
