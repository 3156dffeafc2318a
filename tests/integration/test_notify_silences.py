"""The notifier with silences and acknowledgements in a real Redis: in force in time, also after a take-over."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue

import msgspec
import pytest

from eventbus.broker.bus import Bus
from eventbus.broker.notifications import NotifyStore
from eventbus.model.kinds import ACKNOWLEDGEMENT, SILENCE
from eventbus.model.objects.silence import (
    AcknowledgedObject,
    Acknowledgement,
    AcknowledgementSpec,
    Silence,
    SilenceMatcher,
    SilenceSpec,
)
from eventbus.notify import notifier as notifier_module
from eventbus.notify.engine import Group
from eventbus.notify.silence_reader import KEPT, SilenceReader
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock
from tests.integration.test_notifier import (  # noqa: F401 - fixtures
    RULES,
    Service,
    Workers,
    acts,
    begin,
    bus,
    kill,
    service,
    store,
    warn,
    workers,
)
from tests.waiting import eventually


class SixDaysAgo(SystemClock):
    """A clock that is late."""

    def time_ns(self) -> int:
        return super().time_ns() - 6 * 86_400 * 10**9


def silence(store: ObjectStore, value: str, ends: timedelta = timedelta(hours=1)) -> Silence:  # noqa: F811
    now = datetime.now(UTC)
    spec = SilenceSpec((SilenceMatcher("name", value, is_regex=True),), min(now, now + ends - KEPT), now + ends, "ann")
    return store.objects(SILENCE).create(Silence(spec=spec))


def test_a_silence_holds_messages_back_from_now_and_its_deletion_sends_them(
    workers: Workers,  # noqa: F811
    service: Service,  # noqa: F811
    store: ObjectStore,  # noqa: F811
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
    workers: Workers,  # noqa: F811
    service: Service,  # noqa: F811
    store: ObjectStore,  # noqa: F811
) -> None:
    notifier = begin(workers)
    made = silence(store, "quiet-.*", timedelta(seconds=3))
    eventually(lambda: notifier.loop_health()[0].gauges["silences"] == 1)
    warn(store, "quiet-1")
    eventually(lambda: service.names() == ["quiet-1"])
    assert made.spec.ends_at is not None
    assert made.spec.ends_at <= datetime.now(UTC)


def test_a_worker_that_takes_over_knows_all_silences_before_it_sends(
    workers: Workers,  # noqa: F811
    service: Service,  # noqa: F811
    store: ObjectStore,  # noqa: F811
    bus: Bus,  # noqa: F811
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
    workers: Workers,  # noqa: F811
    service: Service,  # noqa: F811
    store: ObjectStore,  # noqa: F811
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
    workers: Workers,  # noqa: F811
    service: Service,  # noqa: F811
    store: ObjectStore,  # noqa: F811
    bus: Bus,  # noqa: F811
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
