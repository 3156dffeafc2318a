"""What a program under test has recorded, found by its object."""

from __future__ import annotations

import pytest

from eventbus.errors import InvalidEvent
from eventbus.testing.recorder import RecordedEvents


def test_events_are_found_by_their_object_of_any_namespace_or_of_one() -> None:
    recorded = RecordedEvents()
    for about in ("Order/1", "shop/Order/1", "shop/Order/2"):
        recorded.recorder().event(about, "Normal", "Seen", about)
    assert [event.message for event in recorded.about("Order/1")] == ["Order/1", "shop/Order/1"]
    assert [event.message for event in recorded.about("shop/Order/1")] == ["shop/Order/1"]


def test_events_of_both_recorders_are_found() -> None:
    recorded = RecordedEvents()
    recorded.recorder().event("Order/1", "Normal", "Paid", "by card")
    recorded.events_recorder("example.com/shop").eventf("Order/1", None, "Normal", "Paid", "Paying", "by %s", "card")
    assert recorded.lines == ["Normal Paid Order/1: by card"] * 2
    assert [event.action for event in recorded] == ["", "Paying"]


def test_a_text_that_names_no_object_is_refused() -> None:
    with pytest.raises(InvalidEvent):
        RecordedEvents().about("Order")
