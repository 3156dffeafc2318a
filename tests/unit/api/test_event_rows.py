from __future__ import annotations

from datetime import timedelta

import msgspec
from hypothesis import example, given

from eventbus.api.kube.tables import EventRow, aged, cells
from eventbus.model.event import Event, EventSeries
from eventbus.model.kinds import EVENT
from tests.builders import NOW, events, make_event

LATER = NOW + timedelta(minutes=3)


@given(events())
@example(make_event(message='a \\u0000 and "\\u0000" that are no ages'))
@example(make_event(message="\0"))  # as only a writer of the stream that is not ours leaves it
@example(make_event(series=EventSeries(count=3)))
@example(make_event(first_timestamp=None, last_timestamp=None, event_time=NOW))
def test_a_row_in_pieces_says_later_what_is_said_of_the_event_then(event: Event) -> None:
    kept = EventRow.of(event, b'{"a":1}', NOW)
    (row,) = aged([kept], LATER)
    assert msgspec.json.decode(row) == {"cells": cells(EVENT, event, LATER), "object": {"a": 1}}
