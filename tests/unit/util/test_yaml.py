"""YAML as PyYAML, a reader of YAML 1.1, understands it: what goes in comes out."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eventbus.util.yaml import dump_yaml

#: Everything but surrogates, which are no characters.
any_text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | any_text
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(any_text, inner), max_leaves=20)


@given(values)
def test_what_is_dumped_is_read_back(value: Any) -> None:
    assert yaml.safe_load(dump_yaml(value)) == value


KUBECTL = """\
action: Binding
apiVersion: events.k8s.io/v1
deprecatedFirstTimestamp: null
deprecatedLastTimestamp: null
deprecatedSource: {}
eventTime: "2026-01-02T03:04:05.123456Z"
kind: Event
metadata:
  creationTimestamp: "2026-01-02T03:04:05Z"
  name: web-0.4
  namespace: default
  resourceVersion: "7"
  uid: e1
note: assigned to node-1
reason: FailedScheduling
regarding:
  kind: Pod
  name: web-0
  namespace: default
  uid: u1
reportingController: example.com/ctl
reportingInstance: ctl-1
series:
  count: 4
  lastObservedTime: "2026-01-02T03:09:05.000000Z"
type: Warning
"""

WORDS = ["yes", "No", "ON", "off", "y", "N", "true", "False", "null", "NULL", "~", "", "nan", ".inf", "=", "<<"]
NUMBERS = ["1", "0x1f", "0o17", "1e5", "1_000", "12:30:45", "-1", "+1", ".5", "2024-01-01", "2024-01-01T00:00:00Z"]
MARKS = [
    "- a",
    "? a",
    "a: b",
    "a:",
    "a #b",
    "#a",
    "&a",
    "*a",
    "!a",
    "%a",
    "@a",
    "`a",
    "{a",
    "[a",
    "|",
    ">",
    "---",
    "...",
]
SPACES = [
    " a",
    "a ",
    "a\n",
    "a\nb",
    "a\tb",
    "\ta",
    "a\rb",
    "a\u2028b",
    "a\x85b",
    "\ufeffa",
    "\U0001f600",
    "\x1b[31m",
    "\0",
]


@pytest.mark.parametrize("text", WORDS + NUMBERS + MARKS + SPACES)
def test_a_string_stays_a_string(text: str) -> None:
    assert yaml.safe_load(dump_yaml({"key": text})) == {"key": text}
    assert yaml.safe_load(dump_yaml({text: "value"})) == {text: "value"}


@pytest.mark.parametrize("text", ["\x1b[31m", "\u202ea", "a\x9bb", "a\nb", "a\u2028b"])
def test_nothing_that_a_terminal_obeys_gets_out(text: str) -> None:
    dumped = dump_yaml([text])
    assert dumped.count("\n") == 1
    assert dumped.removesuffix("\n").isprintable()


def test_a_value_that_comes_twice_is_written_twice() -> None:
    shared = {"a": "b"}
    assert dump_yaml([shared, shared]) == "- a: b\n- a: b\n"


def test_the_shape_is_that_of_kubectl() -> None:
    value = {"kind": "List", "items": [{"b": 1, "a": {"c": "x y"}}, "2"], "metadata": {"resourceVersion": ""}, "e": {}}
    assert dump_yaml(value) == (
        'e: {}\nitems:\n- a:\n    c: x y\n  b: 1\n- "2"\nkind: List\nmetadata:\n  resourceVersion: ""\n'
    )


def test_an_event_looks_as_kubectl_prints_it() -> None:
    """Recorded from kubectl 1.33."""

    assert dump_yaml(yaml.safe_load(KUBECTL)) == KUBECTL
