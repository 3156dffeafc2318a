"""Expected events on a fake clock: each test is a story, with a table of the events that are recorded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest

from eventbus.broker.notifications import ExpectedEvent
from eventbus.errors import ConfigError
from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.notify.alerts import ms_of
from eventbus.notify.engine import Engine, Occurrence
from eventbus.notify.expect_rules import ARRIVED_REASON, MISSING_REASON
from eventbus.notify.expected import MAX_EVENTS, ExpectedEvents
from eventbus.notify.rules import ParsedRules, parse_rules

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)

FILE = """
route: {receiver: chat, group_wait: 0s, group_interval: 1m}
receivers: [{name: chat, webhook_configs: [{url: "https://chat.example"}]}]
expect:
%s
"""
NIGHTLY = """
- {name: nightly, matchers: ['kind="Backup",namespace="shop",name="db",reason="Completed"'], every: 25h}
"""
MANY = '- {name: n%d, matchers: [\'kind="Backup",name="db",reason="Completed"\'], every: 25h}'
UNINDEXED = "- {name: n%d, matchers: ['reason=~\"Complete.*\"'], every: 25h, object: Backup/db}"
AT_THREE = """
- name: nightly
  matchers: [kind="Backup", name="db", reason="Completed"]
  schedule: "%s"
  timezone: Europe/Berlin
  grace: 30m
