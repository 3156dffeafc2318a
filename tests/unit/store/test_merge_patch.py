"""JSON merge patches, applied and made."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eventbus.model.encoding.object_json import difference, merge
from tests.builders import texts

LEAVES = st.none() | st.booleans() | st.integers() | texts(3) | st.lists(st.integers(), max_size=2)
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | LEAVES, max_size=3),
    max_leaves=8,
)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


@given(OBJECTS, OBJECTS)
def test_the_difference_makes_the_one_of_the_other(old: Any, new: Any) -> None:
    """A null counts as a missing key: a patch cannot say it otherwise."""
    assert without_nulls(merge(old, difference(old, new))) == without_nulls(new)


@given(OBJECTS)
def test_there_is_nothing_to_patch_between_equals(value: Any) -> None:
    assert difference(value, value) == {}


def test_a_patch_says_only_what_differs() -> None:
    old = {"metadata": {"labels": {"a": "b", "c": "d"}, "name": "n"}, "count": 1, "action": "x"}
    new = {"metadata": {"labels": {"a": "z"}, "name": "n"}, "count": 2, "series": {"count": 3}}
    assert difference(old, new) == {
        "metadata": {"labels": {"a": "z", "c": None}},
        "count": 2,
        "action": None,
        "series": {"count": 3},
    }
