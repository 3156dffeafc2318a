"""The options of lists and watches out of a query: refused in the API server's words, or what the store is asked."""

from __future__ import annotations

import pytest

from eventbus.api.kube.options import list_options
from eventbus.api.status import ApiError
from eventbus.model.list_watch import VersionMatch

FORBIDDEN = ("FieldValueForbidden", "Forbidden")
UNSUPPORTED = ("FieldValueNotSupported", "Unsupported value")
UNLESS_VERSION = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
UNLESS_SENT = (
    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
)
NEEDS_MATCH = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
CONTINUED = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"
NO_LIST = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"


def read(query: str, *, watch: bool) -> list[str]:
    """What is refused, as `field: message`."""
    pairs = dict(part.partition("=")[::2] for part in query.split("&"))
    try:
        list_options(pairs, "default", watch=watch)
    except ApiError as found:
        refusal = found
    else:
        return []
    details = refusal.details or {}
    assert (refusal.code, refusal.reason, details["kind"]) == (422, "Invalid", "ListOptions")
    causes: list[dict[str, str]] = details["causes"]
    for cause in causes:
        assert (cause["reason"], cause["message"].partition(":")[0]) in (FORBIDDEN, UNSUPPORTED)
    said = [f"{cause['field']}: {cause['message']}" for cause in causes]
    shown = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    assert refusal.message == f'ListOptions.meta.k8s.io "" is invalid: {shown}'
    return said


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", []),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", []),
        ("sendInitialEvents=0&resourceVersionMatch=NotOlderThan&resourceVersion=0", []),
        ("sendInitialEvents=false", [NEEDS_MATCH]),
        ("sendInitialEvents=&resourceVersionMatch=", [NEEDS_MATCH]),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=0", [UNLESS_SENT]),
        ("resourceVersionMatch=Exact&resourceVersion=5", [UNLESS_SENT]),
        (
            "sendInitialEvents=true&resourceVersionMatch=Exact",
            [NEEDS_MATCH, 'resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"'],
        ),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", [CONTINUED]),
        ("continue=x", []),
    ],
)
def test_options_of_a_watch_that_exclude_each_other_are_all_told(query: str, said: list[str]) -> None:
    assert read(query, watch=True) == said


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sendInitialEvents=true", [NO_LIST]),
        ("sendInitialEvents=false", [NO_LIST]),
        ("resourceVersionMatch=Exact&continue=x&sendInitialEvents=false", [UNLESS_VERSION, CONTINUED, NO_LIST]),
        (
            "resourceVersionMatch=Newest&resourceVersion=x",  # before the version is read
            ['resourceVersionMatch: Unsupported value: "Newest": supported values: "Exact", "NotOlderThan", ""'],
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            ['resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'],
        ),
    ],
)
def test_options_of_a_list_that_exclude_each_other_are_all_told(query: str, said: list[str]) -> None:
    assert read(query, watch=False) == said


def test_initial_events_have_three_values() -> None:
    match = {"resourceVersionMatch": "NotOlderThan"}
    for text, value in (("true", True), ("", True), ("yes", True), ("False", False), ("0", False)):
        options = list_options({"sendInitialEvents": text, **match}, "", watch=True)
        assert (options.send_initial_events, options.version_match) == (value, VersionMatch.NOT_OLDER_THAN)
    assert list_options({}, "", watch=True).send_initial_events is None
