"""keys.py: one slot a partition, one partition an object, and no key without a name here."""

from __future__ import annotations

import re

import pytest
from redis.crc import key_slot

from eventbus.broker.keys import Keys, bus_key, item_key, partition_of
from eventbus.errors import ConfigError
from eventbus.model.event import ObjectReference
from tests.builders import make_reference

NAMES = [name for name in vars(Keys("eb", 0)) if name not in ("partition", "root")]


@pytest.mark.parametrize("partition", [0, 1, 15, 1023])
def test_all_keys_of_a_partition_are_in_one_slot(partition: int) -> None:
    keys = Keys("eb", partition)
    slots = {key_slot(getattr(keys, name) + b"anything") for name in NAMES}
    assert slots == {key_slot(b"%d" % partition)}


def test_no_two_keys_are_the_same_and_none_is_the_beginning_of_another_prefix() -> None:
    keys = Keys("eb", 0)
    values = [getattr(keys, name) for name in NAMES]
    assert len(set(values)) == len(values)
    prefixes = [value for value in values if value.endswith(b":")]
    for prefix in prefixes:
        assert [value for value in values if value != prefix and value.startswith(prefix)] == []


def test_every_key_begins_with_the_prefix_and_the_partition() -> None:
    keys = Keys("shop-7", 3)
    assert all(getattr(keys, name).startswith(b"shop-7:{3}:") for name in NAMES)
    assert bus_key("shop-7") == b"shop-7:{0}:bus"


@pytest.mark.parametrize("prefix", ["a", "eb", "a-b-c", "0", "x" * 32])
def test_a_prefix_of_small_letters_digits_and_dashes_is_fine(prefix: str) -> None:
    assert Keys(prefix, 0).root == f"{prefix}:{{0}}:".encode()


@pytest.mark.parametrize("prefix", ["", "A", "a_b", "a:b", "a{1}", "x" * 33, "ä", "a ", "a\n", "*", "eb\0"])
def test_any_other_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(prefix))):
        Keys(prefix, 0)


def test_the_partition_of_an_object_is_the_same_in_every_process_and_for_ever() -> None:
    """It says where an object's counts lie: a change would forget them all."""
    pods = [make_reference(name=f"web-{i}") for i in range(12)]
    assert [partition_of(pod, 16) for pod in pods] == [11, 3, 13, 13, 6, 5, 14, 10, 5, 3, 15, 2]
    assert {partition_of(pod, 1) for pod in pods} == {0}


@pytest.mark.parametrize(
    ("field", "other", "matters"),
    [
        ("namespace", "other", True),
        ("kind", "Node", True),
        ("name", "web-1", True),
        ("uid", "uid-2", True),
        ("api_version", "v2", False),
        ("resource_version", "8", False),
        ("field_path", "spec", False),
    ],
)
def test_namespace_kind_name_and_uid_decide(field: str, other: str, matters: bool) -> None:
    moved = partition_of(make_reference(), 1024) != partition_of(make_reference(**{field: other}), 1024)
    assert moved is matters


def test_a_character_moved_over_a_border_is_another_object() -> None:
    one = partition_of(ObjectReference(namespace="ab", kind="c"), 1024)
    two = partition_of(ObjectReference(namespace="a", kind="bc"), 1024)
    assert one != two


def test_objects_are_spread_evenly() -> None:
    counts = [0] * 16
    for i in range(16_000):
        counts[partition_of(make_reference(name=f"web-{i}"), 16)] += 1
    assert min(counts) > 850
    assert max(counts) < 1_150


def test_an_id_has_14_characters_and_no_hyphen_as_an_entrys_id_has() -> None:
    """Both stand in `later:`, and only the hyphen tells them apart."""
    for number in range(1_000):
        assert re.fullmatch(rb"[A-Za-z0-9._]{14}", item_key("default", f"pod-{number}"))
