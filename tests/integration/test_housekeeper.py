"""housekeeper.py against a real server: it trims and sweeps by itself, as many of it as there are, and never ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus.broker import function_library
from eventbus.broker.exports import ExportStore
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.health.export_status import export_status
from eventbus.broker.keys import Keys
from eventbus.broker.transport import PublishStatus
from eventbus.consume import housekeeper as module
from eventbus.consume.housekeeper import SWEEP_CANDIDATES, Housekeeper
from eventbus.export.rules import ExportOptions
from eventbus.export.worker import ExportRunner
from eventbus.model.event import Event
from eventbus.settings import MIB
from eventbus.testing.clock import FakeClock
from eventbus.util.clock import SystemClock
from tests.builders import make_event
from tests.functions.partition import Partition
from tests.functions.servers import kill, own_server
from tests.support.exporting import MemorySink
from tests.support.harness import bus_with, settings_of
from tests.waiting import eventually

HOUR_MS = 3_600_000


def in_ms(ms: int) -> int:
    return time.time_ns() // 1_000_000 + ms


def distinct(n: int) -> list[Event]:
    return [make_event(message=f"message {i}") for i in range(n)]


def housekeeper_of(partition: Partition, **more: Any) -> Housekeeper:
    return Housekeeper(bus=partition.bus, clock=SystemClock(), **more)


@pytest.fixture
def make(any_server_url: str, prefix: str) -> Iterator[Callable[..., Partition]]:
    made: list[Partition] = []

    def make_partition(**options: Any) -> Partition:
        given = {"burst": 1_000, "max_events": 1_000} | options
        made.append(Partition(any_server_url, prefix, **given))
        return made[-1]

    yield make_partition
    for partition in made:
        partition.close()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round every 10 ms instead of every second."""
    monkeypatch.setattr(module, "EVERY_S", 0.01)


# -- sweeping -------------------------------------------------------------------------------------------------------


def test_what_is_due_expires_however_much_there_is(make: Callable[..., Partition]) -> None:
    partition = make()
    events = distinct(3 * SWEEP_CANDIDATES + 7)
    for start in range(0, len(events), 60):
        partition.record(*events[start : start + 60])

    assert housekeeper_of(partition).sweep(partition.admin, 0, in_ms(HOUR_MS)) == len(events)

    assert partition.stored() == []
    assert partition.letters().count("D") == len(events)


def test_beyond_max_stored_it_evicts_what_is_too_much(make: Callable[..., Partition]) -> None:
    partition = make(max_stored=100)
    for start in range(0, 250, 50):
        partition.record(*distinct(250)[start : start + 50])
    assert housekeeper_of(partition).sweep(partition.admin, 0) == 150
    assert len(partition.stored()) == 100
    assert housekeeper_of(partition).sweep(partition.admin, 0) == 0


def test_beyond_max_records_it_forgets_the_oldest_counts(make: Callable[..., Partition]) -> None:
    partition = make(max_records=100)
    for start in range(0, 250, 50):
        partition.record(*distinct(250)[start : start + 50])
    keeper = housekeeper_of(partition)
    keeper.sweep(partition.admin, 0, in_ms(HOUR_MS))  # expires them all, and may begin to forget

    eventually(lambda: not keeper.sweep(partition.admin, 0))

    assert len(partition.answers()) == 100


def test_several_at_once_take_each_out_once(make: Callable[..., Partition]) -> None:
    partition = make()
    for start in range(0, 500, 50):
        partition.record(*distinct(500)[start : start + 50])
    swept: list[int] = []

    def sweep() -> None:
        client = partition.bus.client()
        swept.append(housekeeper_of(partition).sweep(client, 0, in_ms(HOUR_MS)))
        client.close()

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    housekeeper_of(partition).sweep(partition.admin, 0, in_ms(HOUR_MS))

    assert partition.stored() == []
    assert partition.letters().count("D") == 500
    assert partition.meta("expired") == 500
    assert len(swept) == 4


# -- exports ----------------------------------------------------------------------------------------------------------


def test_an_export_without_a_worker_for_as_long_as_counts_are_kept_is_forgotten(
    make: Callable[..., Partition], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "EXPORTS_EVERY_S", 0)
    partition = make(record_ttl_s=8 * 86_400)
    for name, silent_ms in (("tried-once", 193 * HOUR_MS), ("away", 191 * HOUR_MS), ("alive", 0)):
        export = ExportStore(bus=partition.bus, client=partition.admin, partition=0, sink=name, consumer="c")
        assert export.acquire().ours
        if silent_ms:
            partition.admin.hset(partition.keys.export + name.encode(), "sign_ms", in_ms(-silent_ms))

    assert housekeeper_of(partition).forget_exports(partition.admin, 0) == 1
    assert [sink.name for sink in export_status(partition.bus, partition.admin)] == ["alive", "away"]
    assert not partition.admin.exists(partition.keys.export + b"tried-once")
    assert "export tried-once had no worker for 192 hours, and is forgotten" in caplog.text


