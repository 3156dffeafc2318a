"""Entries of a stream of changes give a reader changes, or the news that something is missing."""

from __future__ import annotations

from typing import Any

import msgpack
import msgspec
import pytest

from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import NODE
from eventbus.model.objects.cluster import Node
from eventbus.store.changes import NEVER_WRITTEN, StoreMark, follow
from eventbus.store.storage import LETTERS, ChangeType, decode_object, encode_body


class Storage:
    """The part of a storage that `follow` needs."""

    letters = LETTERS

    def decode(self, packed: bytes) -> Any:
        return decode_object(NODE, packed)


STORAGE: Any = Storage()


def packed(name: str, version: int) -> bytes:
    data: bytes = msgpack.packb([version, "", name, encode_body(Node(metadata=ObjectMeta(name=name)))])
    return data


def entry(first: int, *told: str, at: int = 7, **more: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """One call that wrote; *told*: letter and name, oldest first."""
    fields = {b"f": str(first).encode(), b"at": str(at).encode()}
    for version, one in enumerate(told, first):
        letter, name = one[0], one[1:]
        fields[f"{letter}{'k' * 13}{name}".encode()] = packed(name, version)
    fields |= {key.encode(): value for key, value in more.items()}
    return f"{first + len(told) - 1}-0".encode(), fields


def seen(after: int, *entries: tuple[bytes, dict[bytes, bytes]]) -> tuple[list[str], int, bool]:
    found = follow(STORAGE, 0, after, entries)
    told = [f"{change.type} {change.object.metadata.name} {change.version}" for change in found.changes]
    return told, found.version, found.lost is not None


def test_every_change_of_a_call_has_the_next_version() -> None:
    told = ["ADDED a 11", "MODIFIED a 12", "DELETED b 13", "ADDED c 14"]
    assert seen(10, entry(11, "Aa", "Ma", "Db"), entry(14, "Ac")) == (told, 14, False)


def test_what_a_reader_has_had_is_not_told_again() -> None:
    assert seen(12, entry(11, "Aa", "Ma", "Db")) == (["DELETED b 13"], 13, False)


def test_a_first_version_that_is_not_the_next_is_a_loss_behind_what_is_whole() -> None:
    assert seen(10, entry(11, "Aa"), entry(13, "Ac")) == (["ADDED a 11"], 11, True)
    assert seen(10, entry(12, "Aa")) == ([], 10, True)


def test_what_cannot_be_read_or_is_of_another_letter_has_its_version_all_the_same() -> None:
    damaged = entry(11, "Aa", "Rb", "?c", "Ad")
    damaged[1][b"A" + b"k" * 13 + b"a"] = b""
    assert seen(10, damaged) == (["ADDED d 14"], 14, False)


def test_the_first_entry_ever_follows_a_store_that_nobody_has_written() -> None:
    assert seen(NEVER_WRITTEN, entry(1_000, "Aa", at=0)) == (["ADDED a 1000"], 1_000, False)
    assert seen(NEVER_WRITTEN, entry(1_000, "Aa", at=60)) == ([], NEVER_WRITTEN, True)
    assert seen(2, entry(1_000, "Aa", at=0)) == ([], 2, True)


def test_what_selectors_saw_before_comes_with_the_change() -> None:
    was = msgspec.msgpack.encode([{"a": "b"}, {"spec.unschedulable": "true"}])
    (change,) = follow(STORAGE, 3, 10, [entry(11, "Ma", W=was)]).changes
    assert (change.type, change.partition, change.key) == (ChangeType.MODIFIED, 3, "k" * 13 + "a")
    assert change.was is not None
    assert (change.was.labels, change.was.fields) == ({"a": "b"}, {"spec.unschedulable": "true"})


@pytest.mark.parametrize(
    ("noted", "now", "lost"),
    [
        ("7:aa", StoreMark(7, "aa"), False),
        ("7:aa", StoreMark(9, "aa"), False),
        ("7:aa", StoreMark(6, "aa"), True),  # a replica that lacks changes
        ("7:aa", StoreMark(10000007, "bb"), True),  # it has written since
        ("7:aa", StoreMark(1, ""), True),  # FLUSHALL
        ("1:", StoreMark(9, "aa"), False),  # nothing was ever written
        ("garbage", StoreMark(9, "aa"), False),
    ],
)
def test_a_store_that_falls_behind_a_mark_has_lost_changes(noted: str, now: StoreMark, lost: bool) -> None:
    assert StoreMark.parse(noted).has_lost(now) is lost
    assert StoreMark.parse(str(now)) == now
