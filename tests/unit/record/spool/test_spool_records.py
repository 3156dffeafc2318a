"""records.py, journal.py: a spool file is read as far as it is whole, whatever became of the rest."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.model.encoding.wire import pack_events
from eventbus.record.spool.journal import BATCHES, UNREADABLE, Claim, Journal, read_file
from eventbus.record.spool.records import (
    MAGIC,
    Acknowledged,
    Contents,
    Header,
    KeptBatch,
    MachineTime,
    ProducerIdentity,
    Record,
    Stamp,
    Unplaced,
    encode,
    encode_file,
    read,
    since_boot_ms,
)
from eventbus.testing.clock import FakeClock

HEADER = Header("bus", "redis://h", "eb", 2, "boot", "host", 7, 1_763_700_000_000)
ID = ProducerIdentity("0123456789abcdef", "AbC-_fghijklmnop")
STAMP = Stamp(1_763_700_000_000, 5_000)


def batch(first: int, *events: bytes, partition: int = 0) -> KeptBatch:
    return KeptBatch(partition, ID, first, "g", STAMP, (("dropped", 2),), pack_events(list(events)))


def ack(last: int, partition: int = 0) -> Acknowledged:
    return Acknowledged(partition, ID, last, "g2", Stamp(9, 9))


RECORDS: list[Record] = [batch(1, b"a", b"b"), batch(3, b"c"), batch(1, b"z", partition=1), ack(2), Unplaced([b"u"])]


def waiting(found: Contents) -> dict[int, list[int]]:
    """First sequences by partition."""
    return {line.partition: [each.first for each in line.in_order()] for line in found.lines.values()}


def test_what_was_written_is_read_but_for_what_was_acknowledged() -> None:
    found = read(encode_file(HEADER, RECORDS))
    assert (found.header, found.problem, found.unplaced, found.events) == (HEADER, "", [b"u"], 3)
    assert waiting(found) == {0: [3], 1: [1]}
    line = found.lines[0, ID]
    assert (line.generation, line.accepted) == ("g2", Stamp(9, 9))
    assert line.in_order() == [batch(3, b"c")]


def test_a_batch_written_again_after_its_acknowledgement_waits_again() -> None:
    assert waiting(read(encode_file(HEADER, [batch(1, b"a"), ack(1), batch(1, b"a")]))) == {0: [1]}


def test_cut_off_at_every_byte_it_holds_all_records_that_are_whole() -> None:
    data = encode_file(HEADER, RECORDS)
    ends = [len(encode_file(HEADER, RECORDS[:n])) for n in range(len(RECORDS) + 1)]
    for length in range(len(data)):
        found = read(data[:length])
        whole = sum(end <= length for end in ends)
        if length in ends:
            assert not found.problem
        else:
            assert found.problem
            assert found.torn
        assert found.events == (read(encode_file(HEADER, RECORDS[: whole - 1])).events if whole else 0)
        assert found.end <= length


def test_one_bit_that_turned_over_anywhere_is_found() -> None:
    data = encode_file(HEADER, RECORDS)
    for position in range(len(data)):
        spoiled = bytearray(data)
        spoiled[position] ^= 0x10
        found = read(bytes(spoiled))
        assert found.problem, position
        assert found.events <= 5


@given(st.binary(max_size=200))
def test_garbage_is_named_and_harms_nobody(garbage: bytes) -> None:
    for data in (garbage, MAGIC + garbage, encode_file(HEADER) + garbage):
        found = read(data)
        assert found.events == 0
        assert found.problem or data == encode_file(HEADER)


@pytest.mark.parametrize(
    "record",
    [
        encode(HEADER),
        encode(batch(0, b"a")),
        encode(batch(1)),
        encode(batch(1, *[b"a"] * 65)),
        encode(batch(1, b"a" * 20_000)),
        encode(batch(1, b"a", partition=1024)),
        encode(KeptBatch(0, ProducerIdentity("../../etc", ID.secret), 1, "", STAMP, (), pack_events([b"a"]))),
        encode(KeptBatch(0, ProducerIdentity(ID.id, "*"), 1, "", STAMP, (), pack_events([b"a"]))),
    ],
    ids=["second header", "sequence 0", "no events", "too many", "too long", "partition", "id", "secret"],
)
def test_a_record_that_nobody_writes_is_not_taken(record: bytes) -> None:
    found = read(encode_file(HEADER, [batch(1, b"a")]) + record)
    assert found.problem.startswith("not readable from byte")
    assert not found.torn
    assert found.events == 1


def test_a_file_of_another_format_is_named() -> None:
    assert read(b"EBSPOOL9\n" + encode(HEADER)).problem == "no spool file of a format that this build knows"


# -- the file --------------------------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(Claim.make(tmp_path / "spool"), limit_bytes=10_000)
    assert made.replace(encode_file(HEADER))
    return made


def test_nobody_else_may_read_what_is_written(journal: Journal) -> None:
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (journal.folder.parent, journal.folder)]
    assert modes == [0o700, 0o700]
    assert {stat.S_IMODE(path.stat().st_mode) for path in journal.folder.iterdir()} == {0o600}
    journal.release()


def test_beyond_its_bound_nothing_is_written(journal: Journal) -> None:
    kept = encode(batch(1, os.urandom(9_000)))
    assert journal.append(kept)
    assert not journal.append(encode(batch(2, os.urandom(9_000))))
    assert "EVENTBUS_SPOOL_BYTES" in journal.problem
    assert read_file(journal.folder).events == 1
    assert not journal.replace(b"a" * 10_001)
    assert read_file(journal.folder).events == 1
    journal.release()


def test_a_full_disk_leaves_the_file_as_it_was(journal: Journal) -> None:
    assert journal.append(encode(batch(1, b"a")))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.size + 30, before[1]))
        assert not journal.append(encode(batch(2, b"b" * 100)))
        assert not journal.replace(encode_file(HEADER, [batch(1, b"c" * 500)]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    found = read_file(journal.folder)
    assert (found.problem, found.events) == ("", 1)
    assert journal.append(encode(batch(2, b"b")))
    assert read_file(journal.folder).events == 2
    journal.release()


def test_what_cannot_be_read_is_kept_beside_for_people(journal: Journal) -> None:
    assert journal.append(encode(batch(1, b"a")) + b"\0\0\0\1garbage")
    folder = journal.folder
    journal.release()
    claim = Claim.take(folder)
    assert claim
    adopted, contents = Journal.adopt(claim, limit_bytes=10_000)
    assert contents.events == 1
    adopted.remove()
    assert [path.name for path in folder.iterdir()] == [UNREADABLE]
    assert Claim.take(folder) is None


def test_a_file_that_is_a_link_is_not_followed(journal: Journal, tmp_path: Path) -> None:
    folder = journal.folder
    (tmp_path / "other").write_bytes(encode_file(HEADER, [batch(1, b"a")]))
    os.unlink(folder / BATCHES)
    (folder / BATCHES).symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic"):
        read_file(folder)
    journal.release()


# -- time ------------------------------------------------------------------------------------------------------------


def test_time_since_is_the_machines_own_until_it_is_started_anew() -> None:
    clock = FakeClock()
    stamp = MachineTime(clock, boot="one").ago(60_000)
    clock.advance(3_600)
    same, other = MachineTime(clock, boot="one"), MachineTime(clock, boot="two")
    assert 60_000 <= same.since_ms(stamp, "one") < 600_000  # the wall clock may have been set
    assert other.since_ms(stamp, "one") == 3_660_000
    assert MachineTime(clock, boot="").since_ms(stamp, "") == 3_660_000
    assert other.since_ms(Stamp(stamp.wall_ms + 10**9, 0), "one") == 0
    assert since_boot_ms() > 0
