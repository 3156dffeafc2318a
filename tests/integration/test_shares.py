"""Shares of partitions: order at a hand-over, handlers that take their time, and what is destroyed meanwhile."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.groups import delete_group, share_group
from eventbus.broker.health import status
from eventbus.broker.health.status import read_status
from eventbus.broker.keys import partition_of
from eventbus.consume import consumer, heartbeat, poller, rebalancer
from eventbus.consume.poller import POLLERS
from eventbus.consume.watchers import GroupWatcher
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.model.event import Event
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import FullBuffer, Settings
from eventbus.util.clock import SystemClock
from tests.builders import make_reference
from tests.support.harness import settings_of
from tests.waiting import PATIENCE_S, eventually

PARTITIONS = 8
OBJECTS = [make_reference(name=f"web-{n}") for n in range(24)]


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks at the others about ten times as often."""
    monkeypatch.setattr(rebalancer, "EVERY_S", 0.1)
    monkeypatch.setattr(rebalancer, "SOON_S", 0.05)
    monkeypatch.setattr(rebalancer, "HEARTBEAT_S", 0.3)
    monkeypatch.setattr(poller, "HAND_OVER_CHECK_S", 0.05)
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.1)
    monkeypatch.setattr(consumer, "BEAT_EVERY_S", 0.1)
    monkeypatch.setattr(consumer, "CHECK_EVERY_S", 0.2)
    monkeypatch.setattr(consumer, "LEFT_S", 0.2)
    monkeypatch.setattr(status, "HEARTBEAT_S", 0.3)


@pytest.fixture
def settings(prefix: str) -> Settings:
    # a machine too busy to send what the load says makes the load wait
    return settings_of(prefix, partitions=PARTITIONS, buffer_full=FullBuffer.WAIT, buffer_wait_s=3_600)


@pytest.fixture
def broadcaster(embedded_url: str, settings: Settings, bus: Bus) -> Iterator[EventBroadcaster]:
    with EventBroadcaster(embedded_url, settings=settings) as made:
        yield made


class Load(threading.Thread):
    """Says 0, 1, 2 … of every object, until it is told to end."""

    def __init__(self, broadcaster: EventBroadcaster) -> None:
        super().__init__(daemon=True)
        self._recorder = broadcaster.new_recorder("load")
        self._end = threading.Event()
        self.said = 0

    def run(self) -> None:
        while not self._end.wait(0.05):
            for about in OBJECTS:
                self._recorder.event(about, "Normal", "Counted", str(self.said))
            self.said += 1

    def go_on(self) -> None:
        before = self.said
        eventually(lambda: self.said > before + 20)

    def end(self) -> None:
        self._end.set()
        self.join(60)


