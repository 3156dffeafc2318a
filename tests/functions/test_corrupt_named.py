"""What is not ours under the key of a string counts as missing, and never in silence: it is counted, and named."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from eventbus.broker.exports import ExportCheckpoint, UpdateState
from eventbus.broker.keys import item_key
from eventbus.errors import EventBusError
from tests.functions.breaking import Breaker, breakable_server
from tests.functions.corrupting import Corruption, corrupt
from tests.functions.partition import Partition
from tests.functions.stories import Story
from tests.functions.test_corrupt_keys import EndOf, corruptions_of, goes_round, keys_of
from tests.functions.write_cases import CASES, DAY, HOUR, Case, _export, _put, _stored, about
from tests.thin import one_of_each


@pytest.fixture(scope="module")
def breaker() -> Iterator[Breaker]:
    with tempfile.TemporaryDirectory(prefix="eb") as folder, breakable_server(Path(folder)) as found:
        yield found


@pytest.fixture(scope="module")
def ends(breaker: Breaker) -> EndOf:
    return EndOf(breaker)


#: What every run tries: the first case of each function; of that with the most keys, of the first only.
SOME = one_of_each(CASES, lambda case: case.verb)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_every_function_counts_and_names_what_is_not_ours(
    breaker: Breaker, ends: EndOf, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    silent = []
    for key in keys_of(ends(case)):
        if not goes_round(key):
            continue
        for how in corruptions_of(key):
            caplog.clear()
            with caplog.at_level(logging.ERROR, "eventbus"), Story(breaker, case) as story:
                damaged = corrupt(story.partition.admin, story.partition.keys.root + key, how)
                error = story.attempt()
                if case.verb in ("correlate_and_store", "expire") and damaged.still:
                    continue  # read with others and not needed: what is needed is written over
                if "begin" in case.name and damaged.aside is None:
                    continue  # a new series has an id of its first event's uid: nobody looks what is there
                times, named = story.partition.admin.hmget(story.partition.keys.corrupt, "times", "last_key")
                counted = int(times or 0)
                if (named, counted) != (damaged.key, 1) or caplog.text.count(f"{damaged.key.decode()} held") != 1:
                    silent.append(f"{key.decode()} corrupted by {how}: {counted} counted, {named!r} named, {error}")
                damaged.put_right()
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize("how", [Corruption.LIST, Corruption.GARBAGE, Corruption.OTHER_FORM])
def test_what_a_sink_returned_and_is_not_ours_is_counted_when_it_is_written_over(
    partition: Partition, how: Corruption
) -> None:
    export = _export(partition)
    export.acquire()
    export.settle(ExportCheckpoint(position=1, returned={"0" * 14: UpdateState("name", "1", 1, 1, 0)}))
    (key,) = partition.admin.scan_iter(match=partition.keys.exported + b"*", count=10_000)
    corrupt(partition.admin, key, how)
    export.settle(ExportCheckpoint(position=2, returned={"0" * 14: UpdateState("name", "2", 2, 2, 0)}))
    assert partition.admin.hgetall(partition.keys.corrupt) == {b"times": b"1", b"last_key": key}
    assert export.returned(["0" * 14])["0" * 14].version == "2"


@pytest.mark.parametrize("others", [100, 12_000], ids=["short indexes", "indexes longer than a call walks through"])
def test_events_that_are_not_ours_are_taken_out_of_the_indexes_though_their_names_are_not_known(
    partition: Partition, others: int
) -> None:
    """However many there are, their members are looked for once, and beyond so many members not within a function."""
    events = [about(f"web-{i}") for i in range(30)]
    partition.record(*events)
    damaged = list(partition.answers())
    for index in (partition.keys.index_name, partition.keys.index_object):
        members = {f"a/{i:06}\0{i:018}": 0 for i in range(others)}
        partition.admin.zadd(index, members)
    before = [partition.admin.zcard(index) for index in (partition.keys.index_name, partition.keys.index_object)]
    for key in damaged:
        partition.admin.set(partition.keys.object + key, "somebody else's")
    partition.admin.config_resetstat()

    assert partition.record(*events) == "c" * 30

    ranges = partition.admin.info("commandstats")["cmdstat_zrange"]["calls"]
    assert ranges <= 2 * (10 + others // 1000 + 1)
    after = [partition.admin.zcard(index) for index in (partition.keys.index_name, partition.keys.index_object)]
    assert after == before
    assert partition.letters() == "A" * 30 + "D" * 30 + "A" * 30
    assert {event.metadata.name for kind, _, event in partition.changes() if kind == "D"} == {
        event.metadata.name for event in events
    }
    assert partition.admin.hget(partition.keys.corrupt, "times") == b"30"


def test_a_count_that_is_not_ours_is_counted_when_it_is_forgotten(partition: Partition) -> None:
    _stored(about("a"))(partition)
    partition.expire(in_ms=HOUR)
    (key,) = partition.admin.scan_iter(match=partition.keys.object + b"*", count=10_000)
    corrupt(partition.admin, key, Corruption.GARBAGE)
    partition.expire(in_ms=9 * DAY)
    assert partition.admin.hget(partition.keys.corrupt, "last_key") == key
    assert not partition.admin.exists(key)


def test_an_object_that_is_not_ours_when_a_note_is_finished_stops_its_kind(breaker: Breaker) -> None:
    case = next(case for case in CASES if str(case) == "put: a new object")
    with Story(breaker, case) as story:
        key = story.partition.keys.object_of("nodes") + item_key("", "n1")
        _put(story.partition)
        note = story.partition.keys.note_of("nodes")
        # As a call leaves it that was cut off behind its commit.
        changes = story.partition.keys.changes_of("nodes")
        story.partition.admin.set(note, _note(story.partition, changes, key))
        corrupt(story.partition.admin, key, Corruption.LIST)
        with pytest.raises(EventBusError, match=re.escape(key.decode())):
            story.partition.call.finish("nodes")
        story.partition.admin.delete(key)
        assert story.partition.call.finish("nodes")


def _note(partition: Partition, changes: bytes, key: bytes) -> bytes:
    import msgpack

    keys, version = partition.keys, partition.version("nodes")
    told = [f"M{key[-14:].decode()}", False]
    noted = ["CHANGES", changes, keys.version_of("nodes"), version + 1, version + 1, 0, 100, key[:-14]]
    packed: bytes = msgpack.packb([[], [*noted, keys.index_name_of("nodes"), "", told, False]], use_bin_type=False)
    return packed


def test_a_version_that_is_not_ours_is_put_right_though_nobody_writes(partition: Partition) -> None:
    _stored(about("a"))(partition)
    before = partition.version()
    partition.admin.set(partition.keys.version_of("events"), "not yours")
    partition.call.trim(partition.options)
    assert partition.version() > before
    assert partition.admin.hget(partition.keys.corrupt, "last_key") == partition.keys.version_of("events")


@pytest.mark.parametrize(
    "steps",
    [
        [5],
        [["NOSUCH", "key"]],
        [["HSET"]],
        [["HSET", "key", ["a"]]],
        [["LIVES", "index", "prefix", "1", "ids", "score"]],
    ],
    ids=str,
)
def test_a_note_of_steps_that_nobody_can_do_is_named_and_left(partition: Partition, steps: list[object]) -> None:
    partition.record(about("a"))
    note = partition.keys.note_of("events")
    assert partition.admin.exists(note) == 0
    partition.admin.set(note, msgpack.packb([steps, False]))
    before = partition.version()
    with pytest.raises(EventBusError, match=re.escape(note.decode())):
        partition.record(about("b"))
    assert partition.version() == before
    partition.admin.delete(note)
    partition.record(about("b"))
