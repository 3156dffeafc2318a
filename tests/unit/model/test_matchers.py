"""Matchers of labels: their syntax, and which values match."""

from __future__ import annotations

import pytest

from eventbus.errors import ConfigError
from eventbus.model.matchers import Matchers, parse_matchers


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a=b", ['a="b"']),
        ("a = b c ", ['a="b c"']),
        ('{a="b", c!~"d|e",}', ['a="b"', 'c!~"d|e"']),
        (r'a="say \"hi\"\n\\"', [r'a="say \"hi\"\n\\"']),
        ('a=""', ['a=""']),
        ('a="x,y}",b=c', ['a="x,y}"', 'b="c"']),
    ],
)
def test_matchers_are_parsed_as_alertmanager_does(text: str, parsed: list[str]) -> None:
    assert [str(matcher) for matcher in parse_matchers(text)] == parsed


@pytest.mark.parametrize(
    "text", ["", "a", "a==b", 'a="b', '{a="b"', 'a="b" c="d"', 'a=b"c"', r'a="\d"', "1a=b", "a=~("]
)
def test_a_broken_matcher_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Matchers(parse_matchers(text))


def test_matchers_are_anchored_and_a_missing_label_is_empty() -> None:
    def matches(text: str, **labels: str) -> bool:
        return Matchers(parse_matchers(text)).match(labels)

    assert not matches('a=~"b"', a="abc")
    assert matches('a=~".*b.*"', a="a\nb")
    assert matches('a!~"b",c!="d"')
    assert matches('a=~"b?"')
    assert not matches('a=~"b|c"', a="bc")


def test_an_expression_that_backtracks_elsewhere_takes_linear_time() -> None:
    assert not Matchers(parse_matchers('a=~"(a*)*b"')).match({"a": "a" * 100_000})
