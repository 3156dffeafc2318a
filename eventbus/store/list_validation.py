"""Refuses options of a list or a watch that exclude each other, in the API server's words.

Source: apimachinery `pkg/apis/meta/internalversion/validation`.
"""

from __future__ import annotations

from eventbus.errors import InvalidObject
from eventbus.list_watch import ListOptions, VersionMatch

_MATCH = "resourceVersionMatch"


def check_list(options: ListOptions) -> None:
    """Check the options of a list. Raises: InvalidObject."""
    if options.send_initial_events:
        raise _forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if options.limit < 0:
        raise InvalidObject(f"limit: Invalid value: {options.limit}: must be greater than or equal to 0")
    if options.version_match is VersionMatch.UNSET:
        return
    if options.continue_:
        raise _forbidden(_MATCH, f"{_MATCH} is forbidden for continue requests")
    if not options.resource_version:
        raise _forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided")
    if options.version_match is VersionMatch.EXACT and options.resource_version == "0":
        raise _forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"')


def check_watch(options: ListOptions) -> None:
    """Check the options of a watch. Raises: InvalidObject."""
    if options.send_initial_events and options.version_match is not VersionMatch.NOT_OLDER_THAN:
        raise _forbidden(_MATCH, f"sendInitialEvents requires setting {_MATCH} to {VersionMatch.NOT_OLDER_THAN}")
    if options.version_match is not VersionMatch.UNSET and not options.send_initial_events:
        raise _forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided")


def _forbidden(field: str, why: str) -> InvalidObject:
    return InvalidObject(f"{field}: Forbidden: {why}")


__all__ = ["check_list", "check_watch"]
