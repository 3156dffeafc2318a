"""The resource version: one more for each change, never given twice, and a hole wherever changes were lost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from eventbus.broker import build as build_module
from eventbus.broker.build import library
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.functions import GroupPolicy
from eventbus.errors import Expired
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.store.changes import ChangeReader
from eventbus.store.event_storage import EventStorage
from eventbus.store.storage import Storage
from tests.builders import make_event
from tests.functions.partition import Partition
from tests.functions.servers import binaries, kill, own_server
from tests.thin import one

Fault = Callable[[Partition, EmbeddedServer], None]
HOUR = 3_600_000
TEN_SECONDS_US = 10_000_000


@pytest.fixture(scope="module", params=one([pytest.param(found, id=name) for name, found in binaries().items()]))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with own_server(tmp_path_factory.mktemp("v"), request.param) as started:
        yield started


@pytest.fixture
def partition(server: EmbeddedServer, prefix: str) -> Iterator[Partition]:
    made = Partition(str(server.url), prefix, burst=1_000)
    yield made
    made.close()


def versions(partition: Partition) -> list[int]:
    return [version for _, version, _ in partition.changes()]


def test_the_first_is_the_servers_time_in_microseconds(partition: Partition) -> None:
    assert abs(partition.version() - time.time() * 1_000_000) < 60_000_000
    partition.record(make_event())
    assert versions(partition) == [partition.version()]


def test_each_change_is_one_more_whoever_makes_it(partition: Partition) -> None:
    seeded = partition.version()
    partition.record(make_event(), make_event(message="two"), make_event(message="three"))
    partition.record(make_event())
    first, second, *_ = partition.answers()
    partition.call.remove_event(partition.options, first)
    partition.expire(in_ms=HOUR, keys=[second])
    partition.record(make_event())

    found = versions(partition)
    assert found == list(range(seeded + 1, seeded + 1 + len(found)))
    assert len(found) == 7
    assert partition.version() == found[-1]


def test_calls_that_change_nothing_use_none_up(partition: Partition) -> None:
    partition.record(make_event())
    before = partition.version()
    partition.expire()
    partition.call.trim(partition.options)
    partition.call.open("f" * 16, "log", GroupPolicy.DROP, "$")
    partition.call.remove_event(partition.options, b"0" * 14)
    assert partition.version() == before


def flush(partition: Partition, server: EmbeddedServer) -> None:
    partition.admin.flushall()
    partition.forget_producers()
    partition.bus.open_partition(partition.admin, 0)


def delete_version(partition: Partition, server: EmbeddedServer) -> None:
    partition.admin.delete(partition.keys.version_of("events"))


def delete_version_and_open(partition: Partition, server: EmbeddedServer) -> None:
    partition.admin.delete(partition.keys.version_of("events"))
    partition.bus.open_partition(partition.admin, 0)


def delete_changes(partition: Partition, server: EmbeddedServer) -> None:
    partition.admin.delete(partition.keys.changes_of("events"), partition.keys.version_of("events"))


def kill_and_start(partition: Partition, server: EmbeddedServer) -> None:
    kill(server)


def demote_and_promote(partition: Partition, server: EmbeddedServer) -> None:
    """The functions keep their memory; what the primary in between has written and not replicated is lost."""
    partition.admin.replicaof("127.0.0.1", 1)
    partition.admin.replicaof("NO", "ONE")
    # The answer of INFO is kept for 100 ms, in which no server is found to be dead, and another one made the primary.
    time.sleep(0.11)


def load_again(partition: Partition, server: EmbeddedServer) -> None:
    partition.admin.function_load(library(), replace=True)


FAULTS: dict[str, Fault] = {
    "FLUSHALL": flush,
    "kill -9 and start": kill_and_start,
    "version deleted": delete_version,
    "version deleted and the bus opened": delete_version_and_open,
    "changes and version deleted": delete_changes,
    "demoted and promoted again": demote_and_promote,
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_none_is_given_twice_and_none_is_lower_than_before(
    partition: Partition, server: EmbeddedServer, fault: Fault
) -> None:
    partition.record(make_event(), make_event(message="two"))
    last = versions(partition)[-1]

    fault(partition, server)
    partition.record(make_event(message="three"), make_event(message="four"))

    three, four = versions(partition)[-2:]
    assert last < three == four - 1


def read_changes(partition: Partition, after: int) -> ChangeReader[Event]:
    storage: Storage[Event] = EventStorage(kind=EVENT, bus=partition.bus, client=partition.admin)
    return ChangeReader(bus=partition.bus, client=partition.admin, storage=storage, partition=0, after=after)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_who_watched_before_is_told_to_list_again(partition: Partition, server: EmbeddedServer, fault: Fault) -> None:
    partition.record(make_event())
    last = versions(partition)[-1]

    fault(partition, server)
    partition.record(make_event(message="two"))

    reader = read_changes(partition, last)
    with pytest.raises(Expired):
        reader.read(1)
    # and who lists again loses nothing from there on
    reader.after = partition.version()
    partition.record(make_event(message="three"))
    assert [change.object.message for change in reader.read(1)] == ["three"]


def test_a_promoted_server_does_not_go_on_with_a_line_of_checkpoints_that_it_had_written_before(
    partition: Partition, server: EmbeddedServer
) -> None:
    assert partition.call.checkpoint((7, 8), whole=True)
    assert partition.call.checkpoint((7, 9)), "the control: nothing has happened yet"
    demote_and_promote(partition, server)
    assert partition.call.checkpoint((7, 9)) is None


@pytest.mark.parametrize("loaded", [False, True], ids=["", "the library is loaded anew"])
def test_without_a_fault_who_watched_before_reads_on(
    partition: Partition, server: EmbeddedServer, loaded: bool
) -> None:
    """The control run."""
    partition.record(make_event())
    reader = read_changes(partition, versions(partition)[-1])
    if loaded:
        load_again(partition, server)
    partition.record(make_event(message="two"))
    assert [change.object.message for change in reader.read(1)] == ["two"]


OTHER_BUILD = "0123abcd"


def switch_builds(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Load another build's functions. Returns: has the calls that follow made by the one that made none before."""
    ours = build_module.build()
    partition.admin.function_load(library().replace(ours, OTHER_BUILD), replace=True)

    def switch() -> None:
        other = OTHER_BUILD if build_module.build() == ours else ours
        monkeypatch.setattr(build_module, "build", lambda: other)

    return switch


