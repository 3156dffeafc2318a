"""Scenarios of keys: which field is part of the event key (counts), aggregate key (similar), spam key (one bucket)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.scenarios.table import NO_SPAM_FILTER, Table, nine_created

#: Part of all three keys: the field, and two values of it.
EVERYWHERE = (
    ("kind", "Volume", "Disk"),
    ("namespace", "storage", "storage-2"),
    ("name", "vol-7", "vol-70"),
    ("uid", "u-7", "u-8"),
    ("api_version", "disks/v1", "disks/v2"),
    ("component", "scrubber", "balancer"),
    ("host", "rack-3", "rack-4"),
    ("type", "Warning", "Normal"),
)


def tables() -> Iterator[Table]:
    for field, one, other in EVERYWHERE:
        yield in_every_key(field, one, other)
    yield reason()
    yield field_path_counts_apart()
    yield field_path_is_similar()
    yield field_path_shares_a_bucket()
    yield reporting_in_the_aggregate_key("reporting_component")
    yield reporting_in_the_aggregate_key("reporting_instance")
    yield reporting_shares_a_bucket()
    yield resource_version_in_no_key()
    yield resource_version_shares_a_bucket()
    yield shifted_fields()


def in_every_key(field: str, one: str, other: str) -> Table:
    """A bucket of 12: nine plain, two folded, one repeat, then nothing more; the other value has its own of all."""
    t = Table(f"{field}_is_part_of_every_key", burst=12)
    for start_s, value in ((0, one), (20, other)):
        for number in range(1, 10):
            t.at(start_s + number, f"block {number}", **{field: value}).created(f"{value} {number}")
        t.at(start_s + 10, "block 10", **{field: value}).folded(1, f"{value} aggregate")
        t.at(start_s + 11, "block 11", **{field: value}).folded(2, f"{value} aggregate")
        t.at(start_s + 12, "block 3", **{field: value}).patched(2, f"{value} 3")
        t.at(start_s + 13, "block 4", **{field: value}).skipped(f"{value} 4")
    return t


def reason() -> Table:
    t = Table("reason_is_part_of_event_and_aggregate_key_but_not_of_the_spam_key", burst=22)
    nine_created(t, reason="ReadSlow")
    t.at(10, "block 10", reason="ReadSlow").folded(1, "slow reads")
    for number in range(1, 10):
        t.at(20 + number, f"block {number}", reason="WriteSlow").created(f"write {number}")
    t.at(30, "block 10", reason="WriteSlow").folded(1, "slow writes")
    t.at(31, "block 1", reason="ReadSlow").patched(2)
    t.at(32, "block 1", reason="WriteSlow").patched(2, "write 1")
    t.at(33, "block 1", reason="ScrubDone").skipped("done")
    return t


def field_path_counts_apart() -> Table:
    t = Table("field_path_is_part_of_the_event_key", burst=NO_SPAM_FILTER)
    for turn, path in enumerate(("", "spec.disks{a}", "spec.disks{b}")):
        t.at(turn, field_path=path).created(path or "whole")
    t.at(5, field_path="spec.disks{a}").patched(2, "spec.disks{a}")
    t.at(6, field_path="spec.disks{b}").patched(2, "spec.disks{b}")
    t.at(7, field_path="").patched(2, "whole")
    t.at(8, field_path="spec.disks{b}").patched(3, "spec.disks{b}")
    return t


def field_path_is_similar() -> Table:
    t = Table("field_path_is_not_part_of_the_aggregate_key", burst=NO_SPAM_FILTER)
    for number in range(1, 10):
        t.at(number, f"block {number}", field_path=f"spec.disks{{{number % 2}}}").created()
    t.at(10, "block 10", field_path="spec.disks{0}").folded(1)
    t.at(11, "block 11", field_path="spec.disks{1}").folded(2)
    # Known as a message, new as an event.
    t.at(12, "block 1", field_path="spec.disks{0}").created("block 1 of the other disk")
    return t


def field_path_shares_a_bucket() -> Table:
    t = Table("field_path_is_not_part_of_the_spam_key", burst=2)
    t.at(0, field_path="spec.disks{a}").created("a")
    t.at(1, field_path="spec.disks{b}").created("b")
    t.at(2, field_path="spec.disks{c}").skipped("c")
    return t


def reporting_in_the_aggregate_key(field: str) -> Table:
    t = Table(f"{field}_is_part_of_the_aggregate_key_only", burst=NO_SPAM_FILTER)
    left: dict[str, Any] = {field: "left"}
    right: dict[str, Any] = {field: "right"}
    nine_created(t, **left)
    t.at(10, "block 10", **right).created()
    t.at(11, "block 11", **left).folded(1, "left")
    t.at(12, "block 1", **right).patched(2)
    for number in range(12, 19):
        t.at(13 + number, f"block {number}", **right).created()
    t.at(40, "block 19", **right).folded(1, "right")
    t.at(41, "block 20", **left).folded(2, "left")
    return t


def reporting_shares_a_bucket() -> Table:
    t = Table("reporting_fields_are_not_part_of_the_spam_key", burst=2)
    t.at(0, reporting_component="a").created()
    t.at(1, reporting_instance="b").patched(2)
    t.at(2, reporting_component="c", reporting_instance="d").skipped()
    return t


def resource_version_in_no_key() -> Table:
    t = Table("resource_version_is_part_of_no_key", burst=NO_SPAM_FILTER)
    for number in range(1, 10):
        t.at(number, f"block {number}", resource_version=str(1_000 + number)).created()
    t.at(10, "block 10", resource_version="2").folded(1)
    t.at(11, "block 4", resource_version="3").patched(2)
    t.at(12, "block 11", resource_version="").folded(2)
    return t


def resource_version_shares_a_bucket() -> Table:
    t = Table("resource_version_is_not_part_of_the_spam_key", burst=2)
    t.at(0, resource_version="1").created()
    t.at(1, resource_version="2").patched(2)
    t.at(2, resource_version="3").skipped()
    return t


def shifted_fields() -> Table:
    """Ours: client-go joins the fields with nothing between, and takes these for one event of one object."""
    t = Table("fields_that_join_to_the_same_text_are_still_different", burst=1)
    t.at(0, name="vol-1", uid="23").created("a")
    t.at(1, name="vol-12", uid="3").created("b")
    t.at(2, name="vol-", uid="123").created("c")
    t.at(3, name="vol-1", uid="", field_path="23").created("d")
    t.at(4, component="scrub", host="berrack", uid="9").created("e")
    t.at(5, component="scrubber", host="rack", uid="9").created("f")
    t.at(6, name="vol-1", uid="23").skipped("a")
    return t
