"""The page of `status`: everything in 100 columns, what is wrong in words, nothing from outside unescaped."""

from __future__ import annotations

import msgspec
import pytest

from eventbus.broker.health.status import BusStatus, Group, GroupPart, Level, Partition, Worker
from eventbus.cli.printers.status_table import format_status, human_bytes, level_of_bytes, used_bytes, used_keys
from eventbus.settings import MIB

GIB = 1024 * MIB
LIVE = Worker("a-host-with-a-longer-name-5f7c-4711-a1b2c3", "sink", 0.4, 3, True)
DEAD = Worker("other-host-4712-d4e5f6", "sink", 75.0, 64, False)
SINK = Group("sink", "WAIT", 1_234_567, True, 207.0, 67, (LIVE, DEAD), 0, 0, ())
LOG = Group("log", "DROP", 98_765_432, False, 86_400.0, 0, (), 12_345_678, 2, (0,))


def partition(number: int, used: int = 82 * MIB) -> Partition:
    part = GroupPart("log", "DROP", 1, True, 1.0, used, 0)
    return Partition(
        number=number,
        published=1,
        version=1,
        incoming=Level(used, 256 * MIB),
        changes=Level(64 * MIB, 64 * MIB),
        dead=Level(512, 64 * MIB),
        stored=Level(100_000, 100_000),
        records=Level(399_999, 400_000),
        dead_events=3,
        holder="log",
        groups=(part,),
    )


def status(*partitions: Partition) -> BusStatus:
    return BusStatus(
        url="unix:///run/eventbus/server.sock",
        prefix="eb",
        server="Valkey 9.1.2",
        memory=Level(3 * GIB // 2, 2 * GIB),
        options_version=7,
        partitions=partitions or (partition(0),),
        groups=(LOG, SINK),
        counters={"published": 987_654_321, "recorded": 987_000_000, "suppressed": 5, "refused_full": 64},
        losses={"dropped": 17},
        buried={"unreadable": 1},
    )


def test_values_that_were_not_ours_are_told_only_where_there_were_some() -> None:
    assert "corrupt" not in format_status(status())
    met = msgspec.structs.replace(status(), counters=status().counters | {"corrupt": 3})
    (line,) = [line for line in format_status(met).splitlines() if line.startswith("corrupt")]
    assert line.split()[1] == "3"
    assert "eventbus doctor" in line
    assert len(line) <= 100


def test_a_busy_bus_fits_into_100_columns() -> None:
    text = format_status(status(*(partition(number) for number in range(16))))
    assert max(map(len, text.splitlines())) <= 100


def test_groups_tell_how_far_behind_they_are_and_who_holds_the_stream() -> None:
    lines = [line.split() for line in format_status(status()).splitlines()]
    assert ["GROUP", "POLICY", "WORKERS", "LAG", "DELAY", "PENDING", "LOST", "BLOCKS"] in lines
    assert ["sink", "WAIT", "1", "(1", "dead)", "1234567", "3m27s", "67", "0", "-"] in lines
    assert ["log", "DROP", "0", "<=98765432", "24h", "0", "12345678", "p0"] in lines


@pytest.mark.parametrize(
    ("partitions", "wide", "text"),
    [
        (tuple(range(16)), False, "all"),
        ((0, 1, 2, 7, 9, 10), False, "0-2,7,9-10"),
        ((0, 1, 3, 4, 6, 7, 9, 10, 12, 13), False, "10 of 16"),
        ((0, 1, 3, 4, 6, 7, 9, 10, 12, 13), True, "0-1,3-4,6-7,9-10,12-13"),
        ((), False, "-"),
    ],
)
def test_with_several_partitions_each_worker_tells_its_share(
    partitions: tuple[int, ...], wide: bool, text: str
) -> None:
    workers = (msgspec.structs.replace(LIVE, partitions=partitions),)
    shared = msgspec.structs.replace(
        status(*(partition(number) for number in range(16))), groups=(msgspec.structs.replace(SINK, workers=workers),)
    )
    lines = [line.split() for line in format_status(shared, wide=wide).splitlines()]
    first = lines.index(["WORKERS", "OF", "STATE", "LAST", "SEEN", "PENDING", "PARTITIONS", "NAME"])
    joined = " ".join(lines[first + 1])
    assert f" 3 {text} {LIVE.name}" in joined
    assert "PARTITIONS" not in format_status(status())


def test_every_loss_has_its_line_with_its_cause() -> None:
    text = format_status(status())
    for number, words in [
        (17, "the buffer was full"),
        (64, "the stream was full"),
        (1, "dead letter: unreadable"),
        (12_345_678, "not read by group log"),
        (2, "trimmed while group log"),
    ]:
        assert any(str(number) in line and words in line for line in text.splitlines()), words


def test_counters_that_are_zero_are_left_out_but_the_main_ones() -> None:
    quiet = msgspec.structs.replace(status(), counters={}, losses={}, buried={}, groups=())
    text = format_status(quiet)
    assert "evicted" not in text
    assert "published" in text


def test_of_many_partitions_the_fullest_are_shown() -> None:
    many = status(*(partition(number, used=number * MIB) for number in range(16)))
    shown = format_status(many)
    assert "… and 8 less full partitions" in shown
    assert "\n15 " in shown
    assert "\n0 " not in shown
    assert "\n0 " in format_status(many, wide=True)


def test_names_from_outside_cannot_write_on_the_terminal() -> None:
    evil = msgspec.structs.replace(SINK, name="\x1b[2Jx", workers=(Worker("\x1b]0;x\x07", "g", 0, 0, True),))
    assert "\x1b" not in format_status(msgspec.structs.replace(status(), groups=(evil,)))


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1KiB"), (1536, "1.5KiB"), (10 * 1024 + 1000, "10KiB"), (256 * MIB, "256MiB")],
)
def test_bytes_are_short(n: int, text: str) -> None:
    assert human_bytes(n) == text


def test_what_the_user_may_not_read_is_a_question_mark() -> None:
    assert level_of_bytes(Level(None, 5)) == "?"
    assert used_keys(Level(None, 5)) == used_bytes(Level(None, 5)) == "?"
    assert used_keys(Level(95_000, 100_000)) == "95000 (95%)"
    assert level_of_bytes(Level(82 * MIB, 256 * MIB)) == "82MiB/256MiB (32%)"
    assert level_of_bytes(Level(1024, None)) == "1KiB"
