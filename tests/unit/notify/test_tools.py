"""The offline tools: cases, replays, traces and near misses."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from eventbus.errors import ConfigError
from eventbus.notify.explain import trace
from eventbus.notify.rules import parse_rules
from eventbus.notify.simulation import load_cases, run_case, simulate
from tests.builders import NOW, make_event, make_reference

RULES = parse_rules("""
route:
  receiver: chat
  routes:
  - {matchers: [kind="Node"], receiver: duty, group_wait: 0s}
  - {matchers: [reason="OOMKilled"], receiver: duty, min_count: 3}
  - {matchers: [reason="Backoff"], receiver: duty}
receivers:
- {name: chat, webhook_configs: [{url: "https://chat.example"}]}
- name: duty
""").rules

CASES = """
- name: a lost node
  events: [{kind: Node, name: n1, reason: NodeNotReady}]
  receivers: [duty]
- name: one kill
  events: [{reason: OOMKilled}]
  receivers: []
- name: many kills
  events: [{reason: OOMKilled, count: 3}]
  receivers: [duty]
- name: a wish
  events: [{reason: Pulled, type: Normal}]
  receivers: [chat]
"""


def test_a_case_passes_if_its_receivers_and_no_others_are_notified(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(CASES)
    results = [run_case(RULES, case) for case in load_cases(path)]
    assert [(result.name, result.passed) for result in results] == [
        ("a lost node", True),
        ("one kill", True),
        ("many kills", True),
        ("a wish", False),
    ]
    assert (results[3].expected, results[3].receivers) == (("chat",), ())


def test_a_mistake_in_a_case_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(CASES.replace("receivers: [duty]", "receiver: [duty]", 1))
    with pytest.raises(ConfigError, match=r"line 4: \[0\]\.receiver: there is no such field"):
        load_cases(path)


def test_stored_events_are_replayed_at_their_times() -> None:
    events = [
        make_event(
            involved_object=make_reference(name=f"web-{n}"), type="Warning", reason="BackOff", first_timestamp=at
        )
        for n, at in enumerate([NOW, NOW + timedelta(minutes=1)])
    ]
    found = list(simulate(RULES, events, links=lambda _labels: {}, until=NOW + timedelta(minutes=30)))
    assert [(each.at - NOW, len(each.send.notification.alerts)) for each in found] == [
        (timedelta(seconds=30), 1),
        (timedelta(minutes=5, seconds=30), 2),
    ]


def test_a_trace_says_why_each_route_takes_the_event_or_not() -> None:
    event = make_event(type="Warning", reason="OOMKilled")
    lines = list(trace(RULES, event, {}, []))
    assert lines[1:] == [
        "route {}: matches",
        '  routes[0] {kind="Node"}: does not match: kind="Node" is not "Pod"',
        '  routes[1] {reason="OOMKilled"}: takes it, for receiver duty, if min_count 3 hold',
        '  routes[2] {reason="Backoff"}: does not match: reason="Backoff" is not "OOMKilled"',
        "alert: none is open",
    ]
    assert "no route takes it" in list(trace(RULES, make_event(), {}, []))
