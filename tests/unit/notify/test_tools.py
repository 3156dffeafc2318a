"""The offline tools: cases, replays, traces and near misses."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from eventbus.broker.notifications import FailingIntegration
from eventbus.errors import ConfigError
from eventbus.model.event import ObjectMeta
from eventbus.model.matchers import labels_of
from eventbus.model.objects.silence import (
    AcknowledgedObject,
    Acknowledgement,
    AcknowledgementSpec,
    Silence,
    SilenceMatcher,
    SilenceSpec,
)
from eventbus.notify.alerts import ms_of
from eventbus.notify.engine import Engine, Occurrence
from eventbus.notify.explain import NotifierView, trace
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

NOTHING = NotifierView([], {}, {})

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
    lines = list(trace(RULES, event, NOTHING, 0))
    assert lines[1:] == [
        "route {}: matches",
        '  routes[0] {kind="Node"}: does not match: kind="Node" is not "Pod"',
        '  routes[1] {reason="OOMKilled"}: takes it, for receiver duty, if min_count 3 hold',
        '  routes[2] {reason="Backoff"}: does not match: reason="Backoff" is not "OOMKilled"',
        "alert: none is open",
    ]
    assert "no route takes it" in list(trace(RULES, make_event(), NOTHING, 0))


def test_a_trace_names_the_expected_events_that_an_event_is() -> None:
    expect = 'expect: [{name: job, matchers: [\'kind="Pod",name="web-0",reason="Done"\'], every: 1h}]\n'
    rules = parse_rules(f"route: {{receiver: a}}\nreceivers: [{{name: a}}]\n{expect}").rules
    about = make_reference(name="web-0")
    traced = [trace(rules, make_event(involved_object=about, reason=each), NOTHING, 0) for each in ("Done", "Failed")]
    assert [[line for line in lines if "expected" in line] for lines in traced] == [
        ["expected event job: this is one"],
        [],
    ]


TRACED = parse_rules("""
route:
  receiver: chat
  group_wait: 0s
  routes:
  - {matchers: [kind="Pod"], receiver: chat, group_by: [name]}
inhibit_rules:
- {source_matchers: [kind="Node"], target_matchers: [kind="Pod"]}
receivers:
- {name: chat, webhook_configs: [{url: "https://chat.example"}, {url: "https://other.example"}]}
""").rules


def test_a_trace_has_the_last_answer_of_each_integration_and_a_waiting_message_with_its_error() -> None:
    event, now_ms = make_event(type="Warning", reason="BackOff"), ms_of(NOW)
    engine = Engine(TRACED, links=lambda _labels: {})
    engine.take([Occurrence(event, True)], now_ms)
    first, second = engine.advance(now_ms)
    engine.settle(first.group, first.integration, first.notification.key, None, now_ms + 2000, "answered 400")
    stored = NotifierView(
        list(engine.groups.values()),
        engine.alerts,
        {("chat", second.integration): FailingIntegration(second.integration, now_ms + 1000, "answered 503")},
    )
    lines = "\n".join(trace(TRACED, event, stored, now_ms))
    assert (
        "  webhook[0]: number 1 (first) of 2024-01-01 12:00:00Z was given up at 2024-01-01 12:00:02Z: answered 400"
        in lines
    )
    assert (
        "  webhook[1]: number 1 (first) waits since 2024-01-01 12:00:00Z; tried again since 2024-01-01 12:00:01Z"
        in lines
    )
    assert "answered 503" in lines
    engine.settle(second.group, second.integration, second.notification.key, {}, now_ms + 3000)
    lines = "\n".join(trace(TRACED, event, stored, now_ms))
    assert (
        "webhook[1]: number 1 (first) of 2024-01-01 12:00:00Z was accepted at 2024-01-01 12:00:03Z, as firing" in lines
    )
    assert "  next check at 2024-01-01 12:05:00Z" in lines


def test_a_trace_names_inhibition_mutes_and_a_route_that_is_gone() -> None:
    event, now_ms = make_event(type="Warning", reason="BackOff"), ms_of(NOW)
    node = make_event(involved_object=make_reference(kind="Node", name="n1"), type="Warning", reason="NodeNotReady")
    engine = Engine(TRACED, links=lambda _labels: {})
    engine.take([Occurrence(node, True), Occurrence(event, True)], now_ms)
    engine.advance(now_ms)
    groups = [group for group in engine.groups.values() if group.labels]
    stored = NotifierView(groups, engine.alerts, {})
    lines = "\n".join(trace(TRACED, event, stored, now_ms))
    assert "  this alert is inhibited by alert " in lines
    assert ": Node default n1 NodeNotReady" in lines
    assert "  webhook[0]: nothing was sent: silenced, inhibited, muted, or resolved before" in lines
    muted = parse_rules("""