def test_exports_are_looked_at_once_an_hour(make: Callable[..., Partition], monkeypatch: pytest.MonkeyPatch) -> None:
    partition, clock = make(), FakeClock()
    housekeeper = Housekeeper(bus=partition.bus, clock=clock)
    looked: list[bytes] = []

    def look(_: Any, keys: Keys, **__: Any) -> list[str]:
        looked.append(keys.meta)
        return []

    monkeypatch.setattr(module, "forget_silent_sinks", look)
    for _ in range(3):
        housekeeper.forget_exports(partition.admin, 0)
    assert len(looked) <= 1  # where its hour began is left to chance
    clock.advance(2 * module.EXPORTS_EVERY_S)
    before = len(looked)
    for _ in range(3):
        housekeeper.forget_exports(partition.admin, 0)
    assert len(looked) == before + 1


# -- trimming -------------------------------------------------------------------------------------------------------


def test_a_group_that_was_moved_on_is_told_with_what_it_lost(
    make: Callable[..., Partition], caplog: pytest.LogCaptureFixture
) -> None:
    partition = make(incoming_bytes=MIB)
    partition.call.open("", "log", GroupPolicy.DROP, "0")
    for i in range(10):
        assert partition.publish_raw(1 + 3 * i, 3, b"x" * 100_000).status is PublishStatus.OK
    told: list[tuple[str, str]] = []

    keeper = housekeeper_of(partition, on_loss=lambda reason, message: told.append((reason, message)))
    keeper.trim(partition.admin, 0)
    keeper.trim(partition.admin, 0)

    ((reason, message),) = told
    assert reason == "GroupReleased"
    assert "group log held the stream too long on partition 0: 15 events lost" in message
    assert [record.getMessage() for record in caplog.records] == [message]


def test_the_worker_of_an_external_sink_tells_what_its_trim_found(make: Callable[..., Partition], often: None) -> None:
    partition = make(incoming_bytes=MIB)
    partition.call.open("", "log", GroupPolicy.DROP, "0")
    for i in range(10):
        assert partition.publish_raw(1 + 3 * i, 3, b"x" * 100_000).status is PublishStatus.OK
    told: list[tuple[str, str]] = []
    worker = ExportRunner(
        bus=partition.bus,
        make_sink=MemorySink,
        clock=SystemClock(),
        options=ExportOptions(),
        block_ms=20,
        on_change=lambda reason, message: told.append((reason, message)),
    )

    worker.start()
    try:
        eventually(lambda: told)
    finally:
        worker.stop()

    ((reason, message),) = told
    assert reason == "GroupReleased"
    assert "15 events lost to it" in message


# -- the thread -----------------------------------------------------------------------------------------------------


def test_it_works_by_itself_until_it_is_stopped(make: Callable[..., Partition], often: None) -> None:
    partition = make(event_ttl_s=1)
    partition.record(*distinct(3))
    keeper = housekeeper_of(partition)
    keeper.start()
    try:
        eventually(lambda: partition.admin.xlen(partition.keys.incoming) == 0)
        eventually(lambda: partition.stored() == [])
    finally:
        keeper.stop()
    partition.record(*distinct(3))
    assert partition.admin.xlen(partition.keys.incoming) > 0
    assert not keeper._thread.is_alive()


def test_it_can_be_stopped_without_having_been_started(make: Callable[..., Partition]) -> None:
    housekeeper_of(make()).stop()


@pytest.mark.parametrize(
    "fault", ["the server is killed", "the functions are gone for a while", "a key of another type"]
)
def test_it_goes_on_after(short_path: Path, prefix: str, often: None, fault: str) -> None:
    with own_server(short_path) as server:
        partition = Partition(str(server.url), prefix, burst=1_000)
        keeper = housekeeper_of(partition)
        keeper.start()
        try:
            if fault == "the server is killed":
                kill(server)
            elif fault == "the functions are gone for a while":
                partition.admin.function_flush()
                time.sleep(0.1)
                function_library.load(partition.admin)
            else:
                partition.admin.set(partition.keys.dead, "not a stream")
                time.sleep(0.1)
                partition.admin.delete(partition.keys.dead)
            partition.record(*distinct(3))
            eventually(lambda: partition.admin.xlen(partition.keys.incoming) == 0)
        finally:
            keeper.stop()
            partition.close()


def test_a_partition_that_is_spoiled_holds_up_no_other_and_is_told_once(
    embedded_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    bus = bus_with(embedded_url, settings_of(prefix, partitions=2))
    housekeeper = Housekeeper(bus=bus, clock=SystemClock())
    with bus.client() as client:
        client.set(bus.keys[0].index_refresh, "x")
        for _ in range(2):
            assert not housekeeper._keep(client, 0)
        assert housekeeper._waiting.keys() == {(0, "refresh")}
        assert not housekeeper._keep(client, 1)
        client.delete(bus.keys[0].index_refresh)
        assert not housekeeper._keep(client, 0)
    said = [record.getMessage() for record in caplog.records if "housekeeping of partition 0" in record.getMessage()]
    assert ["waits, refresh" in said[0], "goes on: refresh" in said[1], len(said)] == [True, True, 2]
