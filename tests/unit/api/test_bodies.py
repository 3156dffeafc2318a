"""What says what a body is."""

from __future__ import annotations

import pytest

from eventbus.api.kube.bodies import media_type_of
from eventbus.api.status import ApiError


@pytest.mark.parametrize("head", ["application/json", "application/json;charset=utf-8", "application/json;"])
def test_blanks_in_a_content_type_are_read_but_once(head: str) -> None:
    """Read again from each of them, a million would take hours, in which the loop answers nobody."""
    blanks = " " * 1_000_000
    assert media_type_of(f"{head}{blanks}") == "application/json"
    with pytest.raises(ApiError, match="unknown format"):
        media_type_of(f"{head}{blanks}x")
