"""Refuses options of a list or a watch that exclude each other, in the API server's words.

Source: apimachinery `pkg/apis/meta/internalversion/validation`.
"""

from __future__ import annotations

from collections.abc import Iterator

from eventbus.errors import InvalidObject
from eventbus.model.list_watch import ListOptions, VersionMatch

_MATCH = "resourceVersionMatch"
_SEND = "sendInitialEvents"
_KNOWN = frozenset(VersionMatch)


def list_problems(options: ListOptions) -> Iterator[tuple[str, str]]:
    """Yield the invalid fields of a list's options, each with the problem.

    A *version_match* that is any other text is among them.
    """
    match = options.version_match
    if options.limit < 0:
        yield "limit", f"Invalid value: {options.limit}: must be greater than or equal to 0"
    if match != VersionMatch.UNSET:
        if not options.resource_version:
            yield _forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided")
        if options.continue_:
            yield _forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided")
        if match not in _KNOWN:
            yield _MATCH, f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        if match == VersionMatch.EXACT and options.resource_version == "0":
            yield _forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"')
    if options.send_initial_events is not None:
        yield _forbidden(_SEND, f"{_SEND} is forbidden for list")


def watch_problems(options: ListOptions) -> Iterator[tuple[str, str]]:
    """Yield the invalid fields of a watch's options, each with the problem."""
    match = options.version_match
    if options.send_initial_events is None:
        if match != VersionMatch.UNSET:  # servers before WatchList give only this message, whatever the match
            yield _forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless {_SEND} is provided")
        return
    if match != VersionMatch.NOT_OLDER_THAN:
        yield _forbidden(_MATCH, f"{_SEND} requires setting {_MATCH} to {VersionMatch.NOT_OLDER_THAN}")
        if match != VersionMatch.UNSET:
            yield _MATCH, f'Unsupported value: "{match}": supported values: "{VersionMatch.NOT_OLDER_THAN}"'
    elif options.continue_:
        yield _forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided")


def check_list(options: ListOptions) -> None:
    """Check the options of a list. Raises: InvalidObject."""
    _check(list_problems(options))


def check_watch(options: ListOptions) -> None:
    """Check the options of a watch. Raises: InvalidObject."""
    _check(watch_problems(options))


def _check(problems: Iterator[tuple[str, str]]) -> None:
    for field, problem in problems:
        raise InvalidObject(f"{field}: {problem}")


def _forbidden(field: str, why: str) -> tuple[str, str]:
    return field, f"Forbidden: {why}"
