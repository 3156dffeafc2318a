"""Silences and acknowledgements on a fake clock: each test is a story, with a table of all its messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from eventbus.model.event import ObjectMeta
from eventbus.model.matchers import Matchers, parse_matchers
from eventbus.model.objects.silence import (
    AcknowledgedObject,
    Acknowledgement,
    AcknowledgementSpec,
    Silence,
    SilenceMatcher,
    SilenceSpec,
)
from eventbus.notify import silencing
from eventbus.notify.alerts import ms_of
from eventbus.notify.engine import Engine, Send
from eventbus.notify.rules import Rules, parse_rules
from eventbus.notify.silencing import Silencing
from tests.unit.notify.test_engine import ROOT, START, World, rules

FAST = "group_wait: 30s, group_interval: 5m, repeat_interval: 1h, resolve_after: 3h"
PAGED = """
route: {receiver: duty, group_by: [namespace, reason], repeat_interval: 1h, resolve_after: 6h}
receivers:
- name: duty
  webhook_configs: [{url: "https://chat.example"}]
  pagerduty_configs: [{routing_key: "0123456789abcdef0123456789abcdef"}]
"""


def grouped(label: str, more: str) -> Rules:
    """Return rules with a group for each value of a label."""
    return parse_rules(ROOT.replace("[namespace, reason]", f"[{label}]") % (more, "")).rules


class Quiet(World):
    """A world with silences and acknowledgements, which a take-over reads before it acts."""

    def __init__(self, rules: Rules) -> None:
        self.silences: dict[str, Silence] = {}
        self.acknowledgements: dict[str, Acknowledgement] = {}
        super().__init__(rules)

    def _new_engine(self) -> Engine:
        engine = super()._new_engine()
        for name, silence in self.silences.items():
            engine.set_silence(name, silence, self.now_ms)
        for name, acknowledgement in self.acknowledgements.items():
            engine.set_acknowledgement(name, acknowledgement)
        return engine

    def silence(self, matchers: str, start: float, end: float, name: str = "s") -> None:
        found = [
            SilenceMatcher(each.name, each.value, each.type in ("=~", "!~"), each.type in ("=", "=~"))
            for each in parse_matchers(matchers)
        ]
        spec = SilenceSpec(tuple(found), self.at(start), self.at(end), "ann")
        self.silences[name] = Silence(metadata=ObjectMeta(name=name), spec=spec)
        self.engine.set_silence(name, self.silences[name], self.now_ms)
        self._work()

    def remove_silence(self, name: str = "s") -> None:
        del self.silences[name]
        self.engine.set_silence(name, None, self.now_ms)
        self._work()

    def acknowledge(self, pod: str = "web-1", *, same_namespace: bool = False, namespace: str = "shop") -> None:
        spec = AcknowledgementSpec(AcknowledgedObject("pod", namespace, pod), same_namespace, "ann")
        metadata = ObjectMeta(name="a", creation_timestamp=self.at(self.minute).replace(microsecond=0))
        self.acknowledgements["a"] = Acknowledgement(metadata=metadata, spec=spec)
        self.engine.set_acknowledgement("a", self.acknowledgements["a"])
        self._work()

    def remove_acknowledgement(self) -> None:
        del self.acknowledgements["a"]
        self.engine.set_acknowledgement("a", None)
        self._work()

    @staticmethod
    def at(minute: float) -> datetime:
        return START + timedelta(minutes=minute)


def test_a_silence_that_began_before_the_alert_holds_its_message_back_until_it_ends() -> None:
    world = Quiet(rules(FAST))
    world.silence('name="web-1"', 0, 20)
    world.until(1)
    world.happens(world.event(), world.event("web-2"))
    world.until(30)
    assert world.messages == [(1.5, "chat", "first", 1, 0), (20, "chat", "new-alerts", 2, 0)]


def test_an_alert_that_a_receiver_knows_is_not_repeated_while_it_is_silenced_and_its_end_is_sent() -> None:
    world = Quiet(rules(FAST))
    world.happens(world.event())
    world.until(1)
    world.silence('reason="BackOff"', 1, 170)
    world.until(160)
    assert world.messages == [(0.5, "chat", "first", 1, 0)]
    world.happens(world.event(reason="Started", type_="Normal"))
    world.until(170)
    assert world.messages[1:] == [(160.5, "chat", "all-resolved", 0, 1)]


def test_after_a_silence_an_alert_that_a_receiver_knows_is_repeated_when_that_is_due() -> None:
    for end, repeated in ((40, 60.5), (100, 100.5)):
        world = Quiet(rules(FAST))
        world.happens(world.event())
        world.until(1)
        world.silence('reason="BackOff"', 1, end)
        world.until(119)
        assert world.messages == [(0.5, "chat", "first", 1, 0), (repeated, "chat", "repeat", 1, 0)]


def test_the_end_of_a_silence_shortens_neither_group_wait_nor_group_interval() -> None:
    world = Quiet(rules("group_wait: 5m, group_interval: 10m"))
    world.silence('name=~"web-[12]"', 0, 2)
    world.silence('name="web-3"', 0, 8, name="t")
    world.until(1)
    world.happens(world.event(), world.event("web-3"))
    world.until(20)
    assert world.messages == [(6, "chat", "first", 1, 0), (16, "chat", "new-alerts", 2, 0)]


@pytest.mark.parametrize("end", ["removed", "shortened"])
def test_a_removed_or_shortened_silence_ends_now(end: str) -> None:
    world = Quiet(rules(FAST))
    world.silence('kind="Pod"', 0, 60)
    world.happens(world.event())
    world.until(10)
    assert world.messages == []
    if end == "removed":
        world.remove_silence()
    else:
        world.silence('kind="Pod"', 0, 10)
    world.until(11)
    assert world.messages == [(10, "chat", "first", 1, 0)]


def test_changed_matchers_release_the_alerts_that_they_do_not_match_and_take_others() -> None:
    world = Quiet(grouped("name", "group_interval: 5m, repeat_interval: 1h, resolve_after: 6h"))
    world.silence('name="web-1"', 0, 300)
    world.happens(world.event(), world.event("web-2"))
    world.until(30)
    world.silence('name="web-2"', 0, 300)
    world.until(100)
    assert world.messages == [
        (0.5, "chat", "first", 1, 0),  # web-2
        (30, "chat", "first", 1, 0),  # web-1
        (90, "chat", "repeat", 1, 0),
    ]
    assert [each.alerts[0].labels["name"] for each in world.sent] == ["web-2", "web-1", "web-1"]


@pytest.mark.parametrize("minute", [5, 59, 61])
def test_a_take_over_notifies_nothing_that_is_silenced(minute: float) -> None:
    world = Quiet(rules(FAST))
    world.happens(world.event("web-2"))
    world.until(1)
    world.silence('kind="Pod"', 0, 120)
    world.happens(world.event())
    world.until(minute)
    world.take_over()
    world.until(119)
    assert world.messages == [(0.5, "chat", "first", 1, 0)]
    world.until(121)
    assert world.messages[1:] == [(120, "chat", "new-alerts", 2, 0)]


def test_an_alert_is_looked_at_again_when_its_labels_change() -> None:
    world = Quiet(grouped("name", "group_wait: 90s"))
    world.silence('host="db-1"', 0, 60)
    world.happens(world.event(host="db-2"), world.event("web-2", host="db-1"))
    world.until(1)
    world.happens(world.event(host="db-1"), world.event("web-2", host="db-2"))
    world.until(2)
    assert [each.alerts[0].labels["name"] for each in world.sent] == ["web-2"]


def test_a_silence_with_an_invalid_expression_silences_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = Quiet(rules("group_wait: 0s"))
    world.silence('kind=~"("', 0, 60)
    world.happens(world.event())
    assert world.messages == [(0, "chat", "first", 1, 0)]
    assert "the silence s is ignored: '(' is no regular expression" in caplog.text


def test_all_silences_of_labels_are_found_and_few_others_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def silence(**labels: str) -> Silence:
        matchers = tuple(SilenceMatcher(name, value) for name, value in labels.items())
        return Silence(spec=SilenceSpec(matchers, START, START + timedelta(hours=1)))

    tried: list[Matchers] = []
    match = Matchers.match

    def noted(matchers: Matchers, labels: Mapping[str, str]) -> bool:
        tried.append(matchers)
        return match(matchers, labels)

    monkeypatch.setattr(Matchers, "match", noted)
    found, now_ms = Silencing({}), ms_of(START)
    for number in range(100):
        found.set(f"web-{number}", silence(namespace="shop", name=f"web-{number}"), now_ms)
    found.set("pods", silence(kind="Pod"), now_ms)
    found.set("nodes", silence(kind="Node"), now_ms)
    labels = {"namespace": "shop", "kind": "Pod", "name": "web-7"}
    assert sorted(found.matching(labels)) == ["pods", "web-7"]
    assert len(tried) <= 4
    found.set("web-7", None, now_ms)
    assert list(found.matching(labels)) == ["pods"]


@pytest.mark.parametrize("end", ["deleted", "over"])
def test_a_silence_beyond_the_bound_is_ignored_until_another_one_ends(
    end: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(silencing, "MAX_SILENCES", 1)
    world = Quiet(rules("group_wait: 0s"))
    world.silence('kind="Job"', 50_000, 60_000, name="in a month")
    world.silence('kind="Node"', 0, 10 if end == "over" else 60)
    for name in ("t", "u"):
        world.silence('kind="Pod"', 0, 60, name=name)
    world.happens(world.event())
    assert (world.messages, world.engine.ignored_silences) == ([(0, "chat", "first", 1, 0)], 2)
    assert caplog.text.count("is ignored") == 1
    world.until(11)
    if end == "deleted":
        world.remove_silence()
    assert (world.engine.active_silences, world.engine.ignored_silences) == (1, 1)
    world.happens(world.event(namespace="bank"))
    world.until(20)
    assert len(world.messages) == 1


def test_changes_of_a_silence_leave_no_timers_behind() -> None:
    world = Quiet(rules())
    for number in range(2000):
        world.silence('kind="Pod"', 10, 60 + number)
    assert len(world.engine._silencing._borders) < 200
    world.happens(world.event())
    world.until(2058)
    assert world.engine.active_silences == 1
    world.until(2060)
    assert world.engine.active_silences == 0


class Paged(Quiet):
    """A world with a chat and a pager, and the minute, integration and reason of each message in *pages*."""

    def __init__(self, text: str = PAGED) -> None:
        self.pages: list[tuple[float, str, str]] = []
        super().__init__(parse_rules(text).rules)

    def arrive(self, send: Send) -> None:
        self.pages.append((round(self.minute, 2), send.integration.partition("[")[0], send.notification.reason.value))
        super().arrive(send)


FIRST = [(0.5, "webhook", "first"), (0.5, "pagerduty", "first")]


def test_an_acknowledgement_stops_repeats_until_the_group_resolves_and_is_sent_to_the_pager() -> None:
    world = Paged()
    world.happens(world.event(), world.event("web-2"))
    world.until(10)
    world.acknowledge()
    world.until(200)
    world.take_over()
    world.until(300)
    assert world.pages == [*FIRST, (10, "pagerduty", "acknowledged")]
    assert world.sent[-1].acknowledged_by == "ann"
    assert {alert.labels["name"] for alert in world.sent[-1].alerts} == {"web-1", "web-2"}
    world.happens(world.event(reason="Started", type_="Normal"))
    world.happens(world.event("web-2", "Started", type_="Normal"))
    world.until(305)
    assert world.pages[3:] == [(305, "webhook", "all-resolved"), (305, "pagerduty", "all-resolved")]
    world.happens(world.event())
    world.until(370)
    assert [reason for _, integration, reason in world.pages[5:] if integration == "webhook"] == ["first", "repeat"]


def test_a_new_object_ends_an_acknowledgement() -> None:
    world = Paged()
    world.happens(world.event())
    world.until(10)
    world.acknowledge()
    world.until(20)
    world.happens(world.event("web-2"))
    world.until(90)
    assert [row for row in world.pages if row[1] == "webhook"] == [
        (0.5, "webhook", "first"),
        (20.5, "webhook", "new-alerts"),
        (80.5, "webhook", "repeat"),
    ]


def test_a_removed_acknowledgement_lets_repeats_go_on() -> None:
    world = Paged()
    world.happens(world.event())
    world.until(10)
    world.acknowledge()
    world.until(100)
    world.remove_acknowledgement()
    world.until(110)
    assert [row for row in world.pages if row[1] == "webhook"] == [
        (0.5, "webhook", "first"),
        (100.5, "webhook", "repeat"),
    ]


def test_an_acknowledgement_before_the_first_message_is_sent_after_it() -> None:
    world = Paged()
    world.happens(world.event())
    world.until(0.2)
    world.acknowledge()
    world.until(10)
    assert world.pages == [*FIRST, (5.5, "pagerduty", "acknowledged")]


def test_an_acknowledgement_of_another_object_or_outside_its_namespace_changes_nothing() -> None:
    for pod, namespace in (("web-3", "shop"), ("web-1", "pay")):
        world = Paged()
        world.happens(world.event())
        world.until(10)
        world.acknowledge(pod, namespace=namespace)
        world.until(70)
        assert [reason for _, _, reason in world.pages] == ["first", "first", "repeat", "repeat"]


def test_an_acknowledgement_that_is_limited_to_a_namespace_needs_all_alerts_in_it() -> None:
    for reason, acknowledged in (("BackOff", True), ("Mixed", False)):
        world = Quiet(grouped("type", "repeat_interval: 1h, resolve_after: 3h"))
        world.happens(world.event())
        if reason == "Mixed":
            world.happens(world.event(namespace="pay"))
        world.until(10)
        world.acknowledge(same_namespace=True)
        world.until(70)
        assert ([message.reason for message in world.messages] == ["first"]) is acknowledged


def test_an_acknowledgement_that_was_not_confirmed_is_sent_again_after_a_take_over() -> None:
    world = Paged()
    world.happens(world.event())
    world.until(10)
    world.failing = True
    world.acknowledge()
    world.failing = False
    world.take_over()
    assert world.pages == [*FIRST, (10, "pagerduty", "acknowledged")]
    assert world.sent[-1].acknowledged_by == "ann"


def test_alertmanager_is_sent_an_acknowledged_group_again_because_it_would_resolve_it() -> None:
    text = PAGED.replace(
        'pagerduty_configs: [{routing_key: "0123456789abcdef0123456789abcdef"}]',
        'alertmanager_configs: [{url: "https://am.example"}]',
    )
    world = Paged(text)
    world.happens(world.event())
    world.until(10)
    world.acknowledge()
    world.until(70)
    assert {integration for minute, integration, _ in world.pages if minute > 10} == {"alertmanager"}


def test_an_acknowledgement_is_in_use_while_an_alert_about_its_object_fires() -> None:
    world = Quiet(rules(FAST))
    world.happens(world.event())
    world.until(10)
    world.acknowledge()
    acknowledgement = world.acknowledgements["a"]
    assert world.engine.acknowledges(acknowledgement)
    world.happens(world.event(reason="Started", type_="Normal"))
    assert not world.engine.acknowledges(acknowledgement)
    world.until(20)
    world.happens(world.event())
    assert not world.engine.acknowledges(acknowledgement)
