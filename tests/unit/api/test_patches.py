"""JSON patches and strategic merge patches, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from eventbus.api.json_patch import PatchFailed, apply_patch, read_patch
from eventbus.api.strategic_merge import BadDirective, strategic_merge

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
    with pytest.raises(PatchFailed):
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
def test_what_is_no_json_patch_is_refused(patch: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_patch(patch)


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
    with pytest.raises(BadDirective):
        strategic_merge({}, {"metadata": {"ownerReferences": [{"name": "a"}]}})
    with pytest.raises(BadDirective):
        strategic_merge({}, {"$patch": "upset"})