"""


def parsed(entries: str) -> ParsedRules:
    return parse_rules(FILE % entries)


class Recorded(NamedTuple):
    """A recorded event, by hours since the start of the story."""

    hour: float
    reason: str
    name: str


class World:
    """A clock, and a notifier that stores each change and records each report once under its identity."""

    def __init__(self, entries: str, start: datetime = START) -> None:
        self.start = self.now = start
        self.entries = entries
        self.stored: dict[str, bytes] = {}
        self.recorded: list[Recorded] = []
        self.messages: list[str] = []
        self.caught_up = start
        self._identities: set[str] = set()
        self._counts: dict[str, int] = {}
        self.restart()

    def restart(self) -> None:
        """Another notifier begins from the stored state."""
        rules = parsed(self.entries).rules
        self.engine = Engine(rules, links=lambda _labels: {})
        self.expected = ExpectedEvents(rules.expect, self.stored, self.engine, self.ms)
        self.save()

    def reload(self, entries: str) -> None:
        self.entries = entries
        self.expected.reload(parsed(entries).rules.expect, self.ms)
        self.save()

    @property
    def ms(self) -> int:
        return ms_of(self.now)

    @property
    def states(self) -> dict[str, ExpectedEvent]:
        states = [msgspec.json.decode(each, type=ExpectedEvent) for each in self.stored.values()]
        return {each.name: each for each in states}

    def save(self) -> None:
        for id_, text in self.expected.changed().items():
            if text:
                self.stored[id_] = text.encode()
            else:
                del self.stored[id_]

    def wait(self, to: timedelta | datetime, step: timedelta = timedelta(minutes=10)) -> None:
        """Let time pass, with a notifier that is up to date."""
        until = to if isinstance(to, datetime) else self.now.astimezone(UTC) + to
        while self.now < until:
            self.now = min(self.now.astimezone(UTC) + step, until)
            self.caught_up = self.now
            self.turn()

    def turn(self) -> None:
        self.expected.advance(ms_of(self.caught_up), self.ms)
        self.engine.advance(self.ms)
        self.save()
        self.record()

    def record(self) -> None:
        for id_, about, report in self.expected.reports():
            if report.identity not in self._identities:
                self._identities.add(report.identity)
                hour = (self.now - self.start) / HOUR
                self.recorded.append(Recorded(round(hour, 2), report.reason, f"{about.namespace}/{about.name}"))
                self.messages.append(report.message)
                at = datetime.fromtimestamp(report.at_ms / 1000, UTC)
                about_ = (about.kind, about.namespace, about.name)
                self.take(event(report.reason, about_, at, type=report.type), added=True)
            self.expected.reported(id_, report.identity)
        self.save()

    def arrive(self, reason: str = "Completed", at: datetime | None = None, **given: str) -> Event:
        """Store one more occurrence of an event: the first is new, the others are counted."""
        about = (given.get("kind", "Backup"), given.get("namespace", "shop"), given.get("name", "db"))
        uid = "/".join((reason, *about))
        self._counts[uid] = self._counts.get(uid, 0) + 1
        found = event(reason, about, at or self.now, uid, self._counts[uid], given.get("type", "Normal"))
        self.take(found, added=self._counts[uid] == 1)
        return found

    def take(self, found: Event, *, added: bool) -> None:
        self.engine.take([Occurrence(found, added)], self.ms)
        self.expected.take([Occurrence(found, added)], ms_of(self.caught_up), self.ms)
        self.save()

    def firing(self) -> list[str]:
        return sorted(alert.labels["name"] for alert in self.engine.alerts.values() if alert.fires)


def event(
    reason: str, about: tuple[str, str, str], at: datetime, uid: str = "", count: int = 1, type: str = "Normal"
) -> Event:
    kind, namespace, name = about
    uid = uid or f"{reason}/{name}/{at.timestamp()}"
    return Event(
        metadata=ObjectMeta(name=uid, namespace=namespace, uid=uid),
        involved_object=ObjectReference(kind=kind, namespace=namespace, name=name),
        reason=reason,
        type=type,
        source=EventSource(component="job"),
        first_timestamp=at - HOUR if count > 1 else at,
        last_timestamp=at,
        count=count,
    )


def test_a_missing_event_is_recorded_once_until_it_arrives() -> None:
    world = World(NIGHTLY)
    world.wait(24 * HOUR)
    world.arrive()
    world.wait(100 * HOUR)
    assert world.recorded == [Recorded(49.17, MISSING_REASON, "shop/db")]
    assert world.messages == [
        "the expected event nightly has not arrived by 2026-11-27 13:00:00 UTC; it last arrived 2026-11-26 12:00:00 UTC"
    ]
    assert world.firing() == ["db"], "no silence resolves it"
    world.arrive()
    assert world.firing() == []
    world.wait(timedelta(minutes=10))
    assert world.recorded[1:] == [Recorded(124.17, ARRIVED_REASON, "shop/db")]
    text = "the expected event nightly, due 2026-11-27 13:00:00 UTC, has arrived 3d3h late: Completed"
    assert world.messages[1] == text
    world.wait(26 * HOUR)
    assert world.recorded[2:] == [Recorded(149.17, MISSING_REASON, "shop/db")]


def test_only_events_that_match_arrive_and_warnings_only_if_a_matcher_has_type() -> None:
    world = World(NIGHTLY)
    world.wait(20 * HOUR)
    world.arrive("Started")
    world.arrive(name="other")
    world.arrive(type="Warning")
    world.wait(6 * HOUR)
    assert [each.reason for each in world.recorded] == [MISSING_REASON]
    typed = World(NIGHTLY.replace('reason="Completed"', 'type="Warning"'))
    typed.wait(20 * HOUR)
    typed.arrive(type="Warning")
    typed.wait(20 * HOUR)
    assert typed.recorded == []


def test_the_same_change_again_is_no_arrival() -> None:
    world = World(NIGHTLY)
    world.wait(HOUR)
    found = world.arrive()
    world.wait(20 * HOUR)
    world.take(found, added=False)
    world.wait(6 * HOUR)
    assert [each.reason for each in world.recorded] == [MISSING_REASON]


@pytest.mark.parametrize(
    ("schedule", "start", "due"),
    [
        ("30 2 * * *", datetime(2027, 3, 27, 12, tzinfo=BERLIN), ["03-28 03:00", "03-29 02:30"]),  # 02:30 is skipped
        ("30 2 * * *", datetime(2026, 10, 24, 12, tzinfo=BERLIN), ["10-25 02:30", "10-26 02:30"]),  # 02:30 comes twice
        ("0 3 * * *", datetime(2027, 3, 27, 12, tzinfo=BERLIN), ["03-28 03:00", "03-29 03:00"]),
        ("0 3 * * *", datetime(2026, 10, 24, 12, tzinfo=BERLIN), ["10-25 03:00", "10-26 03:00"]),
    ],
)
def test_a_schedule_is_due_once_a_day_also_when_the_clocks_change(
    schedule: str, start: datetime, due: list[str]
) -> None:
    world = World(AT_THREE % schedule, start)
    found = []
    for _ in due:
        due_at = datetime.fromtimestamp(world.states["nightly"].due_ms / 1000, UTC)
        found.append(f"{due_at.astimezone(BERLIN):%m-%d %H:%M}")
        world.wait(due_at + timedelta(minutes=20))
        world.arrive(namespace="default")
    assert (found, world.recorded) == (due, [])
    world.wait(world.now.astimezone(UTC) + 30 * HOUR)
    assert [each.reason for each in world.recorded] == [MISSING_REASON]


def test_an_event_a_minute_early_counts_for_its_time_and_an_earlier_one_does_not() -> None:
    start = datetime(2026, 11, 25, 2, 59, 30, tzinfo=BERLIN)
    early = World(AT_THREE % "0 3 * * *", start - HOUR)
    early.wait(start)
    early.arrive(namespace="default")
    early.wait(12 * HOUR)
    assert early.recorded == []
    too_early = World(AT_THREE % "0 3 * * *", start - 2 * HOUR)
    too_early.wait(start - HOUR)
    too_early.arrive(namespace="default")
    too_early.wait(12 * HOUR)
    assert [each.reason for each in too_early.recorded] == [MISSING_REASON]


def test_what_was_decided_and_not_recorded_is_recorded_by_the_next_notifier_once() -> None:
    world = World(NIGHTLY)
    world.now = world.caught_up = START + 26 * HOUR
    world.expected.advance(ms_of(world.caught_up), world.ms)
    world.save()  # decided and stored; killed before it is recorded
    world.restart()
    world.record()
    assert [each.reason for each in world.recorded] == [MISSING_REASON]


def test_arrivals_during_an_outage_are_taken_in_before_anything_is_missing() -> None:
    world = World(NIGHTLY)
    world.wait(HOUR)
    world.arrive()
    world.now = START + 60 * HOUR  # no notifier, or no Redis
    world.turn()
    world.arrive(at=START + 25 * HOUR)
    world.turn()
    world.arrive(at=START + 49 * HOUR)
    world.wait(10 * HOUR)
    assert world.recorded == []
    assert world.states["nightly"].last_ms == ms_of(START + 49 * HOUR)
    world.wait(5 * HOUR)
    assert [each.reason for each in world.recorded] == [MISSING_REASON]


@pytest.mark.parametrize("wrong", [-HOUR, HOUR])
def test_the_clock_of_a_producer_does_not_matter_while_a_notifier_runs(wrong: timedelta) -> None:
    world = World(NIGHTLY.replace("25h", "30m"))
    for _ in range(10):
        world.wait(timedelta(minutes=20))
        world.arrive(at=world.now + wrong)
    assert world.recorded == []
    world.wait(timedelta(minutes=40))
    assert [each.reason for each in world.recorded] == [MISSING_REASON]


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_step_of_the_bus_clock_records_nothing_twice(step: timedelta) -> None:
    world = World(NIGHTLY)
    world.wait(26 * HOUR)
    world.now = world.caught_up = world.now + step
    world.wait(26 * HOUR)
    assert [each.reason for each in world.recorded] == [MISSING_REASON]
    world.arrive()
    world.wait(timedelta(minutes=10))
    world.now = world.caught_up = world.now + step
    world.wait(20 * HOUR)
    assert [each.reason for each in world.recorded] == [MISSING_REASON, ARRIVED_REASON]
    assert world.firing() == []


def test_a_removed_or_renamed_entry_is_forgotten_and_its_alert_resolves_by_silence() -> None:
    world = World(NIGHTLY)
    world.wait(26 * HOUR)
    assert world.firing() == ["db"]
    world.reload(NIGHTLY.replace("nightly", "daily"))
    world.wait(2 * HOUR)
    assert world.firing() == []
    assert list(world.states) == ["daily"]
    world.wait(22 * HOUR)
    assert len(world.recorded) == 1
    world.wait(2 * HOUR)
    assert [each.reason for each in world.recorded] == [MISSING_REASON] * 2


def test_a_changed_entry_counts_from_its_change_unless_it_is_missing() -> None:
    world = World(NIGHTLY)
    world.wait(20 * HOUR)
    world.reload(NIGHTLY.replace("25h", "2h"))
    world.wait(HOUR)
    assert world.recorded == []
    world.wait(2 * HOUR)
    assert len(world.recorded) == 1
    world.reload(NIGHTLY)
    world.wait(30 * HOUR)
    assert world.firing() == ["db"]
    assert len(world.recorded) == 1


def test_the_alert_of_two_events_of_an_object_ends_when_both_have_arrived() -> None:
    both = NIGHTLY + NIGHTLY.replace("nightly", "verified").replace("Completed", "Verified")
    world = World(both)
    world.wait(26 * HOUR)
    assert [each.reason for each in world.recorded] == [MISSING_REASON] * 2
    world.arrive()
    world.wait(timedelta(minutes=10))
    assert (world.firing(), world.recorded[2:]) == (["db"], [])
    world.arrive("Verified")
    world.wait(timedelta(minutes=10))
    assert (world.firing(), [each.reason for each in world.recorded[2:]]) == ([], [ARRIVED_REASON])


def test_an_arrival_that_is_taken_in_before_its_warning_ends_it() -> None:
    world = World(NIGHTLY)
    world.now = world.caught_up = START + 26 * HOUR
    world.expected.advance(ms_of(world.caught_up), world.ms)
    world.arrive()
    world.turn()
    assert [each.reason for each in world.recorded] == [MISSING_REASON, ARRIVED_REASON]
    assert world.firing() == []


def test_the_alert_of_a_missing_event_is_stored_again_and_again_so_that_it_does_not_expire() -> None:
    world = World(NIGHTLY)
    world.wait(30 * HOUR)
    world.engine.changed()
    world.wait(HOUR)
    assert [name for name in world.engine.changed() if name.startswith("a")] == [
        f"a{each}" for each in world.engine.alerts
    ]


def test_its_own_events_are_no_arrivals() -> None:
    world = World('- {name: any, matchers: [\'kind="Backup",name="db",type=~".*"\'], every: 1h}')
    world.wait(5 * HOUR)
    assert [each.reason for each in world.recorded] == [MISSING_REASON]


def test_the_memory_of_counts_is_bounded() -> None:
    world = World("- {name: any, matchers: ['kind=\"Backup\"'], every: 1h, object: Backup/all}")
    for number in range(MAX_EVENTS + 5):
        world.arrive(name=f"db-{number}")
    assert len(world.states["any"].events) == MAX_EVENTS


def test_corrupt_state_begins_again() -> None:
    world = World(NIGHTLY)
    world.wait(20 * HOUR)
    world.stored = dict.fromkeys(world.stored, b"{")
    world.restart()
    world.wait(20 * HOUR)
    assert world.recorded == []


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (NIGHTLY.replace("every: 25h", "grace: 1h"), "line 6: expect[0].every: give every or schedule"),
        (NIGHTLY.replace("25h", "0"), "expect[0].every: must be longer than 0"),
        (NIGHTLY.replace("every: 25h", 'schedule: "0 3 * * *"'), "a schedule takes grace"),
        (NIGHTLY.replace("every: 25h", 'schedule: "0 3 * *", grace: 1h'), "write five fields, as 0 3 * * *"),
        (NIGHTLY.replace("every: 25h", 'schedule: "61 3 * * *", grace: 1h'), "is no schedule: Bad minute"),
        (NIGHTLY.replace("every: 25h", 'schedule: "0 0 30 2 *", grace: 1h'), "is no schedule: Bad day-of-month"),
        (NIGHTLY.replace("25h", "25h, timezone: Mars/Base"), "is no time zone that this machine knows"),
        (NIGHTLY.replace("25h", "25h, timezone: Local"), "name the zone, as Europe/Berlin"),
        (NIGHTLY.replace('name="db"', 'name=~"db.*"'), "add object: NAMESPACE/KIND/NAME"),
        (NIGHTLY.replace('namespace="shop"', 'namespace!="shop"'), "add object: NAMESPACE/KIND/NAME"),
        (NIGHTLY.replace("25h", "25h, object: a/b/c/d"), "expect[0].object: "),
        (NIGHTLY.replace("25h", "25h, every_: 1h"), "there is no such field; did you mean every?"),
        pytest.param(
            "\n".join(UNINDEXED % number for number in range(21)),
            "more than 20 have no matcher with = on name, reason",
            id="unindexed",
        ),
        pytest.param(
            "\n".join(MANY % number for number in range(1001)), "there are more than 1000 expected events", id="many"
        ),
        (NIGHTLY * 2, "there are 2 of expected event 'nightly'"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_cure(entry: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(entry)
    assert problem in str(caught.value)


def test_matchers_without_a_reason_are_a_likely_mistake() -> None:
    (warning,) = parsed(NIGHTLY.replace(',reason="Completed"', "")).warnings
    assert "also Started: add a matcher on reason" in warning
