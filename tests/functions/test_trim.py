"""trim.lua: an entry goes when every group has finished with it, or when a group has held it for too long."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from eventbus.broker.functions import GroupPolicy, Trimmed, beat_command
from eventbus.broker.groups import delete_group
from eventbus.broker.transport import PublishStatus
from eventbus.settings import MIB
from tests.functions.conftest import MakePartition
from tests.functions.partition import Partition, changed


def entries(partition: Partition) -> list[bytes]:
    return [entry_id for entry_id, _ in partition.admin.xrange(partition.keys.incoming)]


def published(partition: Partition, sizes: Sequence[int]) -> list[bytes]:
    """Entries of so many bytes, two events each."""
    for i, size in enumerate(sizes):
        assert partition.publish_raw(1 + 2 * i, 2, b"x" * size).status is PublishStatus.OK
    return entries(partition)


def floor(partition: Partition, group: str) -> bytes:
    found: bytes = partition.admin.hget(partition.keys.meta, f"floor:{group}")
    return found


@pytest.mark.parametrize(
    ("read", "acknowledged", "stay"),
    [(0, [], 4), (4, [], 4), (2, [0, 1], 2), (4, [0, 2, 3], 3), (4, [1, 2, 3], 4), (4, [0, 1, 2, 3], 0)],
    ids=[
        "nothing was read",
        "all was read, nothing finished",
        "two were finished, the others not read",
        "all but the second are finished",
        "all but the first are finished",
        "all are finished",
    ],
)
def test_what_the_slowest_group_still_needs_stays(
    partition: Partition, read: int, acknowledged: list[int], stay: int
) -> None:
    partition.call.open("", "log", GroupPolicy.WAIT, "0")
    ids = published(partition, [10] * 4)
    fast = partition.reader(group="log")
    fast.ack([delivery.id for delivery in fast.read(0)])
    slow = partition.reader()
    if read:
        partition.admin.xreadgroup("sink", "one", {partition.keys.incoming: ">"}, count=read)
    slow.ack([ids[i] for i in acknowledged])

    assert partition.call.trim(partition.options) == Trimmed(4 - stay, "", 0)

    assert entries(partition) == ids[4 - stay :]
    counters, life_ms = partition.state()["incoming:meta"]
    assert int(counters.get("trimmed", 0)) == (4 - stay) * 10
    assert life_ms == -1


@pytest.mark.parametrize("garbage", ["many", "", "1.5", "nan", "-1", "9" * 30])
def test_a_heartbeat_that_is_no_number_is_removed_counted_and_stops_nothing(partition: Partition, garbage: str) -> None:
    ids = published(partition, [10] * 2)
    reader = partition.reader()
    reader.ack([delivery.id for delivery in reader.read(0)])
    fields = {"sink/alive": "7", "sink/spoiled": garbage, "gone/spoiled": garbage}
    partition.admin.hset(partition.keys.workers, mapping=fields)

    assert partition.call.trim(partition.options) == Trimmed(len(ids), "", 0)

    assert partition.admin.hgetall(partition.keys.workers) == {b"sink/alive": b"7"}
    assert partition.admin.hgetall(partition.keys.corrupt) == {b"times": b"2", b"last_key": partition.keys.workers}
    partition.admin.execute_command(*beat_command(partition.keys, "sink", "spoiled"))
    partition.call.trim(partition.options)
    assert partition.admin.hget(partition.keys.corrupt, "times") == b"2"


def test_nothing_is_trimmed_without_groups(partition: Partition) -> None:
    published(partition, [10])
    partition.admin.xgroup_destroy(partition.keys.incoming, "sink")
    assert partition.call.trim(partition.options) == Trimmed(0, "", 0)
    assert len(entries(partition)) == 1


@pytest.mark.parametrize("pending", [False, True], ids=["read by nobody", "pending"])
def test_what_a_destroyed_group_has_not_finished_with_stays(partition: Partition, pending: bool) -> None:
    ids = published(partition, [10] * 4)
    partition.admin.xreadgroup("sink", "one", {partition.keys.incoming: ">"}, count=3 if pending else 1)
    partition.reader().ack(ids[:1])
    partition.call.trim(partition.options)  # the floor is here
    partition.call.open("", "log", GroupPolicy.DROP, "0")
    log = partition.reader(group="log")
    log.ack([delivery.id for delivery in log.read(0)])
    partition.admin.xgroup_destroy(partition.keys.incoming, "sink")

    for _ in range(2):
        assert partition.call.trim(partition.options) == Trimmed(0, "", 0)

    assert entries(partition) == ids[1:]
    assert partition.meta("floor_to:sink") == 2
    assert partition.call.open("", "sink").made_group
    assert [delivery.id for delivery in partition.reader("two").read(0)] == ids[1:]
    assert partition.meta("lost:sink") == 0


def test_a_group_with_many_pending_entries_is_released_in_parts(make_partition: MakePartition) -> None:
    """The numbers of all parts are those of one release."""
    n, limit = 2_500, 1_000
    partition = make_partition(hold_s=10)
    pipe = partition.admin.pipeline(transaction=False)
    for i in range(n):
        pipe.xadd(partition.keys.incoming, {"n": 1, "to": i + 1, "at": i * 10, "b": b"x" * 10})
    ids = pipe.execute()
    partition.admin.xreadgroup("sink", "dead", {partition.keys.incoming: ">"}, count=n - 100)
    partition.admin.hset(partition.keys.meta, mapping={"beats:sink": 0, "alive:sink": 1})

    pending: list[int] = []
    lost: list[int] = []
    while not lost or lost[-1]:
        partition.admin.config_resetstat()
        lost.append(partition.call.trim(partition.options).lost)
        pending.append(partition.admin.xpending(partition.keys.incoming, "sink")["pending"])
        assert partition.admin.info("commandstats").get("cmdstat_xack", {"calls": 0})["calls"] <= limit // 1000

    assert pending == [n - 100 - limit, n - 100 - 2 * limit, 0, 0]
    assert lost == [limit, limit, n - 2 * limit, 0]
    assert partition.meta("lost:sink") == n
    assert floor(partition, "sink") == ids[-1]
    assert partition.reader().read(0) == []


@pytest.mark.parametrize(
    ("policy", "options", "sizes", "lost"),
    [(GroupPolicy.DROP, {"incoming_bytes": MIB}, [100_000] * 10, 10), (GroupPolicy.WAIT, {"hold_s": 10}, [10] * 3, 6)],
    ids=["DROP beyond half of the bytes", "WAIT beyond its hold"],
)
def test_a_destroyed_group_is_let_go_as_a_dead_one(
    make_partition: MakePartition, policy: GroupPolicy, options: dict[str, int], sizes: list[int], lost: int
) -> None:
    partition = make_partition(**options)
    partition.call.open("", "mine", policy, "0")
    ids = published(partition, sizes)
    sink = partition.reader()
    sink.ack([delivery.id for delivery in sink.read(0)])
    partition.admin.hset(partition.keys.meta, mapping={"beats:mine": 0, "alive:mine": 1})
    partition.admin.xgroup_destroy(partition.keys.incoming, "mine")

    assert partition.call.trim(partition.options) == Trimmed(lost // 2, "mine", lost)
    assert partition.call.trim(partition.options) == Trimmed(0, "", 0)

    assert partition.meta("lost:mine") == lost
    assert entries(partition) == ids[lost // 2 :]
    assert partition.call.open("", "mine").made_group
    assert [delivery.id for delivery in partition.reader(group="mine").read(0)] == ids[lost // 2 :]
    assert partition.meta("lost:mine") == lost


def test_a_deleted_group_holds_nothing(partition: Partition) -> None:
    partition.call.open("", "mine", GroupPolicy.WAIT, "0")
    published(partition, [10] * 4)
    sink = partition.reader()
    sink.ack([delivery.id for delivery in sink.read(0)])
    partition.call.trim(partition.options)

    delete_group(partition.bus, partition.admin, "mine")

    assert partition.call.trim(partition.options) == Trimmed(4, "", 0)


def test_what_was_destroyed_is_told_once(partition: Partition) -> None:
    published(partition, [10] * 3)
    partition.call.trim(partition.options)
    partition.admin.delete(partition.keys.incoming)
    partition.call.open("0123456789abcdef", "sink")

    assert partition.call.trim(partition.options) == Trimmed(0, "sink", 6, destroyed=True)
    assert partition.call.trim(partition.options) == Trimmed(0, "", 0)
    assert partition.meta("lost:sink") == 6


def test_a_partition_without_a_stream_is_left_alone(partition: Partition) -> None:
    partition.admin.delete(partition.keys.incoming)
    before = partition.state()
    assert partition.call.trim(partition.options) == Trimmed(0, "", 0)
    assert changed(before, partition.state()) == set()


def test_a_call_removes_about_as_much_as_it_was_told(partition: Partition) -> None:
    pipe = partition.admin.pipeline(transaction=False)
    for i in range(3_000):
        pipe.xadd(partition.keys.incoming, {"n": 1, "to": i + 1, "at": i * 300, "b": b"x" * 300})
    pipe.execute()
    reader = partition.reader()
    while deliveries := reader.read(0):
        reader.ack([delivery.id for delivery in deliveries])

    removed = partition.call.trim(partition.options, limit=500).removed

    assert 400 <= removed <= 500
    while partition.call.trim(partition.options, limit=500).removed:
        pass
    assert entries(partition) == []


def test_a_drop_group_holds_no_more_than_half_of_the_bytes(make_partition: MakePartition) -> None:
    partition = make_partition(incoming_bytes=MIB)
    partition.call.open("", "log", GroupPolicy.DROP, "0")
    ids = published(partition, [100_000] * 10)
    sink = partition.reader()
    sink.ack([delivery.id for delivery in sink.read(0)])

    trimmed = partition.call.trim(partition.options)

    # five entries are 500 000 bytes, less than half a MiB; the five before them are ten events
    assert trimmed == Trimmed(5, "log", 10)
    assert entries(partition) == ids[5:]
    assert partition.meta("lost:log") == 10
    assert [delivery.id for delivery in partition.reader(group="log").read(0)] == ids[5:]
    assert partition.call.trim(partition.options) == Trimmed(0, "", 0)


def test_a_drop_group_that_keeps_up_loses_nothing_while_another_holds_the_stream(make_partition: MakePartition) -> None:
    partition = make_partition(incoming_bytes=MIB)
    partition.call.open("", "log", GroupPolicy.DROP, "0")
    ids = published(partition, [100_000] * 10)
    log = partition.reader(group="log")
    deliveries = log.read(0)
    log.ack([delivery.id for delivery in deliveries[:7]])

    assert partition.call.trim(partition.options) == Trimmed(0, "", 0)
    assert [entry for entry, _ in partition.pending("log")] == ids[7:]


def test_a_released_group_reads_on_behind_what_it_lost_while_another_still_needs_that(
    make_partition: MakePartition,
) -> None:
    partition = make_partition(incoming_bytes=MIB)
    partition.call.open("", "log", GroupPolicy.DROP, "0")
    ids = published(partition, [100_000] * 10)

    assert partition.call.trim(partition.options) == Trimmed(0, "log", 10)

    assert entries(partition) == ids
    assert [delivery.id for delivery in partition.reader(group="log").read(0)] == ids[5:]


def test_what_a_released_group_held_pending_is_acknowledged(make_partition: MakePartition) -> None:
    partition = make_partition(incoming_bytes=MIB)
    partition.call.open("", "log", GroupPolicy.DROP, "0")
    ids = published(partition, [100_000] * 10)
    partition.reader(group="log").read(0)

    assert partition.call.trim(partition.options) == Trimmed(0, "log", 10)  # the sink still needs all
    assert [entry for entry, _ in partition.pending("log")] == ids[5:]
    assert entries(partition) == ids


@pytest.mark.parametrize(("silent_s", "released"), [(300, False), (900, True)])
def test_a_wait_group_holds_the_stream_as_long_as_hold_without_a_worker(
    make_partition: MakePartition, silent_s: int, released: bool
) -> None:
    partition = make_partition(hold_s=600)
    published(partition, [10] * 3)
    partition.reader().read(0)
    since_ms = time.time_ns() // 1_000_000 - silent_s * 1000
    partition.admin.hset(partition.keys.meta, mapping={"beats:sink": 0, "alive:sink": since_ms})

    trimmed = partition.call.trim(partition.options)

    assert trimmed == (Trimmed(3, "sink", 6) if released else Trimmed(0, "", 0))
    assert len(entries(partition)) == (0 if released else 3)
    assert partition.meta("lost:sink") == (6 if released else 0)


def test_a_worker_that_beats_keeps_a_wait_group_alive(make_partition: MakePartition) -> None:
    partition = make_partition(hold_s=10)
    published(partition, [10] * 3)
    partition.admin.hset(partition.keys.meta, mapping={"beats:sink": 4, "alive:sink": 1})
    partition.admin.hset(partition.keys.workers, mapping={"sink/one": 3, "sink/two": 2, "sinks/three": 9})

    assert partition.call.trim(partition.options) == Trimmed(0, "", 0)

    assert partition.meta("beats:sink") == 5
    assert abs(partition.meta("alive:sink") - time.time() * 1000) < 60_000


@pytest.mark.parametrize("stream", ["changes", "dead"])
def test_changes_and_the_dead_letter_are_cut_to_their_bytes(make_partition: MakePartition, stream: str) -> None:
    partition = make_partition(changes_bytes=MIB, dead_bytes=MIB)
    keys = partition.keys
    key, field = {"changes": (keys.changes_of("events"), "A" + 32 * "0"), "dead": (keys.dead, "b")}[stream]
    for i in range(30):
        partition.admin.xadd(key, {"at": i * 50_000, field: b"x" * 50_000}, id=f"{i + 1}-0")
    partition.admin.set(keys.version_of("events"), f"30 {30 * 50_000}")

    partition.call.trim(partition.options)

    left = partition.admin.xrange(key)
    assert 15 <= len(left) <= 21  # 20 fit; whole nodes of the stream go at a time
    assert left[-1][0] == b"30-0"
