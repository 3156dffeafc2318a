"""A log is read whole while it is rotated, and what was taken away unread is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus.agent.pods.log_tail import LogTail
from eventbus.agent.shim.log_file import LogFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "0.log"


def written(path: Path) -> LogFile:
    return LogFile(str(path), most_bytes=10, most_files=5)


def read(tail: LogTail) -> bytes:
    found = b""
    while data := tail.read():
        found += data
    return found


def test_a_full_log_is_rotated_and_only_so_many_pieces_are_kept(path: Path) -> None:
    log = written(path)
    for number in range(8):
        log.write(b"%d-bytes\n" % number)
    log.close()
    pieces = [path.with_name(name) for name in ("0.log.4", "0.log.3", "0.log.2", "0.log.1", "0.log")]
    assert sorted(path.parent.iterdir()) == sorted(pieces)
    assert b"".join(piece.read_bytes() for piece in pieces) == b"".join(b"%d-bytes\n" % n for n in range(3, 8))


def test_what_is_rotated_between_two_reads_is_read_in_order(path: Path) -> None:
    log, tail = written(path), LogTail(path)
    said = b""
    for number in range(12):
        log.write(b"%02d-byte\n" % number)
        if number % 3 == 2:
            said += read(tail)
    assert said == b"".join(b"%02d-byte\n" % number for number in range(12))
    assert not tail.missed
    log.close()
    tail.close()


def test_what_was_taken_away_before_it_was_read_is_known(path: Path) -> None:
    log, tail = written(path), LogTail(path)
    log.write(b"first---\n")
    assert read(tail) == b"first---\n"
    for number in range(8):
        log.write(b"%d-bytes\n" % number)
    assert read(tail) == b"".join(b"%d-bytes\n" % number for number in range(3, 8))
    assert tail.missed
    log.close()
    tail.close()


def test_it_begins_where_it_is_told_and_waits_for_a_log_that_is_not_there(path: Path) -> None:
    tail = LogTail(path, begin=4)
    assert read(tail) == b""
    log = written(path)
    log.write(b"01234567")
    log.close()
    assert read(tail) == b"4567"
    tail.close()
