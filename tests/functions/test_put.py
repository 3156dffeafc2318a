"""put.lua, and remove.lua for what put has written: one object, one version, one change."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from eventbus.broker.functions import Item
from eventbus.broker.keys import item_key
from eventbus.errors import EventBusError
from tests.builders import make_event
from tests.functions.partition import Partition, changed

KEY = item_key("", "n1")
OBJECT = f"object:nodes:{KEY.decode()}"


def node(name: str = "n1", namespace: str = "", body: bytes = b'{"a":1}') -> Item:
    return Item(plural="nodes", namespace=namespace, name=name, key=item_key(namespace, name), body=body)


def put(partition: Partition, item: Item, version: str = "", was: bytes = b"") -> int:
    answer, new = partition.call.put(item, version, was)
    assert answer == "OK"
    return int(new)


def changes(partition: Partition) -> list[dict[str, Any]]:
    found: Any = partition.admin.xrange(partition.keys.changes)
    return [
        {"rv": int(entry.split(b"-")[0])} | {name.decode(): value for name, value in fields.items()}
        for entry, fields in found
    ]


def stored(partition: Partition) -> list[Any]:
    value: Any = partition.admin.get(partition.keys.object_of("nodes") + KEY)
    fields: list[Any] = msgpack.unpackb(value)
    return fields


def test_an_object_is_created_with_a_version_a_name_and_a_change(partition: Partition) -> None:
    before = partition.state()
    version = partition.meta("rv")

    made = put(partition, node())

    assert made == version + 1
    assert stored(partition) == [made, "", "n1", '{"a":1}']
    after = partition.state()
    assert changed(before, after) == {OBJECT, "index:name:nodes", "changes", "meta"}
    assert after["index:name:nodes"][0] == {b"/n1\0" + KEY: 0}
    assert all(ttl == -1 for key, (_, ttl) in after.items() if key in (OBJECT, "index:name:nodes"))
    (change,) = changes(partition)
    assert (change["rv"], change["t"], change["k"], change["n"], change["w"]) == (made, b"A", KEY, b"nodes", b"")
    assert msgpack.unpackb(change["o"]) == [made, "", "n1", '{"a":1}']


def test_an_object_is_replaced_at_its_version_and_the_change_tells_what_it_was(partition: Partition) -> None:
    first = put(partition, node())
    second = put(partition, node(body=b'{"a":2}'), str(first), b"was")
    assert second == first + 1
    assert stored(partition) == [second, "", "n1", '{"a":2}']
    _, change = changes(partition)
    assert (change["t"], change["w"]) == (b"M", b"was")
    assert len(partition.state()["index:name:nodes"][0]) == 1


@pytest.mark.parametrize(
    ("there", "version", "answer"),
    [(True, "", "EXISTS"), (True, "12", "CONFLICT"), (False, "12", "MISSING")],
)
def test_what_is_not_as_it_was_read_is_not_written(
    partition: Partition, there: bool, version: str, answer: str
) -> None:
    held = str(put(partition, node())) if there else ""
    before = partition.state()
    assert partition.call.put(node(body=b"{}"), version) == (answer, held)
    assert changed(before, partition.state()) == set()


def test_a_key_of_another_type_is_refused_before_anything_is_written(partition: Partition) -> None:
    partition.admin.set(partition.keys.index_name_of("nodes"), "x")
    before = partition.state()
    with pytest.raises(EventBusError, match="WRONGTYPE"):
        partition.call.put(node(), "")
    assert changed(before, partition.state()) == set()


def test_when_memory_is_full_what_exists_is_replaced_and_nothing_is_created(partition: Partition) -> None:
    version = put(partition, node())
    with partition.memory_full():
        version = put(partition, node(body=b'{"a":2}'), str(version))
        before = partition.state()
        assert partition.call.put(node("n2"), "") == ("FULL", "")
        assert changed(before, partition.state()) == set()
    assert len(changes(partition)) == 1  # grows no longer than it was
    assert stored(partition)[0] == version


def test_an_object_is_removed_at_its_version_or_any_and_leaves_nothing_but_the_change(partition: Partition) -> None:
    before = partition.state()
    for wanted in ("its own", ""):
        version = put(partition, node())
        assert partition.call.remove(partition.options, KEY, "12", plural="nodes") == ("CONFLICT", str(version))
        answer = partition.call.remove(partition.options, KEY, str(version) if wanted else "", plural="nodes")
        assert answer == ("OK", str(version + 1))
        assert changed(before, partition.state()) == {"changes", "meta"}
        last = changes(partition)[-1]
        assert (last["t"], msgpack.unpackb(last["o"])) == (b"D", [version + 1, "", "n1", '{"a":1}'])
    assert partition.call.remove(partition.options, KEY, plural="nodes") == ("MISSING", "")


def test_events_and_other_objects_share_one_line_of_versions(partition: Partition) -> None:
    put(partition, node())
    partition.record(make_event())
    put(partition, node("n2"))
    versions = [change["rv"] for change in changes(partition)]
    assert versions == [versions[0], versions[0] + 1, versions[0] + 2]
    assert ["n" in change for change in changes(partition)] == [True, False, True]
    before = partition.state()
    partition.call.remove(partition.options, KEY, plural="nodes")
    assert not {key for key in changed(before, partition.state()) if "event" in key or "forget" in key}
