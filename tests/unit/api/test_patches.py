"""JSON patches and strategic merge patches, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from eventbus.api.kube.patches import apply_patch, read_patch, strategic_merge
from eventbus.api.status import ApiError

OWNERS = [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}]


@pytest.mark.parametrize(
    ("target", "steps", "wanted"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 1}}], {"b": 1}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a/b": 1, "c~d": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}], {}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], {"a": 1}),
    ],
)
def test_a_json_patch_is_applied(target: Any, steps: Any, wanted: Any) -> None:
    before = repr(target)
    assert apply_patch(target, read_patch(steps)) == wanted
    assert repr(target) == before


@pytest.mark.parametrize(
    "step",
    [
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/l/7", "value": 1},
        {"op": "add", "path": "/l/01", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "test", "path": "/a", "value": True},
        {"op": "move", "from": "/l", "path": "/l/0"},
        {"op": "remove", "path": ""},
    ],
)
def test_a_json_patch_that_does_not_fit_fails(step: Any) -> None:
    with pytest.raises(ApiError, match="rejected our request"):
        apply_patch({"a": 1, "l": [1]}, read_patch([step]))


@pytest.mark.parametrize(
    "patch",
    [
        {},
        "x",
        [1],
        [{"op": "add"}],
        [{"op": "fly", "path": "/a"}],
        [{"op": "add", "path": "/a"}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "move", "path": "/a"}],
    ],
)
def test_an_invalid_json_patch_is_refused(patch: Any) -> None:
    with pytest.raises(ApiError):
        apply_patch({"b": 1}, read_patch(patch))


@pytest.mark.parametrize(
    ("target", "patch", "wanted"),
    [
        ({"a": 1, "b": {"c": 1}}, {"a": None, "b": {"d": 2}}, {"b": {"c": 1, "d": 2}}),
        ({"b": {"c": 1}}, {"b": {"$patch": "replace", "d": 2}}, {"b": {"d": 2}}),
        ({"b": {"c": 1}}, {"b": {"$patch": "delete"}}, {"b": {}}),
        ({"a": 1, "b": 2}, {"$retainKeys": ["a"]}, {"a": 1}),
        ({"l": [1, 2]}, {"l": [3]}, {"l": [3]}),
        ({"metadata": {"finalizers": ["x"]}}, {"metadata": {"finalizers": ["y", "x"]}}, ["x", "y"]),
        ({"metadata": {"finalizers": ["x", "y"]}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}, ["y"]),
    ],
)
def test_a_strategic_merge_is_applied(target: Any, patch: Any, wanted: Any) -> None:
    found = strategic_merge(target, patch)
    assert (found["metadata"]["finalizers"] if isinstance(wanted, list) else found) == wanted


@pytest.mark.parametrize(
    ("patch", "names"),
    [
        ([{"uid": "2", "name": "c"}], ["a", "c"]),
        ([{"uid": "3", "name": "c"}], ["c", "a", "b"]),
        ([{"uid": "1", "$patch": "delete"}], ["b"]),
        ([{"$patch": "replace"}, {"uid": "9", "name": "z"}], ["z"]),
    ],
)
def test_lists_that_are_maps_are_merged_by_their_key(patch: Any, names: list[str]) -> None:
    found = strategic_merge({"metadata": {"ownerReferences": OWNERS}}, {"metadata": {"ownerReferences": patch}})
    assert [owner["name"] for owner in found["metadata"]["ownerReferences"]] == names


def test_an_item_without_its_key_and_an_unknown_directive_are_refused() -> None:
    with pytest.raises(ApiError, match="cannot be applied"):
        strategic_merge({}, {"metadata": {"ownerReferences": [{"name": "a"}]}})
    with pytest.raises(ApiError, match="cannot be applied"):
        strategic_merge({}, {"$patch": "upset"})


def test_copies_of_an_object_into_itself_are_refused_before_they_fill_the_memory() -> None:
    """Each step doubles the object: these 24, a patch of 1 KB, would make 16 million of it."""
    steps = [{"op": "copy", "from": "", "path": f"/{number}"} for number in range(24)]
    with pytest.raises(ApiError, match="The copies"):
        apply_patch({"a": "b"}, read_patch(steps))


def test_copies_that_an_object_may_have_are_made() -> None:
    steps = [{"op": "copy", "from": "/a", "path": f"/{number}"} for number in range(250)]
    assert len(apply_patch({"a": "x" * 1000}, read_patch(steps))) == 251


def test_a_json_patch_has_at_most_ten_thousand_steps() -> None:
    steps = [{"op": "test", "path": "/a", "value": 1}] * 10_000
    assert apply_patch({"a": 1}, read_patch(steps)) == {"a": 1}
    with pytest.raises(ApiError, match="10000, got 10001"):
        read_patch([*steps, steps[0]])


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"ownerReferences": [{"uid": "1", f"field{number}": 0} for number in range(700)]}},
        {"spec": {"containers": [{"name": "a", "env": [{"name": str(number)}]} for number in range(700)]}},
    ],
    ids=["an item that grows", "a list in an item that grows"],
)
def test_a_merge_that_names_one_key_too_often_is_refused(patch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time it handles what the times before have made: the work grows with the square."""
    monkeypatch.setattr("eventbus.api.kube.patches.MAX_HANDLED", 100_000)
    with pytest.raises(ApiError, match="name one key too often"):
        strategic_merge({}, patch)


def test_a_merge_of_large_lists_handles_each_item_a_few_times() -> None:
    finalizers = [f"a/{number}" for number in range(40_000)]
    merged = strategic_merge(
        {"metadata": {"finalizers": finalizers}},
        {"metadata": {"finalizers": [*finalizers, "b"], "$deleteFromPrimitiveList/finalizers": finalizers[1:]}},
    )
    assert merged["metadata"]["finalizers"] == ["a/0", *finalizers[1:], "b"]
