"""The notifier on a real server, with receivers of the test: nothing lost, repeats only where the docs say."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from eventbus.broker import notifications
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.notifications import (
    ExpectedEvent,
    NotifyStore,
    ReceiverState,
    forget_notifier,
    read_expected,
    read_notifier_status,
)
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.errors import ConfigError, EventBusError, EventRejected, SinkUnreachable, Throttled, UnexpectedReply
from eventbus.model.event import Event
from eventbus.model.kinds import ACKNOWLEDGEMENT, EVENT, SILENCE
from eventbus.model.objects.silence import (
    AcknowledgedObject,
    Acknowledgement,
    AcknowledgementSpec,
    Silence,
    SilenceMatcher,
    SilenceSpec,
)
from eventbus.notify import bus_time, change_reader
from eventbus.notify import notifier as notifier_module
from eventbus.notify import senders as senders_module
from eventbus.notify.engine import Group
from eventbus.notify.group_reader import read_groups
from eventbus.notify.notifier import Notifier, NotifySetup
from eventbus.notify.receivers.contract import Notification, Opening, Receiver
from eventbus.notify.receivers.webhook import WebhookConfig
from eventbus.notify.rules import ParsedRules, parse_rules
from eventbus.notify.senders import Senders
from eventbus.notify.silence_reader import KEPT, SilenceReader
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.store.changes import read_versions
from eventbus.store.object_store import ObjectStore
from eventbus.util.backoff import Backoff
from eventbus.util.clock import SystemClock
from eventbus.util.log import log
from tests.builders import make_event, make_reference
from tests.support.harness import own_server, settings_of
from tests.waiting import eventually

RULES = """
route: {receiver: chat, group_by: [name], group_wait: 0s, group_interval: 1s}
receivers:
- {name: chat, webhook_configs: [{url: "https://chat.example"}]}
"""
BOTH = RULES.replace("group_interval: 1s}", "group_interval: 1s, routes: [{continue: true}, {receiver: other}]}") + (
    '- {name: other, webhook_configs: [{url: "https://other.example"}]}\n'
)


class Service:
    """The receivers of a test, by their URL. *answer* may raise, or block."""

    def __init__(self) -> None:
        self.received: list[Notification] = []
        self.answer: Callable[[str, Notification], None] = lambda _url, _notification: None
        self.lock = threading.Lock()

    def keys(self, receiver: str = "chat") -> list[str]:
        with self.lock:
            return [each.key for each in self.received if each.receiver == receiver]

    def names(self, receiver: str = "chat") -> list[str]:
        with self.lock:
            return [each.group_labels["name"] for each in self.received if each.receiver == receiver]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    """Replaces the webhook by a service in memory, and shortens the pauses."""
    found = Service()

    class FakeReceiver:
        def __init__(self, url: str) -> None:
            self._url = url

        def send(self, notification: Notification) -> Mapping[str, str]:
            found.answer(self._url, notification)
            with found.lock:
                found.received.append(notification)
            return {"number": str(notification.number)}

        def close(self) -> None:
            pass

    def open_(self: WebhookConfig, _opening: Opening) -> Receiver:
        return FakeReceiver(self.url)

    monkeypatch.setattr(WebhookConfig, "open", open_)
    monkeypatch.setattr(senders_module, "BACKOFF", Backoff(first_s=0.01, last_s=0.05))
    monkeypatch.setattr(change_reader, "BLOCK_MS", 50)
    monkeypatch.setattr(notifier_module, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(notifier_module, "BEAT_EVERY_S", 0.05)
    monkeypatch.setattr(notifier_module, "LOOK_FOR_RULES_S", 0.05)
    return found


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, settings_of(prefix, partitions=2))


@pytest.fixture
def store(bus: Bus) -> Iterator[ObjectStore]:
    with ObjectStore.of(bus) as found:
        yield found


class Workers:
    """Starts notifiers, which are stopped after the test."""

    def __init__(self, bus: Bus, stack: ExitStack) -> None:
        self._bus = bus
        self._stack = stack
        self.changes: list[str] = []
        self.loaded: Callable[[], ParsedRules | None] = lambda: None

    def start(self, name: str = "one", rules: str = RULES, **options: Any) -> Notifier:
        setup = NotifySetup(
            bus=self._bus,
            consumer=name,
            clock=SystemClock(),
            links=lambda _labels: {},
            opening=Opening(environ={}),
            on_change=lambda reason, message: self.changes.append(f"{reason}: {message}"),
            **({"take_over_s": 0.3} | options),
        )
        notifier = Notifier(setup, parse_rules(rules), load=lambda: self.loaded(), beat=lambda: None)
        self._stack.callback(notifier.stop, 30)
        notifier.start()
        return notifier


@pytest.fixture
def workers(bus: Bus) -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers(bus, stack)


def acts(notifier: Notifier) -> bool:
    return bool(notifier.loop_health()[0].gauges["leader"])


def begin(workers: Workers, *names: str, **given: Any) -> Notifier:
    """Start a notifier, and wait until it acts and its positions are stored."""
    notifier = workers.start(*names, **given)
    eventually(lambda: acts(notifier))
    eventually(lambda: notifier.loop_health()[0].gauges.get("lag_events") == 0 and has_positions(workers))
    return notifier


def has_positions(workers: Workers) -> bool:
    bus = workers._bus
    with bus.client() as client:
        return len(NotifyStore(bus=bus, client=client, consumer="test").load().positions) == bus.partitions


def warn(store: ObjectStore, name: str) -> Event:
    """Write a Warning about a pod."""
    about = make_reference(name=name)
    event = make_event(involved_object=about, type="Warning", reason="BackOff")
    return store.objects(EVENT).create(event)


def test_each_warning_is_sent_once(workers: Workers, service: Service, store: ObjectStore) -> None:
    begin(workers)
    for number in range(20):
        warn(store, f"web-{number}")
    eventually(lambda: len(service.names()) == 20)
    assert sorted(service.names()) == sorted(f"web-{number}" for number in range(20))


def test_a_first_start_is_from_now_and_with_since_from_then(
    workers: Workers, service: Service, store: ObjectStore
) -> None:
    warn(store, "old")
    begin(workers)
    warn(store, "new")
    eventually(lambda: service.names() == ["new"])


def test_an_event_of_the_moment_at_which_it_reports_that_it_acts_is_sent(
    workers: Workers, service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(text: str, *_: object) -> None:
        if "acts in term" in text:
            warn(store, "web-0")

    monkeypatch.setattr(log, "info", report)
    workers.start()
    eventually(lambda: service.names() == ["web-0"])


def test_with_since_stored_events_are_notified_too(workers: Workers, service: Service, store: ObjectStore) -> None:
    warn(store, "old")
    workers.start(since=0.0)
    eventually(lambda: service.names() == ["old"])


def test_events_of_the_time_without_a_notifier_are_sent(workers: Workers, service: Service, store: ObjectStore) -> None:
    begin(workers).stop(30)
    warn(store, "web-0")
    begin(workers, "two")
    eventually(lambda: service.names() == ["web-0"])


def test_a_group_that_waits_survives_a_take_over(workers: Workers, service: Service, store: ObjectStore) -> None:
    waiting = RULES.replace("group_wait: 0s", "group_wait: 3s")
    first = begin(workers, rules=waiting)
    warn(store, "web-0")
    eventually(lambda: first.loop_health()[0].gauges["groups"] == 1 and not first.loop_health()[0].gauges["lag_events"])
    kill(first)
    second = workers.start("two", rules=waiting)
    eventually(lambda: acts(second))
    assert service.names() == []
    eventually(lambda: service.names() == ["web-0"])


def test_a_send_that_was_not_confirmed_is_repeated_once_with_the_same_key(
    workers: Workers, service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin(workers)
    sent = threading.Event()

    def kill_after_sending(_url: str, _notification: Notification) -> None:
        if not sent.is_set():
            kill(first)
            sent.set()

    service.answer = kill_after_sending
    warn(store, "web-0")
    eventually(sent.is_set)
    second = workers.start("two")
    eventually(lambda: acts(second))
    eventually(lambda: len(service.keys()) == 2)
    first_key, second_key = service.keys()
    assert first_key == second_key
    warn(store, "web-1")
    eventually(lambda: service.names() == ["web-0", "web-0", "web-1"])


def test_a_worker_that_has_lost_its_lease_stores_nothing(bus: Bus) -> None:
    with bus.client() as one, bus.client() as two:
        first = NotifyStore(bus=bus, client=one, consumer="one")
        second = NotifyStore(bus=bus, client=two, consumer="two")
        first.acquire("a")
        assert first.settle({"a1": b"\x91\xa11"}, {"position:0": "5"}, life_ms=60_000)
        hold = second.acquire("b")
        assert (hold.ours, hold.holder) == (False, "one")
        assert second.acquire("b", "one", hold.beats).term == 2
        assert not first.settle({"a1": b""}, {"position:0": "9"}, life_ms=60_000)
        state = second.load()
        assert (state.positions, state.records) == ({0: 5}, {"a1": b"\x91\xa11"})


def test_a_notifier_that_is_forgotten_leaves_its_term_only(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "MANY", 2)
    with bus.client() as client:
        old = NotifyStore(bus=bus, client=client, consumer="old")
        assert old.acquire("rules").term == 1
        records = {f"a{n}": b"\x91\xa1%d" % n for n in range(5)}
        assert old.settle(records, {"position:0": "7", "expected:one": "text"}, life_ms=60_000)
        assert forget_notifier(bus, client)
        assert read_notifier_status(bus, client) is None
        assert client.hgetall(bus.keys[0].notify) == {b"term": b"2"}
        assert client.keys(bus.keys[0].notify_state + b"*") == []
        assert forget_notifier(bus, client)

        assert not old.settle({"a1": b"\x91\xa11"}, {"position:0": "8"}, life_ms=60_000)
        new = NotifyStore(bus=bus, client=client, consumer="new")
        assert new.acquire("rules").term == 4
        assert new.load().positions == {}


def test_a_receiver_that_hangs_delays_no_other(workers: Workers, service: Service, store: ObjectStore) -> None:
    release = threading.Event()

    def hang(url: str, _notification: Notification) -> None:
        if "other" in url:
            release.wait(60)

    service.answer = hang
    begin(workers, rules=BOTH)
    for number in range(10):
        warn(store, f"web-{number}")
    eventually(lambda: len(service.names()) == 10)
    assert service.names("other") == []
    release.set()
    eventually(lambda: len(service.names("other")) == 10)


def test_a_receiver_that_fails_for_a_while_gets_everything_and_is_reported(
    workers: Workers, service: Service, store: ObjectStore
) -> None:
    broken = True

    def fail(_url: str, _notification: Notification) -> None:
        if broken:
            raise SinkUnreachable("answered 503")

    service.answer = fail
    begin(workers)
    for number in range(5):
        warn(store, f"web-{number}")
    eventually(lambda: any(change.startswith("NotificationFailed: chat: ") for change in workers.changes))
    eventually(lambda: [each.error for each in shown_receiver(workers).failing] == ["answered 503"])
    broken = False
    eventually(lambda: sorted(service.names()) == [f"web-{number}" for number in range(5)])
    eventually(lambda: any(change.startswith("NotificationsResumed: chat: ") for change in workers.changes))
    eventually(lambda: shown_receiver(workers) == ReceiverState("chat"))


def shown_receiver(workers: Workers) -> ReceiverState:
    """Return the only receiver, as another process reads it."""
    with workers._bus.client() as client:
        status = read_notifier_status(workers._bus, client)
    assert status is not None
    (found,) = status.receivers or [ReceiverState("")]
    return found


def test_groups_are_read_with_their_alerts_while_the_notifier_writes(
    workers: Workers, service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(workers)
    for number in range(20):
        warn(store, f"web-{number}")
    eventually(lambda: len(service.names()) == 20)
    monkeypatch.setattr(notifications, "MANY", 3)
    moved, index = 0, workers._bus.keys[0].index_notify

    def execute(*words: Any) -> Any:
        """Write the oldest record again before each page, as a notifier does."""
        nonlocal moved
        index = workers._bus.keys[0].index_notify
        (name,) = client.zrange(index, 0, 0)
        moved += client.zadd(index, {name: client.zscore(index, client.zrange(index, -1, -1)[0]) + 1}, ch=True)
        return original(*words)

    with workers._bus.client() as client:
        original = client.execute_command
        client.zadd(index, {name: at for at, name in enumerate(client.zrange(index, 0, -1))})
        reading: Any = type("Client", (), {"execute_command": staticmethod(execute), "mget": client.mget})
        found, more = read_groups(workers._bus, reading, lambda alert: alert.fires, 100)
    assert moved > 10
    assert sorted(group.labels["name"] for group, _ in found) == sorted(f"web-{number}" for number in range(20))
    assert [[alert.labels["name"] for alert in alerts] for _, alerts in found] == [
        [group.labels["name"]] for group, _ in found
    ]
    assert not more


def test_no_more_alerts_are_read_than_asked_for(workers: Workers, service: Service, store: ObjectStore) -> None:
    begin(workers, rules=RULES.replace("[name]", "[namespace]"))
    for number in range(20):
        warn(store, f"web-{number}")
    eventually(lambda: sum(len(each.alerts) for each in service.received) >= 20)
    with workers._bus.client() as client:
        assert read_groups(workers._bus, client, lambda _alert: True, 19)[1]
        ((_, alerts),), more = read_groups(workers._bus, client, lambda alert: alert.labels["name"] == "web-7", 19)
    assert [alert.labels["name"] for alert in alerts] == ["web-7"]
    assert not more


@pytest.mark.parametrize("error", [UnexpectedReply("answered 500"), Throttled("answered 429", 0.01)], ids=str)
def test_an_outage_with_a_few_accepted_messages_in_between_drops_none(
    workers: Workers, service: Service, store: ObjectStore, error: EventBusError
) -> None:
    calls = Counter[str]()

    def fail(_url: str, _notification: Notification) -> None:
        calls["all"] += 1
        if calls["all"] <= 120 and calls["all"] % 20:
            raise error

    service.answer = fail
    notifier = begin(workers)
    for number in range(20):
        warn(store, f"web-{number}")
    eventually(lambda: sorted(set(service.names())) == sorted(f"web-{number}" for number in range(20)))
    assert calls["all"] > 120
    assert len(service.keys()) == len(set(service.keys()))
    assert notifier.loop_health()[1].counts["dropped"] == 0


def test_a_notification_that_is_refused_does_not_hold_up_others(
    workers: Workers, service: Service, store: ObjectStore
) -> None:
    tries = Counter[str]()

    def refuse(_url: str, notification: Notification) -> None:
        if notification.group_labels["name"] == "web-0":
            raise EventRejected("answered 400")
        if notification.group_labels["name"] == "web-1":
            tries["web-1"] += 1
            raise UnexpectedReply("answered 500")

    service.answer = refuse
    notifier = begin(workers)
    for number in range(4):
        warn(store, f"web-{number}")

    def dropped() -> float:
        return notifier.loop_health()[1].counts["dropped"]

    eventually(lambda: sorted(service.names()) == ["web-2", "web-3"])
    assert dropped() == 1
    for number in range(4, 30):  # others are accepted between its tries
        before = tries["web-1"]
        warn(store, f"web-{number}")
        eventually(lambda: f"web-{number}" in service.names())  # noqa: B023
        eventually(lambda: tries["web-1"] > before or dropped() == 2)  # noqa: B023
    assert dropped() == 2


def test_other_rules_are_used_without_a_restart_and_bad_ones_are_not(
    workers: Workers, service: Service, store: ObjectStore
) -> None:
    notifier = begin(workers)
    files: list[ParsedRules | ConfigError] = [ConfigError("line 1: no"), parse_rules(BOTH)]

    def load() -> ParsedRules | None:
        file = files.pop(0) if files else None
        if isinstance(file, ConfigError):
            raise file
        return file

    workers.loaded = load
    eventually(lambda: not files)
    assert any(change.startswith("RulesRejected: ") for change in workers.changes)
    warn(store, "web-0")
    eventually(lambda: service.names() == ["web-0"] and service.names("other") == ["web-0"])
    assert notifier.loop_health()[0].gauges["rules_ok"] == 1


def test_a_part_that_cannot_be_made_leaves_no_threads_of_the_others(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[list[str]] = []

    def cannot_open(*_args: object, **_named: object) -> Senders:
        threads.append([thread.name for thread in threading.enumerate()])
        raise ConfigError("no such file")

    monkeypatch.setattr(notifier_module, "RETRY_S", 0.01)
    monkeypatch.setattr(notifier_module, "Senders", cannot_open)
    workers.start()
    eventually(lambda: len(threads) > 3)
    assert all(len(names) == len(set(names)) for names in threads)


def test_the_former_content_of_a_rejected_file_is_reported_as_valid_again(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    files: list[ParsedRules | ConfigError] = [ConfigError("line 1: no"), parse_rules(RULES)]

    def load() -> ParsedRules | None:
        file = files.pop(0) if files else None
        if isinstance(file, ConfigError):
            raise file
        return file

    workers.loaded = load
    workers.start()
    eventually(lambda: "RulesRestored: the rules file is valid again" in workers.changes)
    assert "the rules file is valid again" in caplog.text


def test_changes_that_are_gone_are_listed(workers: Workers, service: Service, store: ObjectStore, bus: Bus) -> None:
    begin(workers).stop(30)
    for number in range(20):
        warn(store, f"web-{number}")
    with bus.client() as client:
        for keys in bus.keys:
            client.execute_command("XTRIM", keys.changes_of("events"), "MAXLEN", 1)
    workers.start("two")
    eventually(lambda: sorted(service.names()) == sorted(f"web-{number}" for number in range(20)))


def test_it_waits_while_redis_is_away(service: Service, prefix: str, tmp_path: Path) -> None:
    with own_server(tmp_path) as server, ExitStack() as stack:
        assert server.url
        bus = open_bus(server.url, settings_of(prefix))
        workers = Workers(bus, stack)
        notifier = begin(workers)
        server.stop()
        eventually(lambda: not notifier.loop_health()[0].ready)
        server.start()
        eventually(lambda: notifier.loop_health()[0].ready)
        with ObjectStore.of(bus) as store:
            warn(store, "web-0")
        eventually(lambda: service.names() == ["web-0"])


EXPECT = RULES + ('expect:\n- {name: nightly, matchers: [\'kind="Backup",name="db",reason="Completed"\'], every: 1s}\n')


@pytest.mark.parametrize("step", ["stored", "recorded"])
def test_a_missing_event_is_recorded_once_although_its_notifier_is_killed(
    workers: Workers, service: Service, bus: Bus, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    killed = threading.Event()

    class KilledRecorder(OccurrenceRecorder):
        def flush(self) -> None:
            if killed.is_set() or not self.waiting:
                super().flush()
                return
            if step == "recorded":
                super().flush()
            kill(first)
            killed.set()
            raise SinkUnreachable("dead")

    monkeypatch.setattr(notifier_module, "OccurrenceRecorder", KilledRecorder)
    with sinking(bus):
        first = begin(workers, rules=EXPECT, settle_s=0)
        eventually(killed.is_set)
        second = workers.start("two", EXPECT.replace("every: 1s", "every: 1h"), settle_s=0)
        eventually(lambda: acts(second) and service.names() == ["db"])
        arrive(store)
        eventually(lambda: [each.status for each in list(service.received)] == ["firing", "resolved"])
        eventually(lambda: recorded(store) == [("ExpectedEventArrived", 1), ("ExpectedEventMissing", 1)])
    (state,) = read_expected_of(bus)
    assert (state.reports, state.missing_ms) == ([], 0)


def test_a_deadline_that_passes_without_a_notifier_is_found_by_the_next(
    workers: Workers, service: Service, bus: Bus, store: ObjectStore
) -> None:
    with sinking(bus):
        begin(workers, rules=EXPECT).stop(30)
        (state,) = read_expected_of(bus)
        eventually(lambda: time.time() * 1000 > state.deadline_ms)
        workers.start("two", EXPECT, settle_s=0)
        eventually(lambda: service.names() == ["db"])
        eventually(lambda: recorded(store) == [("ExpectedEventMissing", 1)])


def test_an_event_that_was_recorded_while_redis_was_away_is_not_missing(
    service: Service, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_time, "LONGEST_PAUSE_S", 0.1)
    with own_server(tmp_path) as server, ExitStack() as stack:
        assert server.url
        bus = open_bus(server.url, settings_of(prefix))
        workers = Workers(bus, stack)
        stack.enter_context(sinking(bus))
        notifier = begin(workers, rules=EXPECT)
        (state,) = read_expected_of(bus)
        acting = notifier._acting
        assert acting is not None
        steady_since = acting._time._steady_since
        server.stop()
        eventually(lambda: time.time() * 1000 > state.deadline_ms and not notifier.loop_health()[0].ready)
        server.start()

        eventually(lambda: acting._caught_up_ms > state.deadline_ms)  # before the recorder connects again
        assert acting._time._steady_since > steady_since, "an outage gives recorders time again"
        broadcaster = EventBroadcaster(settings=settings_of(prefix, redis_url=server.url))
        broadcaster.new_recorder("backup").event("default/Backup/db", "Normal", "Completed", "42 GiB")
        eventually(lambda: any(state.last_ms for state in read_expected_of(bus)))
        broadcaster.shutdown()
        with ObjectStore.of(bus) as store:
            assert recorded(store) == []


def test_the_time_up_to_which_changes_are_taken_in_outlives_a_worker(
    workers: Workers, service: Service, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier_module, "STORE_CAUGHT_UP_MS", 0)
    go_on = threading.Event()

    def read_later(*given: Any) -> Sequence[int]:
        assert go_on.wait(60)
        return read_versions(*given)

    monkeypatch.setattr(notifier_module, "read_versions", read_later)
    with bus.client() as client:
        NotifyStore(bus=bus, client=client, consumer="one").acquire("rules")
        client.hset(bus.keys[0].notify, "caught_up", 1_700_000_000_000)
    notifier = workers.start("one", EXPECT)
    eventually(lambda: acts(notifier))
    assert notifier._acting is not None
    assert notifier._acting._caught_up_ms == 1_700_000_000_000
    go_on.set()
    with bus.client() as client:
        store = NotifyStore(bus=bus, client=client, consumer="test")
        eventually(lambda: store.load().caught_up_ms > 1_700_000_000_000)


def test_a_removed_entry_is_deleted_from_redis(workers: Workers, service: Service, bus: Bus) -> None:
    begin(workers, rules=EXPECT)
    assert [state.name for state in read_expected_of(bus)] == ["nightly"]
    files = [parse_rules(RULES)]
    workers.loaded = lambda: files.pop(0) if files else None
    with bus.client() as client:
        eventually(lambda: not [each for each in client.hkeys(bus.keys[0].notify) if each.startswith(b"expected:")])


@contextmanager
def sinking(bus: Bus) -> Iterator[None]:
    """Store recorded events."""
    runner = sink_worker(bus=bus, clock=SystemClock(), block_ms=20)
    runner.start()
    try:
        yield
    finally:
        runner.stop(30)


def arrive(store: ObjectStore) -> None:
    about = make_reference(kind="Backup", name="db")
    store.objects(EVENT).create(make_event(involved_object=about, type="Normal", reason="Completed"))


def recorded(store: ObjectStore) -> list[tuple[str, int]]:
    """Return the reasons and counts of the events about expected events."""
    events = store.objects(EVENT).list().items
    return sorted((each.reason, each.times_seen) for each in events if each.reason.startswith("ExpectedEvent"))


def read_expected_of(bus: Bus) -> list[ExpectedEvent]:
    with bus.client() as client:
        return read_expected(bus, client)


def kill(notifier: Notifier) -> None:
    """Let it die as a process does: nothing more is stored, and the lease is not released."""
    acting = notifier._acting
    if acting is not None:
        acting._store._term = -1  # each call is refused from now on
    notifier._store.acquire = lambda *_: (_ for _ in ()).throw(SinkUnreachable("dead"))  # type: ignore[method-assign]
    notifier._stop.set()


# -- silences and acknowledgements ------------------------------------------------------------------------------------


class SixDaysAgo(SystemClock):
    """A clock that is late."""

    def time_ns(self) -> int:
        return super().time_ns() - 6 * 86_400 * 10**9


def silence(store: ObjectStore, value: str, ends: timedelta = timedelta(hours=1)) -> Silence:
    now = datetime.now(UTC)
    spec = SilenceSpec((SilenceMatcher("name", value, is_regex=True),), min(now, now + ends - KEPT), now + ends, "ann")
    return store.objects(SILENCE).create(Silence(spec=spec))


def test_a_silence_holds_messages_back_from_now_and_its_deletion_sends_them(
    workers: Workers,
    service: Service,
    store: ObjectStore,
) -> None:
    notifier = begin(workers)
    made = silence(store, "quiet-.*")
    eventually(lambda: notifier.loop_health()[0].gauges["silences"] == 1)
    warn(store, "quiet-1")
    warn(store, "loud")
    eventually(lambda: service.names() == ["loud"] and notifier.loop_health()[0].gauges["alerts"] == 2)
    store.objects(SILENCE).delete(made.metadata.name)
    eventually(lambda: service.names() == ["loud", "quiet-1"])


def test_a_silence_that_ends_sends_the_messages_without_another_change(
    workers: Workers,
    service: Service,
    store: ObjectStore,
) -> None:
    notifier = begin(workers)
    made = silence(store, "quiet-.*", timedelta(seconds=3))
    eventually(lambda: notifier.loop_health()[0].gauges["silences"] == 1)
    warn(store, "quiet-1")
    eventually(lambda: service.names() == ["quiet-1"])
    assert made.spec.ends_at is not None
    assert made.spec.ends_at <= datetime.now(UTC)


def test_a_worker_that_takes_over_knows_all_silences_before_it_sends(
    workers: Workers,
    service: Service,
    store: ObjectStore,
    bus: Bus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = RULES.replace("group_wait: 0s", "group_wait: 1s")
    first = begin(workers, rules=waiting)
    warn(store, "quiet-1")
    eventually(lambda: first.loop_health()[0].gauges["groups"] == 1 and not first.loop_health()[0].gauges["lag_events"])
    kill(first)
    for number in range(20):
        silence(store, f"other-{number}")
    silence(store, "quiet-.*")
    with bus.client() as client:
        records = NotifyStore(bus=bus, client=client, consumer="test").load().records
    (group,) = [msgspec.msgpack.decode(packed, type=Group) for name, packed in records.items() if name[0] == "g"]
    eventually(lambda: time.time() * 1000 > group.next_ms)
    monkeypatch.setattr(notifier_module, "TURN", 1)  # a change of a silence in each turn
    begin(workers, "two", rules=waiting)
    warn(store, "loud")
    eventually(lambda: service.names() == ["loud"])


def test_expired_silences_and_unused_acknowledgements_are_deleted_after_five_days(
    workers: Workers,
    service: Service,
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = silence(store, "a", timedelta(minutes=1) - KEPT)
    silence(store, "b", -timedelta(minutes=1) - KEPT)
    old = store.objects(ACKNOWLEDGEMENT)
    monkeypatch.setattr(old, "_clock", SixDaysAgo())
    spec = AcknowledgementSpec(AcknowledgedObject("Pod", "default", "web-0"))
    old.create(Acknowledgement(spec=spec))
    fresh = store.objects(ACKNOWLEDGEMENT).create(Acknowledgement(spec=spec))
    begin(workers)
    eventually(lambda: [each.metadata.name for each in store.objects(SILENCE).list().items] == [kept.metadata.name])
    eventually(
        lambda: [each.metadata.name for each in store.objects(ACKNOWLEDGEMENT).list().items] == [fresh.metadata.name]
    )


def test_an_old_acknowledgement_stays_while_it_is_in_use(
    workers: Workers,
    service: Service,
    store: ObjectStore,
    bus: Bus,
) -> None:
    notifier = begin(workers)
    warn(store, "web-0")
    eventually(lambda: service.names() == ["web-0"])
    used, unused = (
        store.objects(ACKNOWLEDGEMENT).create(
            Acknowledgement(spec=AcknowledgementSpec(AcknowledgedObject("Pod", "default", name)))
        )
        for name in ("web-0", "web-1")
    )
    reader = SilenceReader(bus, SimpleQueue())
    reader.start()
    acting = notifier._acting
    assert acting is not None
    assert reader.delete_expired(datetime.now(UTC) + KEPT - timedelta(hours=1), acting.engine.acknowledges) == 0
    assert reader.delete_expired(datetime.now(UTC) + KEPT + timedelta(hours=1), acting.engine.acknowledges) == 1
    reader.stop()
    assert [each.metadata.name for each in store.objects(ACKNOWLEDGEMENT).list().items] == [used.metadata.name]
    assert unused.metadata.name != used.metadata.name
