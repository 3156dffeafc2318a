"""Matchers of labels: their syntax, and which values match."""

from __future__ import annotations

import re
import sys

import pytest

from eventbus.errors import ConfigError
from eventbus.model.event import ObjectMeta, ObjectReference
from eventbus.model.matchers import Matchers, event_matchers, labels_of, near_misses, parse_matchers
from tests.builders import make_event


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


@pytest.mark.parametrize(
    ("texts", "selected"),
    [
        ((), True),
        ('type="Warning"', True),
        (['type="Warning"', 'namespace="shop"'], True),
        (['type="Warning"', 'namespace="bank"'], False),
        ('type="Warning",reason!~"Back.*"', False),
        ("label_example_com_team=web", True),
        ('component=""', False),
    ],
)
def test_an_event_is_selected_if_all_matchers_hold(texts: str | list[str], selected: bool) -> None:
    event = make_event(
        type="Warning",
        reason="BackOff",
        involved_object=ObjectReference("Pod", "shop", "web-1"),
        metadata=ObjectMeta(name="a", namespace="shop", labels={"example.com/team": "web"}),
    )
    assert event_matchers(texts).match(labels_of(event)) is selected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('typ="Warning"', "there is no label 'typ'; did you mean 'type'?"),
        ('team="web"', "a label of the event is label_team"),
        ('type="warning"', 'type="warning": an event\'s type is Normal or Warning'),
    ],
)
def test_a_matcher_that_no_event_can_match_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        event_matchers(text)


def test_without_google_re2_an_expression_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert event_matchers('type="Warning"').all
    with pytest.raises(ConfigError, match=re.escape("pip install 'eventbus[notify]'")):
        event_matchers('reason=~"Failed.*"')


@pytest.mark.parametrize(
    ("matcher", "miss"),
    [
        ('reason="backoff"', 'reason "BackOff" was seen 41 times; your matcher reason="backoff" matches none'),
        ('reason="BackOf"', 'reason "BackOff" was seen 41 times; your matcher reason="BackOf" matches none'),
        ('kind="pod"', 'kind "Pod" was seen 42 times; your matcher kind="pod" matches none'),
        ('reason=~"Back"', 'seen 41 times; your matcher reason=~"Back" matches none: it must match the whole value'),
        (
            'reason=~"backoff"',
            'reason "BackOff" was seen 41 times; your matcher reason=~"backoff" matches none: case m',
        ),
        ('reason=~"back|evict"', "matches none: it must match the whole value, and case matters"),
        ('reason="Evicte"', 'reason "Evicted" was seen 1 time; your'),
    ],
)
def test_a_matcher_that_nearly_matches_events_is_named(matcher: str, miss: str) -> None:
    events = [make_event(type="Warning", reason="BackOff", count=41), make_event(type="Warning", reason="Evicted")]
    (found,) = near_misses(parse_matchers(matcher), events)
    assert miss in found


@pytest.mark.parametrize(
    "matcher",
    ['reason="BackOff"', 'reason=~"Back.*"', 'reason!="backoff"', 'reason!~"x"', 'reason="OOMKilled"', 'name="a"'],
)
def test_a_matcher_that_matches_or_is_far_from_all_events_is_not_named(matcher: str) -> None:
    assert list(near_misses(parse_matchers(matcher), [make_event(type="Warning", reason="BackOff")])) == []
