"""What `eventbus doctor` says of the spool of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus.broker.health.findings import Severity
from eventbus.cli.this_machine import check_spool
from eventbus.model.encoding.wire import pack_events
from eventbus.record.spool.journal import BATCHES, LOCK, Claim
from eventbus.record.spool.records import Header, KeptBatch, ProducerIdentity, Stamp, encode_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "spool"
    made.mkdir(mode=0o700)
    return made


def lay_down(root: Path, name: str, data: bytes) -> None:
    (root / name).mkdir(mode=0o700)
    (root / name / LOCK).touch(0o600)
    (root / name / BATCHES).write_bytes(data)


def two_events() -> bytes:
    return some_events(2)


def some_events(number: int) -> bytes:
    identity = ProducerIdentity("0123456789abcdef", "AbC-_fghijklmnop")
    batch = KeptBatch(0, identity, 1, "", Stamp(1_763_700_000_000, 0), (), pack_events([b"\x80"] * number))
    return encode_file(Header("bus", "redis://h", "eb", 1, "boot", "host", 7, 1), [batch])


def test_an_empty_spool_and_one_that_was_never_made_are_well(root: Path) -> None:
    for spool in (root, root / "none"):
        found = check_spool(str(spool))
        assert (found.severity, found.message, found.cure) == (Severity.OK, f"nothing waits in {spool}", "")


def test_what_a_living_process_holds_is_well(root: Path) -> None:
    claim = Claim.make(root)
    try:
        found = check_spool(str(root))
    finally:
        claim.remove()
    assert (found.severity, found.message) == (Severity.OK, f"1 in use in {root}")


def test_events_of_processes_that_are_gone_wait_for_the_command_that_sends_them(root: Path) -> None:
    lay_down(root, "1-1-000000", two_events())
    lay_down(root, "1-2-000000", two_events())
    found = check_spool(str(root))
    assert (found.severity, found.cure) == (Severity.WARNING, "eventbus spool send")
    assert found.message == f"4 events of processes that are gone wait in {root}"


def test_one_event_that_is_left_is_said_as_one(root: Path) -> None:
    lay_down(root, "1-1-000000", some_events(1))
    assert check_spool(str(root)).message == f"1 event of a process that is gone waits in {root}"


def test_what_nobody_can_read_is_named_before_what_waits_and_three_at_the_most(root: Path) -> None:
    lay_down(root, "1-1-000000", two_events())
    for number in range(4):
        lay_down(root, f"bad-{number}", b"\0\1\2" * 50)
    found = check_spool(str(root))
    assert (found.severity, found.cure) == (Severity.WARNING, f"look into {root}, and remove unusable folders")
    assert [f"bad-{number}: " in found.message for number in range(4)] == [True, True, True, False]
    assert found.message.endswith("; 1 more")


def test_a_spool_that_others_may_write_to_is_an_error_with_its_cure(root: Path) -> None:
    root.chmod(0o777)
    found = check_spool(str(root))
    assert (found.severity, found.message.endswith("others may enter it (mode 777)")) == (Severity.ERROR, True)
    assert found.cure.endswith(f"chmod 700 {root}")


def test_a_file_in_its_place_is_an_error_with_its_cure(tmp_path: Path) -> None:
    file = tmp_path / "spool"
    file.touch(0o600)
    found = check_spool(str(file))
    assert (found.severity, bool(found.cure)) == (Severity.ERROR, True)
    assert str(file) in found.message