def test_two_builds_that_write_in_turn_count_on_together(
    partition: Partition, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else versions would jump with each turn, and every reader would list again and again."""
    switch = switch_builds(partition, monkeypatch)
    seeded = partition.version()
    for n in range(6):
        partition.record(make_event(message=str(n)))
        switch()
    assert versions(partition) == [seeded + 1 + n for n in range(6)]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_whichever_build_writes_after_a_fault_who_watched_before_is_told_to_list_again(
    partition: Partition, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    switch = switch_builds(partition, monkeypatch)
    partition.record(make_event())
    last = versions(partition)[-1]

    switch()
    fault(partition, server)
    partition.record(make_event(message="two"))

    with pytest.raises(Expired):
        read_changes(partition, last).read(1)


def test_a_server_that_tells_no_replication_id_has_versions_jump_when_nobody_remembers_them(
    partition: Partition, server: EmbeddedServer
) -> None:
    mute = library().replace("'master_replid:", "'nobody_says_so:")
    partition.admin.function_load(mute, replace=True)
    partition.record(make_event())
    partition.record(make_event(message="two"))
    first, second = versions(partition)
    assert second == first + 1
    partition.admin.function_load(mute, replace=True)
    partition.record(make_event(message="three"))
    assert versions(partition)[-1] >= second + TEN_SECONDS_US
    partition.admin.function_load(library(), replace=True)


@pytest.mark.parametrize(
    "faults",
    [faults for faults in itertools.permutations(FAULTS, 2) if "kill -9 and start" not in faults],
    ids=lambda faults: " then ".join(faults),
)
def test_two_faults_within_a_second_are_no_worse_than_one(
    partition: Partition, server: EmbeddedServer, faults: tuple[str, str]
) -> None:
    """Each jumps ahead of the clock; what comes next must not fall back to the clock."""
    given = [partition.version()]
    for fault in faults:
        partition.record(make_event())
        given.append(partition.version())
        FAULTS[fault](partition, server)
    partition.record(make_event(message="last"))

    assert partition.pending() == []
    assert partition.stored()[-1].message in ("last", make_event().message)
    assert any(event.message == "last" for event in partition.stored()), "acknowledged, but not written"
    given.append(versions(partition)[-1])
    assert given == sorted(set(given))


def test_a_counter_that_is_lost_while_it_is_ahead_of_the_clock_does_not_fall_back_to_it(
    partition: Partition, server: EmbeddedServer
) -> None:
    """A change below the stream's last id would be refused in mid-call, after the batch was acknowledged."""
    for _ in range(3):  # ten seconds ahead each
        delete_version(partition, server)
        partition.record(make_event())
    last = partition.version()
    assert last > (time.time() + 15) * 1_000_000

    load_again(partition, server)
    delete_version(partition, server)
    assert partition.record(make_event(message="after")) == "c"

    assert versions(partition)[-1] > last


def test_a_restart_jumps_ten_seconds_ahead_of_what_it_found(partition: Partition, server: EmbeddedServer) -> None:
    partition.record(make_event())
    last = partition.version()
    kill(server)
    partition.record(make_event())
    assert partition.version() >= last + TEN_SECONDS_US
