"""event_search.py: a page of packed events is searched at once, and no event with the part is passed over."""

from __future__ import annotations

import random

from eventbus.store.event_search import places_of


def test_the_values_with_the_part_are_found_in_any_case() -> None:
    values = [b"Ab", None, b"xAB", b"", b"a", b"b", b"abab"]
    # The fifth has its beginning, and the next one its end: the test of the whole value comes after.
    assert list(places_of(b"ab", values)) == [0, 2, 4, 6]
    assert list(places_of(b"nowhere", values)) == []
    assert list(places_of(b"ab", [])) == []


def test_no_value_with_the_part_is_passed_over() -> None:
    choice = random.Random(0)
    for _ in range(2_000):
        values = [bytes(choice.choices(b"aA.", k=choice.randrange(5))) for _ in range(choice.randrange(8))]
        part = bytes(choice.choices(b"a.", k=choice.randrange(1, 4)))
        places = list(places_of(part, values))
        assert places == sorted(set(places))
        assert {place for place, value in enumerate(values) if part in value.lower()} <= set(places)