class Heard:
    """What handlers were called with, in order, by object."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = defaultdict(list)

    def __call__(self, event: Event) -> None:
        self.numbers[event.involved_object.name].append(int(event.message))

    @property
    def least(self) -> int:
        return min(len(self.numbers[about.name]) for about in OBJECTS)


def shares(bus: Bus, group: str) -> list[int]:
    """How many partitions each living worker of *group* works."""
    with bus.client() as client:
        groups = {found.name: found for found in read_status(bus, client).groups}
    return sorted(len(worker.partitions) for worker in groups[group].workers if worker.alive)


def test_every_object_keeps_its_order_while_workers_come_and_all_is_heard_once_while_they_go(
    broadcaster: EventBroadcaster, bus: Bus
) -> None:
    """Who is stopped leaves what it has read and not handled: that comes behind what the others read meanwhile."""
    heard = Heard()
    load = Load(broadcaster)
    first = broadcaster.start_event_watcher(heard, group="ordered")
    load.start()
    second, third = (broadcaster.start_event_watcher(heard, group="ordered") for _ in range(2))
    eventually(lambda: shares(bus, "ordered") == [2, 3, 3])
    load.go_on()
    before = {name: list(found) for name, found in heard.numbers.items()}
    first.stop()
    eventually(lambda: shares(bus, "ordered") == [4, 4])
    load.go_on()
    second.stop()
    eventually(lambda: shares(bus, "ordered") == [8])
    load.end()
    eventually(lambda: heard.least == load.said)
    third.stop()
    for about in OBJECTS:
        assert before[about.name] == list(range(len(before[about.name])))
        assert sorted(heard.numbers[about.name]) == list(range(load.said))
    with bus.client() as client:
        assert [client.hgetall(keys.workers) for keys in bus.keys] == [{}] * PARTITIONS
        assert [client.xinfo_consumers(keys.incoming, "ordered") for keys in bus.keys] == [[]] * PARTITIONS


def test_more_workers_than_partitions_share_them(broadcaster: EventBroadcaster, bus: Bus) -> None:
    heard = Heard()
    watchers = [broadcaster.start_event_watcher(heard, group="crowd") for _ in range(PARTITIONS + 3)]
    load = Load(broadcaster)
    load.start()
    eventually(lambda: shares(bus, "crowd") == [1] * len(watchers))
    load.go_on()
    load.end()
    eventually(lambda: heard.least == load.said)
    for watcher in watchers:
        watcher.stop()
    assert {name: sorted(found) for name, found in heard.numbers.items()} == {
        about.name: list(range(load.said)) for about in OBJECTS
    }


def test_a_handler_that_takes_its_time_stops_neither_heartbeats_nor_the_other_pollers(
    broadcaster: EventBroadcaster, bus: Bus
) -> None:
    slow, *others = OBJECTS
    number = partition_of(slow, PARTITIONS) % POLLERS
    free = [about.name for about in others if partition_of(about, PARTITIONS) % POLLERS != number]
    go, heard = threading.Event(), Heard()

    def handle(event: Event) -> None:
        if event.involved_object.name == slow.name:
            assert go.wait(2 * PATIENCE_S)  # longer than what is awaited meanwhile
        heard(event)

    watcher = broadcaster.start_event_watcher(handle, group="slow")
    eventually(lambda: shares(bus, "slow") == [PARTITIONS])
    recorder = broadcaster.new_recorder("load")
    for about in OBJECTS:
        recorder.event(about, "Normal", "Counted", "0")
    eventually(lambda: all(heard.numbers[name] for name in free))
    before = beats(bus, "slow")
    eventually(lambda: all(count > before[name] + 2 for name, count in beats(bus, "slow").items()))
    assert not heard.numbers[slow.name]
    go.set()
    eventually(lambda: heard.least == 1)
    watcher.stop()


def beats(bus: Bus, group: str) -> dict[str, int]:
    """The counter of each partition, and that of the member."""
    found: dict[str, int] = {}
    with bus.client() as client:
        for keys in bus.keys:
            for field, count in client.hgetall(keys.workers).items():
                what = field.decode().partition("/")[0]
                if what in (group, share_group(group)):
                    found[f"{keys.partition} {what}"] = int(count)
    assert len(found) == PARTITIONS + 1
    return found


def test_what_is_destroyed_is_made_anew_and_nobody_else_waits(
    broadcaster: EventBroadcaster, bus: Bus, settings: Settings
) -> None:
    spoken_of = {partition_of(about, PARTITIONS) for about in OBJECTS}
    assert {1, 2} < spoken_of
    runner = sink_worker(bus=bus, clock=SystemClock(), block_ms=50)
    runner.start()
    load = Load(broadcaster)
    load.start()
    load.go_on()
    with bus.client() as client:
        client.delete(bus.keys[1].incoming)
        client.xgroup_destroy(bus.keys[2].incoming, "sink")
        counted = {number: counted_on(client, bus, number) for number in spoken_of}
        eventually(lambda: all(counted_on(client, bus, number) > counted[number] for number in spoken_of))
    load.end()
    runner.stop()


def counted_on(client: Any, bus: Bus, partition: int) -> int:
    return int(client.hget(bus.keys[partition].meta, "events") or 0)


def test_a_group_that_begins_now_has_all_that_is_said_from_then_on(broadcaster: EventBroadcaster, bus: Bus) -> None:
    """Also on partitions that become another worker's before he has read them."""
    recorder = broadcaster.new_recorder("load")
    for about in OBJECTS:
        recorder.event(about, "Normal", "Counted", "-1")
    assert broadcaster.flush(60)
    heard = Heard()
    first, second = (broadcaster.start_event_watcher(heard, group="from-now") for _ in range(2))
    for about in OBJECTS:
        recorder.event(about, "Normal", "Counted", "0")
    eventually(lambda: heard.least == 1)
    assert {about.name: heard.numbers[about.name] for about in OBJECTS} == {about.name: [0] for about in OBJECTS}
    first.stop()
    second.stop()


def test_a_deleted_group_leaves_no_member_behind(broadcaster: EventBroadcaster, bus: Bus) -> None:
    watcher = broadcaster.start_event_watcher(lambda _event: None, group="gone")
    eventually(lambda: shares(bus, "gone") == [PARTITIONS])
    with bus.client() as client:
        client.hset(bus.keys[0].workers, f"{share_group('gone')}/died", "7")
        watcher.stop()
        eventually(lambda: getattr(watcher, "ended", False))
        delete_group(bus, client, "gone")
        assert not client.hgetall(bus.keys[0].workers)


def test_a_worker_stops_in_no_more_than_a_read(embedded_url: str, prefix: str) -> None:
    bus = open_bus(embedded_url, settings_of(prefix, partitions=PARTITIONS, worker_block_ms=60_000))
    watcher = GroupWatcher(
        bus=bus,
        group="quick",
        handler=lambda _event: None,
        clock=SystemClock(),
        policy=GroupPolicy.WAIT,
        start="0",
        block_ms=200,
    )
    watcher.start()
    eventually(lambda: shares(bus, "quick") == [PARTITIONS])
    watcher.stop(59)  # one that waits for the end of its block would not be done
    assert watcher.ended
