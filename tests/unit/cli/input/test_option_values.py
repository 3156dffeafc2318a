"""Options as they are typed and shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventbus.cli.input.option_values import number_text, parse_json, parse_pairs, shown, shown_value, with_changes
from eventbus.errors import ConfigError
from eventbus.settings import Options, SpamKey, float32


def change(*pairs: str) -> Options:
    return with_changes({}, parse_pairs(pairs))


@pytest.mark.parametrize(
    ("pair", "field", "value"),
    [
        ("burst=50", "burst", 50),
        ("qps=0.1", "qps", float32(0.1)),
        ("qps=1/300", "qps", float32(1 / 300)),
        ("maxEvents=5", "max_events", 5),
        ("aggregate_message=folded: ", "aggregate_message", "folded: "),
        ("aggregate_message=a=b", "aggregate_message", "a=b"),
        ("spam_key=object", "spam_key", SpamKey.OBJECT),
        ("exempt_namespaces=kube-system, audit", "exempt_namespaces", ("kube-system", "audit")),
        ("exempt_types=", "exempt_types", ()),
        ("report_suppressed=False", "report_suppressed", False),
    ],
)
def test_a_pair_changes_its_option_and_no_other(pair: str, field: str, value: Any) -> None:
    assert change(pair) == msgspec.structs.replace(Options(), **{field: value})


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("burst", "KEY=VALUE"),
        ("nonsense=1", "no option 'nonsense'"),
        ("burst=", "burst: '' is not a number"),
        ("burst=1.5", "burst: '1.5' is not a number"),
        ("burst=-1", "burst must be at least 0"),
        ("qps=nan", "qps must be"),
        ("qps=inf", "qps must be"),
        ("qps=1/0", "qps: '1/0' is not a number, like 1/300"),
        ("report_suppressed=maybe", "true or false"),
        ("spam_key=reason", "spam_key"),
        ("aggregate_message=\udcff", "aggregate_message: is not valid UTF-8"),
    ],
)
def test_what_cannot_be_is_refused_and_named(pair: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        change(pair)


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="burst is given twice"):
        change("burst=1", "burst=2")


def test_what_is_shown_can_be_typed_again() -> None:
    options = change("burst=7", "qps=0.1", "exempt_reasons=A,B", "spam_key=object", "report_suppressed=false")
    pairs = [f"{name}={shown_value(value)}" for name, value in shown(options).items()]
    assert change(*pairs) == options


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (1 / 300, "1/300"),
        (0.1, "0.1"),
        (0.5, "0.5"),
        (100.0, "100"),
        (0.0, "0"),
        (2.3, "2.3"),
        (1 / 7, "1/7"),
        (1e9, "1e+09"),
    ],
)
def test_a_rate_is_shown_as_a_person_writes_it(typed: float, text: str) -> None:
    assert number_text(float32(typed)) == text


@pytest.mark.parametrize("typed", [1 / 300, 0.1, 1 / 3, 2 / 3, 0.00333, 1e-7, 16_777_217.0, 3.4e38, 123.456, 0.7])
def test_a_rate_that_is_shown_means_the_same_when_it_is_typed_again(typed: float) -> None:
    assert change(f"qps={number_text(float32(typed))}").qps == float32(typed)


def test_json_is_taken_in_both_spellings_and_completed_with_the_defaults() -> None:
    assert parse_json('{"burst": 3, "maxIntervalS": 5, "exempt_types": ["Warning"]}') == msgspec.structs.replace(
        Options(), burst=3, max_interval_s=5, exempt_types=("Warning",)
    )


@pytest.mark.parametrize("text", ["", "[]", "{", '{"nonsense": 1}', '{"burst": "many"}', '{"burst": -1}', "3"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_json(text)
