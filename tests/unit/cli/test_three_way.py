"""What `eventbus apply` changes of an object."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from eventbus.cli.commands.apply import LAST_APPLIED, apply, three_way, with_note


@pytest.mark.parametrize(
    ("last", "wanted", "held", "patch"),
    [
        ({}, {"a": 1}, {"a": 1, "b": 2}, {}),
        ({}, {"a": 1}, {"a": 2}, {"a": 1}),
        ({"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 2}, {"b": None}),
        ({"b": 2}, {"a": 1}, {"a": 1}, {}),
        ({"m": {"x": 1}}, {"m": {"y": 1}}, {"m": {"x": 1, "z": 3}}, {"m": {"x": None, "y": 1}}),
        ({}, {"m": {"x": 1}}, {}, {"m": {"x": 1}}),
        ({}, {"l": [{"n": "a"}]}, {"l": [{"n": "a", "default": True}]}, {}),
        ({}, {"l": [{"n": "a"}]}, {"l": [{"n": "b"}]}, {"l": [{"n": "a"}]}),
        ({}, {"l": [1, 2]}, {"l": [1]}, {"l": [1, 2]}),
        ({"l": [{"n": "a", "x": 1}]}, {"l": [{"n": "a"}]}, {"l": [{"n": "a", "x": 1}]}, {"l": [{"n": "a"}]}),
        ({"l": [{"n": "a"}]}, {"l": [{"n": "a"}]}, {"l": [{"n": "a", "default": 1}]}, {}),
        (
            {"l": [{"m": [{"x": 1, "y": 2}]}]},
            {"l": [{"m": [{"x": 1}]}]},
            {"l": [{"m": [{"x": 1, "y": 2}]}]},
            {"l": [{"m": [{"x": 1}]}]},
        ),
    ],
)
def test_only_what_differs_is_changed_and_only_what_was_applied_is_taken_away(
    last: dict[str, Any], wanted: dict[str, Any], held: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert three_way(last, wanted, held) == patch


def test_the_note_does_not_hold_the_note_before_it() -> None:
    wanted = {"kind": "Node", "metadata": {"name": "n1"}}
    once = with_note(wanted)
    assert with_note(once) == once
    assert LAST_APPLIED not in once["metadata"]["annotations"][LAST_APPLIED]


def test_the_note_of_a_secret_has_its_names_and_not_its_values() -> None:
    noted = with_note({"kind": "Secret", "metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}})
    note = noted["metadata"]["annotations"][LAST_APPLIED]
    assert ("password" in note, "aHVudGVyMg" in note, "data" in noted) == (True, False, True)


def test_a_file_that_is_no_manifest_is_told_what_it_lacks() -> None:
    found = CliRunner().invoke(apply, ["-f", "-"], input="web: sleep 100\n")

    assert str(found.exception).startswith("an object has to say its apiVersion and its kind: there are Node (v1)")
