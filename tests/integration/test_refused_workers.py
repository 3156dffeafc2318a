"""Workers that lack a right or a function: nobody is harmed, nothing is lost, and they go on when they have it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from eventbus.broker.acl import Role, acl_setuser
from eventbus.broker.build import build, function_name, library
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.health.status import read_status
from eventbus.broker.keys import SINK_GROUP
from eventbus.broker.stream_reader import Delivery, GroupReader
from eventbus.consume import consumer as consumer_module
from eventbus.consume import heartbeat, rebalancer
from eventbus.consume.consumer import Consumer
from eventbus.consume.dead_letter import DeadLetter
from eventbus.consume.group_runner import GroupRunner
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.errors import BusRefused, BusUnavailable
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.util.backoff import Backoff
from eventbus.util.clock import SystemClock
from tests.builders import make_reference
from tests.support.harness import bus_with, own_server, settings_of, stored_events
from tests.waiting import eventually

OBJECTS = [make_reference(name=f"web-{n}") for n in range(16)]
#: More failures than they would take over from each other in, until a good event is buried.
OFTEN = 240
#: A worker that has no processor for so long counts as dead.
TAKE_OVER_S = 1.0
CORRELATE = function_name("correlate_and_store")


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "CHECK_EVERY_S", 0.1)
    monkeypatch.setattr(consumer_module, "LEFT_S", 0.2)
    monkeypatch.setattr(consumer_module, "BEAT_EVERY_S", 0.05)
    monkeypatch.setattr(consumer_module, "BACKOFF", Backoff(first_s=0.03, last_s=0.03))
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.05)
    monkeypatch.setattr(rebalancer, "STILL_S", 1.0)
    monkeypatch.setattr(rebalancer, "EVERY_S", 0.1)
    monkeypatch.setattr(rebalancer, "SOON_S", 0.05)


@contextmanager
def sink_running(bus: Bus) -> Iterator[GroupRunner]:
    runner = sink_worker(bus=bus, clock=SystemClock(), block_ms=20, take_over_s=TAKE_OVER_S)
    runner.start()
    try:
        yield runner
    finally:
        runner.stop()


class Scene:
    """A server, and a bus on it that `old` workers cannot work: *spoil* takes something from them."""

    def __init__(self, url: str, settings: Settings, spoil: str) -> None:
        self.settings = settings
        self.url = url
        self.spoil = spoil
        self.admin: Any = make_client(url)
        self.bus = bus_with(url, settings, burst=1_000_000)
        self._password = secrets.token_hex(16)
        self.permit()
        parts = urlsplit(url)
        user = f"old:{self._password}@{parts.netloc.rpartition('@')[2]}"
        self.old = bus_with(parts._replace(netloc=user).geturl(), settings, burst=1_000_000)

    def permit(self, taken: str = "", given: str = "") -> None:
        words = [*acl_setuser(Role.WORKER, user="old", password=self._password, prefix=self.settings.prefix)]
        changed = [word.replace(taken, given) if taken else word for word in words]
        assert not taken or changed != words
        self.admin.execute_command("ACL", "SETUSER", *changed)

    def take_away(self) -> None:
        match self.spoil:
            case "the right to call the function":
                self.permit(f"+fcall|{CORRELATE}", "+fcall|of_another_build")
            case "keys that no trial has":
                self.permit(":corr:*", ":elsewhere:*")
            case "the function":
                without = library().replace("register('correlate_and_store'", "register('its_former_name'")
                self.admin.function_load(without, replace=True)

    def give_back(self) -> None:
        self.permit()
        self.admin.function_load(library(), replace=True)

    def record(self, n: int) -> None:
        with EventBroadcaster(self.url, settings=self.settings) as broadcaster:
            recorder = broadcaster.new_recorder("c")
            for i in range(n):
                recorder.eventf(OBJECTS[i % 16], "Normal", "Counted", "%d", i % 7)
                if i % 10 == 9:
                    assert broadcaster.flush(60)
            assert broadcaster.flush(60)

    @property
    def counted(self) -> int:
        return sum(event.count for event in stored_events(self.bus))

    @property
    def deaths(self) -> list[Any]:
        return [self.admin.hgetall(keys.attempts + b"sink") for keys in self.bus.keys]

    @property
    def pending(self) -> int:
        infos: Any = [self.admin.xinfo_groups(keys.incoming) for keys in self.bus.keys]
        return sum(info["pending"] for some in infos for info in some)

    @property
    def shares(self) -> list[int]:
        """How many partitions each living worker works."""
        (group,) = [found for found in read_status(self.bus, self.admin).groups if found.name == SINK_GROUP]
        return sorted(len(worker.partitions) for worker in group.workers if worker.alive)


@pytest.fixture
def scene(request: pytest.FixtureRequest, short_path: Path, prefix: str) -> Iterator[Scene]:
    partitions, spoil = request.param
    with own_server(short_path) as server:
        made = Scene(server.url or "", settings_of(prefix, partitions=partitions), spoil)
        yield made
        made.admin.close()


RIGHT, KEYS, FUNCTION = "the right to call the function", "keys that no trial has", "the function"


def failures(runner: GroupRunner) -> float:
    return max((health.counts["failures"] for health in runner.loop_health()), default=0)


@pytest.mark.parametrize("scene", [(1, KEYS), (1, FUNCTION)], indirect=True, ids=str)
def test_workers_that_lose_what_they_need_count_as_no_deaths_and_bury_nothing(scene: Scene) -> None:
    with sink_running(scene.old) as one, sink_running(scene.old) as two:
        scene.record(20)
        eventually(lambda: scene.counted == 20)
        scene.take_away()
        scene.record(10)  # one batch: who holds nothing would take it over
        eventually(lambda: failures(one) + failures(two) > OFTEN)
        assert list(DeadLetter(scene.bus, scene.admin).list()) == []
        eventually(lambda: scene.deaths == [{}])  # one is counted for a moment, and taken back
        scene.give_back()
        eventually(lambda: scene.counted == 30)
        eventually(lambda: scene.pending == 0)
        assert scene.deaths == [{}]


@pytest.mark.parametrize("scene", [(1, RIGHT), (1, FUNCTION)], indirect=True, ids=str)
def test_a_worker_that_lacks_something_is_given_nothing_and_says_so_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with sink_running(scene.old) as old:
        eventually(lambda: old.loop_health()[0].ready)
        scene.take_away()
        scene.record(100)
        eventually(lambda: failures(old) > OFTEN)
        said = [line for line in caplog.messages if line.startswith("group sink")]
        (waits,) = [line for line in said if "waits" in line]
        if scene.spoil == RIGHT:
            assert f"build {build()}" in waits
            assert "eventbus acl --add" in waits
        if scene.spoil == FUNCTION:
            assert f"build {build()}" in waits
            assert "eventbus functions load" in waits
        assert not any("goes on" in line for line in said)
        held = scene.pending  # by nobody: it has left, and the name alone stays
        assert scene.admin.hgetall(scene.bus.keys[0].workers) == {}
        scene.record(50)
        before = failures(old)
        eventually(lambda: failures(old) > before + 10)
        assert scene.pending == held
        scene.give_back()
        eventually(lambda: scene.counted == 150)


@pytest.mark.parametrize("scene", [(1, RIGHT)], indirect=True, ids=str)
def test_what_a_worker_without_rights_holds_is_worked_by_one_that_has_them(scene: Scene) -> None:
    scene.take_away()
    with sink_running(scene.old) as old:
        eventually(lambda: failures(old) > 2)
        with sink_running(scene.bus):
            scene.record(100)
            eventually(lambda: scene.counted == 100)
        assert scene.deaths == [{}]


@pytest.mark.parametrize("scene", [(4, RIGHT)], indirect=True, ids=str)
def test_the_others_get_the_share_of_a_worker_that_lacks_something_until_it_has_it(scene: Scene) -> None:
    with sink_running(scene.old), sink_running(scene.bus):
        eventually(lambda: scene.shares == [2, 2])
        scene.take_away()
        scene.record(160)
        eventually(lambda: scene.counted == 160)
        eventually(lambda: scene.pending == 0)
        eventually(lambda: scene.shares == [4])
        scene.give_back()
        eventually(lambda: scene.shares == [2, 2])
        scene.record(160)
        eventually(lambda: scene.counted == 320)
        assert scene.deaths == [{}] * 4


def test_what_redis_gives_to_an_abandoned_read_of_a_worker_that_withdraws_stays_pending(
    embedded_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(prefix)
    bus = bus_with(embedded_url, settings)
    keys = bus.keys[0]
    consumer = Consumer(
        bus=bus,
        partition=0,
        group=SINK_GROUP,
        name="w",
        handle=lambda _reader, _deliveries: (),
        handle_alone=lambda *_given: True,
        clock=SystemClock(),
    )
    with bus.client() as client, EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        find: Any = consumer._client.xpending_range

        def find_and_deliver(*given: Any, **named: Any) -> Any:
            found = find(*given, **named)
            broadcaster.new_recorder("c").event(OBJECTS[0], "Normal", "Tried", "m")
            assert broadcaster.flush(60)
            # Redis does this for a read whose lost connection it has not noticed.
            assert client.xreadgroup(SINK_GROUP, "w", {keys.incoming: ">"})
            return found

        def refuse() -> bool:
            monkeypatch.setattr(consumer._client, "xpending_range", find_and_deliver)
            raise BusRefused("no permission")

        try:
            assert consumer.begin() == 0
            consumer.fail(BusUnavailable("no reply"))
            monkeypatch.setattr(consumer._reader, "open", refuse)
            consumer.begin()
            assert consumer.withdrawn
            monkeypatch.undo()
            if not client.xinfo_groups(keys.incoming)[0]["entries-read"]:
                find_and_deliver(keys.incoming, SINK_GROUP, "-", "+", 1)
            assert client.xpending(keys.incoming, SINK_GROUP)["pending"] == 1
        finally:
            consumer.abandon()


def test_a_group_that_goes_again_and_again_is_not_said_to_be_another_versions(
    embedded_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    bus = bus_with(embedded_url, settings_of(prefix))
    with bus.client() as client:

        def trial(reader: GroupReader) -> None:
            client.xgroup_destroy(reader.keys.incoming, reader.group)
            reader.own_pending()

        def handle(_reader: GroupReader, _deliveries: Sequence[Delivery]) -> Sequence[bytes]:
            return ()

        consumer = Consumer(
            bus=bus,
            partition=0,
            group=SINK_GROUP,
            name="w",
            handle=handle,
            handle_alone=lambda *_given: True,
            clock=SystemClock(),
            trial=trial,
        )
        try:
            assert [consumer.begin() > 0 for _ in range(3)] == [True] * 3
        finally:
            consumer.abandon()
    assert sum("waits" in line for line in caplog.messages) == 1
    assert "another version" not in caplog.text
