"""A log is read whole while it is rotated, and what was taken away unread is known."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import BinaryIO

import pytest

from eventbus.agent import logs
from eventbus.agent.logs import LOST, LocalPods, LogTail, _opened, open_pieces
from eventbus.agent.runtime.contract import (
    ContainerId,
    ContainerPhase,
    ContainerRuntimeStatus,
    PodRuntimeStatus,
    PodUid,
)
from eventbus.agent.shim.output import LogFile


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


def test_pieces_are_kept_while_no_new_one_can_be_made(path: Path) -> None:
    log = written(path)
    for number in range(5):
        log.write(b"%d-bytes\n" % number)
    former = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (log._file, former[1]))
    try:
        for _ in range(6):
            log.write(b"is lost\n")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, former)
    log.close()

    assert [path.with_name(f"0.log.{n}").read_bytes() for n in (4, 3, 2, 1)] == [b"%d-bytes\n" % n for n in range(1, 5)]


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


def test_what_was_missed_has_a_line_of_its_own(tmp_path: Path) -> None:
    pods = LocalPods(tmp_path)
    pod = PodRuntimeStatus(uid=PodUid("u"), name="web", namespace="default")
    run = ContainerRuntimeStatus(id=ContainerId("u"), name="main", attempt=0, phase=ContainerPhase.EXITED, hash="")
    path = tmp_path / "pods" / "u" / "logs" / "main" / "0.log"
    path.parent.mkdir(parents=True)
    log = written(path)
    log.write(b"whole\ncut")
    [file] = pods.open_log(pod, run)
    follow = pods.follow(pod, run, file)
    assert next(follow) == b"whole\ncut"
    for number in range(8):
        log.write(b"%d-bytes\n" % number)
    log.close()
    assert b"".join(follow).splitlines() == [b"", LOST, *(b"%d-bytes" % number for number in range(3, 8))]


def test_it_begins_where_it_is_told_though_the_log_is_rotated_before_it_does(path: Path) -> None:
    log = written(path)
    log.write(b"01234567")
    [file] = open_pieces(path)
    file.seek(4)
    log.write(b"89abcdef")
    tail = LogTail(path, file)
    assert read(tail) == b"456789abcdef"
    log.close()
    tail.close()


def test_it_waits_for_a_log_that_is_not_there(path: Path) -> None:
    tail = LogTail(path)
    assert (read(tail), open_pieces(path)) == (b"", [])
    log = written(path)
    log.write(b"0123")
    log.close()
    assert read(tail) == b"0123"
    tail.close()


def test_pieces_that_are_rotated_while_they_are_opened_are_each_opened_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(path)
    for number in range(5):
        log.write(b"%d-bytes\n" % number)
    rotates = iter([True])

    def opened(piece: Path) -> BinaryIO | None:
        file = _opened(piece)
        if piece.suffix == ".2" and next(rotates, False):
            log.write(b"5-bytes\n")
        return file

    monkeypatch.setattr(logs, "_opened", opened)
    said = b""
    for file in open_pieces(path):
        with file:
            said += file.read()
    log.close()
    assert said == b"".join(b"%d-bytes\n" % number for number in range(1, 6))
