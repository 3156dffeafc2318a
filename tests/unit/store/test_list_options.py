"""Options of lists and watches that exclude each other are refused as by the API server."""

from __future__ import annotations

from typing import Any

import pytest

from eventbus.errors import InvalidObject
from eventbus.model.list_watch import ListOptions, VersionMatch
from eventbus.store.list_options import check_list, check_watch

EXACT, NOT_OLDER = VersionMatch.EXACT, VersionMatch.NOT_OLDER_THAN


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"limit": -1}, "^limit: Invalid value: -1: must be greater than or equal to 0$"),
        ({"version_match": EXACT}, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ({"version_match": EXACT, "resource_version": "0"}, "forbidden for resourceVersion"),
        ({"version_match": NOT_OLDER, "resource_version": "1", "continue_": "x"}, "when continue is provided"),
        ({"send_initial_events": False}, "^sendInitialEvents: Forbidden: .* for list$"),
    ],
)
def test_options_of_a_list(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidObject, match=problem):
        check_list(ListOptions(**options))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"send_initial_events": True}, "requires setting resourceVersionMatch to NotOlderThan$"),
        ({"send_initial_events": False, "version_match": EXACT}, "requires setting resourceVersionMatch"),
        ({"version_match": NOT_OLDER, "resource_version": "1"}, "unless sendInitialEvents is provided$"),
    ],
)
def test_options_of_a_watch(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidObject, match=problem):
        check_watch(ListOptions(**options))
