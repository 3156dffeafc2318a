"""The messages that the docs promise, on a fake clock: each test is a story, with a table of all its messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.model.matchers import labels_of
from eventbus.notify import engine as engine_module
from eventbus.notify.alerts import Alert
from eventbus.notify.engine import FAILED_REASON, OVERFLOW_REASON, Engine, Group, Occurrence, Send
from eventbus.notify.receivers.contract import Notification
from eventbus.notify.rules import Rules, parse_rules
from tests.thin import thin

START = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)  # a Wednesday
MINUTE_MS = 60_000

ROOT = """
route: {receiver: chat, group_by: [namespace, reason], %s}
receivers:
- {name: chat, webhook_configs: [{url: "https://chat.example"}]}
- {name: duty, webhook_configs: [{url: "https://duty.example", send_resolved: false}]}
- {name: nowhere}
%s
"""


def rules(more: str = "repeat_interval: 4h", rest: str = "") -> Rules:
    return parse_rules(ROOT % (more, rest)).rules


class Message(NamedTuple):
    """A row of a table: when it was sent, and its content."""

    minute: float
    receiver: str
    reason: str
    firing: int
    resolved: int


class World:
    """Events, a clock, and the notifier with its store: each change is stored packed, and each message is confirmed.

    *failing*: messages are stored, and wait in *pending* instead of being sent.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.now_ms = int(START.timestamp() * 1000)
        self.stored: dict[str, bytes] = {}
        self.messages: list[Message] = []
        self.sent: list[Notification] = []
        self.failing = False
        self.pending: list[Send] = []
        self._counts: dict[str, int] = {}
        self._firsts: dict[str, datetime] = {}
        self.engine = self._new_engine()

    def _new_engine(self) -> Engine:
        return Engine(self.rules, links=self.links)

    @staticmethod
    def links(labels: Mapping[str, str]) -> dict[str, str]:
        return {"node": labels["name"] if labels["kind"] == "Node" else labels.get("host", "")}

    @property
    def minute(self) -> float:
        return (self.now_ms - START.timestamp() * 1000) / MINUTE_MS

    def event(
        self,
        name: str = "web-1",
        reason: str = "BackOff",
        *,
        kind: str = "Pod",
        namespace: str = "shop",
        type_: str = "Warning",
        host: str = "",
        times: int = 1,
        message: str = "",
    ) -> Occurrence:
        """One more occurrence, now."""
        uid = f"{namespace}/{kind}/{name}/{reason}"
        at = datetime.fromtimestamp(self.now_ms / 1000, UTC)
        added = uid not in self._counts
        self._counts[uid] = self._counts.get(uid, 0) + times
        event = Event(
            metadata=ObjectMeta(name=uid, namespace=namespace, uid=uid),
            involved_object=ObjectReference(kind=kind, namespace=namespace, name=name),
            reason=reason,
            message=message or f"{name} has {reason}",
            type=type_,
            source=EventSource(component="kubelet", host=host),
            first_timestamp=self._firsts.setdefault(uid, at),
            last_timestamp=at,
            count=self._counts[uid],
        )
        return Occurrence(event, added)

    def happens(self, *occurrences: Occurrence) -> None:
        self.engine.take(occurrences, self.now_ms)
        self._work()

    def until(self, minute: float) -> None:
        """Let the time pass, with all timers on the way."""
        end_ms = int(START.timestamp() * 1000 + minute * MINUTE_MS)
        while (due_ms := self.engine.next_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._work()
        self.now_ms = end_ms
        self._work()

    def take_over(self) -> None:
        """Go on as another worker, from the stored state alone."""
        alerts = [msgspec.msgpack.decode(v, type=Alert) for k, v in self.stored.items() if k[0] == "a"]
        groups = [msgspec.msgpack.decode(v, type=Group) for k, v in self.stored.items() if k[0] == "g"]
        self.engine = self._new_engine()
        self.pending.clear()
        self._deliver(self.engine.load(alerts, groups, self.now_ms))
        self._work()

    def retry(self) -> None:
        """Send those that have waited."""
        waiting, self.pending = self.pending, []
        self._deliver(waiting)

    def reload(self, rules: Rules) -> None:
        self.rules = rules
        self.engine.reload(rules, self.now_ms)
        self._work()

    def _work(self) -> None:
        sends = self.engine.advance(self.now_ms)
        self._store()
        self._deliver(sends)

    def _store(self) -> None:
        for name, value in self.engine.changed().items():
            if value is None:
                self.stored.pop(name, None)
            else:
                self.stored[name] = msgspec.msgpack.encode(value)

    def _deliver(self, sends: Iterable[Send]) -> None:
        for send in sends:
            if self.failing:
                self.pending.append(send)
            else:
                self.arrive(send)
                self.confirm(send)

    def arrive(self, send: Send) -> None:
        notification = send.notification
        statuses = [alert.status.value for alert in notification.alerts]
        self.sent.append(notification)
        row = (notification.receiver, notification.reason.value, statuses.count("firing"), statuses.count("resolved"))
        self.messages.append(Message(round(self.minute, 2), *row))

    def confirm(self, send: Send) -> None:
        notification = send.notification
        handle = {"message": str(notification.number)}
        assert self.engine.settle(send.group, send.integration, notification.key, handle, self.now_ms)
        self._store()


def test_a_crash_loop_of_three_hours_is_one_message_a_repeat_and_an_end() -> None:
    world = World(rules("repeat_interval: 2h"))
    for minute in range(0, 181, 5):
        world.until(minute)
        world.happens(world.event())
    world.until(300)
    assert world.messages == [
        (0.5, "chat", "first", 1, 0),
        (120.5, "chat", "repeat", 1, 0),
        (195.5, "chat", "all-resolved", 0, 1),  # three pauses of five minutes after the last
    ]
    assert [notification.handle for notification in world.sent] == [{}, {"message": "1"}, {"message": "2"}]
    assert world.sent[1].alerts[0].count == 25
    assert len({notification.key for notification in world.sent}) == 3
    assert len({notification.group for notification in world.sent}) == 1
    assert world.stored == {}


def test_a_receiver_that_forgets_alerts_is_sent_them_at_each_interval() -> None:
    text = "route: {receiver: chat}\nreceivers: [{name: chat, alertmanager_configs: [{url: 'https://a.example'}]}]\n"
    world = World(parse_rules(text).rules)
    world.happens(world.event())
    world.until(12)
    assert [message[:3] for message in world.messages] == [
        (0.5, "chat", "first"),
        (5.5, "chat", "repeat"),
        (10.5, "chat", "repeat"),
    ]


def test_a_group_that_ends_before_it_was_sent_sends_nothing() -> None:
    world = World(rules("group_wait: 5m"))
    world.happens(world.event())
    world.until(1)
    world.happens(world.event(reason="Started", type_="Normal"))
    world.until(60)
    assert world.messages == []
    assert world.stored == {}


def test_a_good_event_ends_the_warnings_of_its_object_and_is_named() -> None:
    world = World(rules())
    world.happens(world.event(), world.event("web-2"))
    world.until(1)
    world.happens(world.event(reason="Started", type_="Normal"))
    world.until(20)
    assert world.messages == [(0.5, "chat", "first", 2, 0), (5.5, "chat", "resolved-alerts", 1, 1)]
    assert [alert.ended_by for alert in world.sent[1].alerts] == ["", "Started"]


NODE = """
inhibit_rules:
- source_matchers: [kind="Node"]
  target_matchers: [kind="Pod"]
  equal: [node]
"""


def test_a_dead_node_inhibits_its_pods_until_it_is_back() -> None:
    world = World(rules("repeat_interval: 4h, resolve_after: 3h", NODE))
    world.happens(*[world.event(f"web-{n}", "NodeLost", host="node-1") for n in range(30)])
    world.happens(world.event("other", "NodeLost", host="node-2"))
    world.until(0.2)
    world.happens(world.event("node-1", "NodeNotReady", kind="Node"))
    world.until(60)
    assert world.messages == [(0.5, "chat", "first", 1, 0), (0.7, "chat", "first", 1, 0)]
    (group,) = (group for group in world.engine.groups.values() if len(group.alerts) == 31)
    (node,) = (alert.id for alert in world.engine.alerts.values() if alert.labels["kind"] == "Node")
    assert (len(group.inhibited), set(group.inhibited.values())) == (30, {node})
    world.happens(world.event("node-1", "NodeReady", kind="Node", type_="Normal"))
    world.until(70)
    assert world.messages[2:] == [
        (60.5, "chat", "new-alerts", 31, 0),  # the pods still fail
        (60.7, "chat", "all-resolved", 0, 1),
    ]


MUTE = """
time_intervals:
- name: noon
  time_intervals: [{times: [{start_time: "12:00", end_time: "13:00"}]}]
"""


ALWAYS = """
time_intervals:
- {name: noon, time_intervals: [{weekdays: ["monday:sunday"]}]}
"""


@pytest.mark.parametrize("how", ["reload", "take over"])
@pytest.mark.parametrize(
    ("former", "rest", "minute"),
    [(ALWAYS, "", 5), (MUTE, "", 5), (ALWAYS, MUTE, 60)],
    ids=["an endless one removed", "removed", "shortened"],
)
def test_a_removed_or_shortened_mute_ends_for_groups_that_it_has_muted(
    former: str, rest: str, minute: float, how: str
) -> None:
    muted = 'resolve_after: 3h, routes: [{matchers: [kind="Pod"]%s}]'
    during = ", mute_time_intervals: [noon]"
    world = World(rules(muted % during, former))
    world.happens(world.event())
    world.until(5)
    (group,) = (packed for name, packed in world.stored.items() if name[0] == "g")
    assert msgspec.msgpack.decode(group, type=Group).muted_until_ms > world.now_ms
    after = rules(muted % (during if rest else ""), rest)
    if how == "reload":
        world.reload(after)
    else:
        world.rules = after
        world.take_over()
    world.until(120)
    assert world.messages == [(minute, "chat", "first", 1, 0)]


def test_other_rules_shorten_neither_group_wait_nor_group_interval() -> None:
    waiting = "group_wait: 10m, group_interval: 20m"
    world = World(rules(waiting))
    world.happens(world.event("web-1"))
    world.until(1)
    world.reload(rules(f"{waiting}, repeat_interval: 5h"))
    world.until(11)
    world.happens(world.event("web-2"))
    world.reload(rules("group_wait: 10m, group_interval: 8m"))
    world.until(40)
    assert world.messages == [(10, "chat", "first", 1, 0), (18, "chat", "new-alerts", 2, 0)]


def test_active_times_are_the_only_ones() -> None:
    active = 'routes: [{matchers: [kind="Pod"], active_time_intervals: [noon]}]'
    world = World(rules(active, MUTE))
    world.until(120)
    world.happens(world.event())
    world.until(200)
    assert world.messages == []


def test_a_route_may_wait_for_a_number_of_occurrences_within_a_time() -> None:
    often = 'group_wait: 0s, routes: [{matchers: [kind="Pod"], receiver: duty, min_count: 3, within: 10m}]'
    world = World(rules(often))
    for minute in (0, 6, 12, 18, 19, 20):
        world.until(minute)
        world.happens(world.event())
    assert world.messages == [(19, "duty", "first", 1, 0)]


def test_a_route_may_wait_until_it_lasts() -> None:
    world = World(rules('routes: [{matchers: [kind="Pod"], for: 10m, group_wait: 0s}]'))
    for minute in (0, 4, 8, 12, 14):
        world.until(minute)
        world.happens(world.event())
    assert world.messages == [(12, "chat", "first", 1, 0)]


def test_a_resolved_alert_counts_from_its_new_start() -> None:
    world = World(rules("group_wait: 0s, group_interval: 1m"))
    world.happens(world.event(times=50))
    world.until(10)
    world.happens(world.event(times=2))
    assert [message.reason for message in world.messages] == ["first", "all-resolved", "first"]
    assert [notification.alerts[0].count for notification in world.sent] == [50, 50, 1]  # of the unknown 2, one is sure


def test_reading_changes_again_has_no_effect() -> None:
    world = World(rules("group_wait: 0s"))
    first, second = world.event(), world.event()
    world.happens(first, second, first, second)
    world.until(1)
    world.happens(second, first)
    assert [alert.count for alert in world.engine.alerts.values()] == [2]
    assert len(world.messages) == 1


def test_a_receiver_without_resolved_messages_learns_that_it_fires_again() -> None:
    world = World(rules("group_wait: 0s, routes: [{receiver: duty}]"))
    world.happens(world.event())
    world.until(90)
    world.happens(world.event())
    assert [(message.receiver, message.reason) for message in world.messages] == [("duty", "first"), ("duty", "first")]


@pytest.mark.parametrize("step", ["decided", "written", "sent", "confirmed"])
def test_a_take_over_loses_nothing_and_repeats_only_what_was_not_confirmed(step: str) -> None:
    world = World(rules())
    world.happens(world.event("web-1"))
    world.until(0.1)
    if step != "decided":
        world.failing = step != "confirmed"
        world.until(0.5)
    if step == "sent":
        world.arrive(world.pending[0])
    world.failing = False
    world.take_over()
    world.until(30)
    first = [notification for notification in world.sent if notification.reason == "first"]
    assert len(first) == (2 if step == "sent" else 1)
    assert len({notification.key for notification in first}) == 1
    world.until(120)
    assert world.messages[-1].reason == "all-resolved"
    assert world.stored == {}


def test_with_another_file_groups_go_on_and_those_of_removed_routes_only_end() -> None:
    by_kind = 'routes: [{matchers: [kind="Pod"], group_by: [kind]}]'
    world = World(rules(by_kind))
    world.happens(world.event("web-1"))
    world.until(1)
    world.reload(rules())
    world.until(59)
    assert world.messages == [(0.5, "chat", "first", 1, 0), (1.5, "chat", "first", 1, 0)]
    world.until(120)
    assert [message.reason for message in world.messages[2:]] == ["all-resolved", "all-resolved"]
    assert world.stored == {}


def test_groups_of_a_removed_receiver_are_counted() -> None:
    world = World(rules('routes: [{matchers: [kind="Pod"], receiver: duty}]'))
    world.happens(world.event("web-1"))
    world.until(1)
    world.reload(parse_rules("route: {receiver: a}\nreceivers: [{name: a}]").rules)
    assert world.engine.unsendable == 1
    world.until(120)
    assert len(world.messages) == 1
    assert world.stored == {}


def test_beyond_the_bounds_alerts_are_counted_and_reported_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MAX_ALERTS", 10)
    world = World(rules())
    world.happens(*[world.event(f"web-{n}") for n in range(25)])
    world.until(1)
    assert sorted(world.messages) == [(0, "chat", "first", 1, 0), (0.5, "chat", "first", 10, 0)]
    overflow = world.sent[0].alerts[0]
    assert overflow.labels["reason"] == OVERFLOW_REASON
    assert overflow.annotations["message"].startswith("1 occurrences") or overflow.count == 15
    assert world.engine.overflowed == 15
    world.until(180)
    assert world.stored == {}


def test_a_receiver_is_not_sent_the_events_about_its_own_failure() -> None:
    world = World(rules("group_wait: 0s"))
    for name, receiver in (("notify-1", "chat"), ("notify-2", "duty")):
        world.happens(world.event(name, FAILED_REASON, kind="Worker", message=f"{receiver}: no answer"))
    assert [notification.alerts[0].labels["name"] for notification in world.sent] == ["notify-2"]


def test_a_repeat_that_was_held_back_until_after_the_end_does_not_fire_again() -> None:
    world = World(rules("group_wait: 0s"))
    world.happens(world.event())
    world.until(1)
    held_back = world.event()
    world.until(2)
    world.happens(world.event(reason="Started", type_="Normal"))
    world.happens(held_back)
    world.until(30)
    assert [message.reason for message in world.messages] == ["first", "all-resolved"]


@pytest.mark.parametrize("seed", thin(range(200), range(40).__contains__))
def test_whenever_a_worker_dies_each_alert_is_sent_and_ends(seed: int) -> None:
    """Random events, outages of the receiver and take-overs: nothing lost, and one repeat for each take-over."""
    random = Random(seed)
    world = World(rules("group_wait: 1m, group_interval: 2m, repeat_interval: 1h, resolve_after: 10m"))
    take_overs = 0
    for _ in range(60):
        match random.choice(["fails", "fails", "recovers", "waits", "waits", "outage", "over", "dies"]):
            case "fails":
                name = f"web-{random.randrange(5)}"
                world.happens(world.event(name))
            case "recovers":
                name = f"web-{random.randrange(5)}"
                world.happens(world.event(name, f"Started{world.now_ms}", type_="Normal"))
            case "waits":
                world.until(world.minute + random.choice([0.1, 1, 3, 20]))
            case "outage":
                world.failing = True
            case "over":
                world.failing = False
                world.retry()
            case _:
                take_overs += 1
                if world.pending and random.random() < 0.5:  # it arrived, and the confirmation was lost
                    world.arrive(world.pending[0])
                world.take_over()
    world.failing = False
    world.retry()
    world.until(world.minute + 24 * 60)
    assert world.stored == {}
    keys = [notification.key for notification in world.sent]
    assert len(keys) - len(set(keys)) <= take_overs
    state: dict[str, str] = {}
    for notification in dict(zip(keys, world.sent, strict=True)).values():
        for alert in notification.alerts:
            state[alert.labels["name"]] = alert.status
    assert set(state.values()) <= {"resolved"}
    contents: dict[str, list[str]] = {}
    for notification in world.sent:
        content = [f"{alert.fingerprint} {alert.status}" for alert in notification.alerts]
        assert contents.setdefault(notification.key, content) == content


def test_an_alert_that_repeats_has_one_timer() -> None:
    world = World(rules())
    for second in range(1000):
        world.until(second / 60)
        world.happens(world.event())
    assert len(world.engine._resolve_heap) < 10


def test_a_long_message_is_matched_whole_and_cut_in_notifications() -> None:
    world = World(rules('group_wait: 0s, routes: [{matchers: [message=~".*the end"], receiver: duty}]'))
    world.happens(world.event(message="x" * 16_000 + "the end"))
    (notification,) = world.sent
    assert notification.receiver == "duty"
    assert len(notification.alerts[0].annotations["message"]) == 1024


def test_an_event_that_meets_a_bug_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(rules("group_wait: 0s"))
    broken = world.event("web-1")
    monkeypatch.setattr(engine_module, "labels_of", lambda event: 1 / 0 if event is broken.event else labels_of(event))
    world.happens(broken, world.event("web-2"))
    assert [notification.alerts[0].labels["name"] for notification in world.sent] == ["web-2"]
    assert world.engine.skipped == 1