route: {receiver: chat, routes: [{matchers: [kind="Pod"], receiver: chat, mute_time_intervals: [noon]}]}
time_intervals: [{name: noon, time_intervals: [{times: [{start_time: "12:00", end_time: "13:00"}]}]}]
receivers: [{name: chat}]
""").rules
    by_file = "  muted until 2024-01-01 13:00:00Z by the time intervals of this file"
    assert by_file in list(trace(muted, event, stored, now_ms))
    assert "  its route is not in this file: only the end of the group is sent" in list(trace(RULES, event, stored, 0))


def test_a_trace_says_that_a_group_is_muted_not_due_yet_or_silenced() -> None:
    event, now_ms = make_event(type="Warning", reason="BackOff"), ms_of(NOW)
    muted = parse_rules("""
route: {receiver: chat, routes: [{matchers: [kind="Pod"], mute_time_intervals: [noon]}]}
time_intervals: [{name: noon, time_intervals: [{times: [{start_time: "12:00", end_time: "13:00"}]}]}]
receivers: [{name: chat, webhook_configs: [{url: "https://chat.example"}]}]
""").rules
    engine = Engine(muted, links=lambda _labels: {})
    engine.take([Occurrence(event, True)], now_ms)
    (group,) = engine.groups.values()
    stored = NotifierView([group], engine.alerts, {})
    assert "  not looked at yet; due 2024-01-01 12:00:30Z" in list(trace(RULES, event, stored, now_ms))
    silenced = list(trace(RULES, event, stored, now_ms + 60_000))
    assert any(line.startswith("  nothing was sent: silenced or inhibited, checked at each") for line in silenced)
    engine.advance(now_ms + 30_000)
    lines = list(trace(RULES, event, stored, now_ms + 60_000))
    assert "  muted until 2024-01-01 13:00:00Z by the time intervals of the notifier's rules" in lines
    assert not any("not looked at" in line or "nothing was sent" in line for line in lines)


def test_a_trace_names_silences_that_match_and_the_acknowledgement_of_a_group() -> None:
    event, now_ms = make_event(type="Warning", reason="BackOff"), ms_of(NOW)
    labels = labels_of(event)
    engine = Engine(TRACED, links=lambda _labels: {})
    engine.take([Occurrence(event, True)], now_ms)
    about = AcknowledgedObject(labels["kind"], labels["namespace"], labels["name"])
    acknowledgement = Acknowledgement(
        metadata=ObjectMeta(name="a", creation_timestamp=NOW), spec=AcknowledgementSpec(about, False, "sam", "on it")
    )
    engine.set_acknowledgement("a", acknowledgement)
    engine.advance(now_ms)

    def silence(name: str, value: str, hours: float) -> Silence:
        spec = SilenceSpec((SilenceMatcher("reason", value),), NOW, NOW + timedelta(hours=hours), "ann", "upgrade")
        return Silence(metadata=ObjectMeta(name=name), spec=spec)

    silences = [silence("s", "BackOff", 1), silence("other", "Failed", 1), silence("ended", "BackOff", 0)]
    stored = NotifierView([*engine.groups.values()], engine.alerts, {}, silences, [acknowledgement])
    lines = list(trace(TRACED, event, stored, now_ms))
    assert [line for line in lines if "silenced by" in line] == [
        "silenced by s until 2024-01-01 13:00:00Z, created by ann: upgrade"
    ]
    assert "  acknowledged by sam, and not repeated: on it" in lines
