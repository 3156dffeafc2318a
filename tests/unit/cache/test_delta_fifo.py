"""The rules of client-go's DeltaFIFO: its delta_fifo_test, case by case."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec
import pytest

from eventbus.cache.delta_fifo import (
    DeletedFinalStateUnknown,
    Delta,
    DeltaFIFO,
    DeltaType,
    key_of,
    last_state,
)
from eventbus.cache.indexer import Indexer
from eventbus.model.event import Event
from tests.unit.cache.things import make_thing

ADDED, UPDATED, DELETED = DeltaType.ADDED, DeltaType.UPDATED, DeltaType.DELETED
SYNC, REPLACED = DeltaType.SYNC, DeltaType.REPLACED


def make_fifo(*known: Event, transform: Callable[[Event], Event] | None = None) -> DeltaFIFO[Event]:
    """A queue whose reader holds *known*."""
    indexer: Indexer[Event] = Indexer()
    for found in known:
        indexer.add(found)
    return DeltaFIFO(known_objects=indexer, transform=transform)


def pop(fifo: DeltaFIFO[Event]) -> Sequence[Delta[Event]]:
    return fifo.pop(lambda _deltas, _initial: None)


def told(deltas: Sequence[Delta[Event]]) -> list[str]:
    """`Added a=1`, with a cross behind a tombstone."""
    return [
        f"{delta.type} {last_state(delta.object).metadata.name}={last_state(delta.object).message}"
        + ("†" if isinstance(delta.object, DeletedFinalStateUnknown) else "")
        for delta in deltas
    ]


def drain(fifo: DeltaFIFO[Event]) -> list[list[str]]:
    fifo.close()
    popped: list[list[str]] = []
    while deltas := pop(fifo):
        popped.append(told(deltas))
    return popped


def test_two_producers_each_keep_their_order() -> None:
    fifo = make_fifo()

    def produce(name: str) -> None:
        for i in range(500):
            fifo.add(make_thing(f"{name}{i:03}"))

    producers = [threading.Thread(target=produce, args=(name,)) for name in "ab"]
    for producer in producers:
        producer.start()
    names = [last_state(pop(fifo)[-1].object).metadata.name for _ in range(1000)]
    for producer in producers:
        producer.join()
    for name in "ab":
        own = [other for other in names if other.startswith(name)]
        assert own == sorted(own)
        assert len(own) == 500


def test_a_deletion_that_waits_is_told_before_the_object_that_a_list_has_again() -> None:
    fifo = make_fifo(make_thing("foo", "1"))
    fifo.delete(make_thing("foo", "1"))
    fifo.replace([make_thing("foo", "2")])
    assert drain(fifo) == [["Deleted foo=1", "Replaced foo=2"]]


FOO = make_thing("foo", "1")
FOO2 = make_thing("foo", "2")


@pytest.mark.parametrize("known", [False, True], ids=["nothing known", "something else known"])
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([("add", FOO)], ["Added foo=1", "Deleted foo=1†"], id="added"),
        pytest.param(
            [("add", FOO), ("replace", [FOO2])],
            ["Added foo=1", "Replaced foo=2", "Deleted foo=2†"],
            id="added and listed",
        ),
        pytest.param([("add", FOO), ("delete", FOO2)], ["Added foo=1", "Deleted foo=2"], id="added and deleted"),
        pytest.param(
            [("add", FOO), ("replace", [FOO]), ("replace", [FOO2])],
            ["Added foo=1", "Replaced foo=1", "Replaced foo=2", "Deleted foo=2†"],
            id="added and listed twice",
        ),
        pytest.param(
            [("add", FOO), ("replace", []), ("replace", [])],
            ["Added foo=1", "Deleted foo=1†"],
            id="two empty lists",
        ),
        pytest.param(
            [("add", FOO), ("delete", FOO), ("add", FOO2)],
            ["Added foo=1", "Deleted foo=1", "Added foo=2", "Deleted foo=2†"],
            id="added, deleted, added",
        ),
    ],
)
def test_an_object_that_is_only_queued_is_deleted_once_by_a_list_without_it(
    steps: list[tuple[str, object]], expected: list[str], known: bool
) -> None:
    fifo = make_fifo(make_thing("other")) if known else make_fifo()
    for method, argument in steps:
        getattr(fifo, method)(argument)
    fifo.replace([])
    assert [deltas for deltas in drain(fifo) if "foo" in deltas[0]] == [expected]


def test_every_object_is_transformed_once_and_tombstones_are_not() -> None:
    def cross(found: Event) -> Event:
        return msgspec.structs.replace(found, message=found.message + "x")

    fifo = make_fifo(make_thing("held", "hx"), transform=cross)
    fifo.add(make_thing("foo", "1"))
    fifo.update(make_thing("foo", "2"))
    fifo.delete(make_thing("foo", "3"))
    fifo.replace([make_thing("bar", "4")])
    fifo.replace([])
    fifo.resync()
    assert drain(fifo) == [
        ["Added foo=1x", "Updated foo=2x", "Deleted foo=3x"],
        ["Replaced bar=4x", "Deleted bar=4x†"],
        ["Deleted held=hx†"],
    ]


def test_a_list_that_cannot_be_transformed_changes_nothing() -> None:
    def refuse(found: Event) -> Event:
        if found.metadata.name == "bad":
            raise ValueError("no")
        return found

    fifo = make_fifo(transform=refuse)
    with pytest.raises(ValueError, match="no"):
        fifo.replace([make_thing("good"), make_thing("bad")])
    assert len(fifo) == 0
    assert not fifo.has_synced


def test_the_deletion_of_what_nobody_knows_is_ignored() -> None:
    fifo = make_fifo()
    fifo.delete(make_thing("foo"))
    assert drain(fifo) == []


def test_the_deletion_of_what_the_reader_holds_is_queued() -> None:
    fifo = make_fifo(make_thing("foo", "1"))
    fifo.delete(make_thing("foo", "2"))
    fifo.delete(make_thing("bar"))
    assert drain(fifo) == [["Deleted foo=2"]]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param("delete", [["Deleted foo=1"]], id="deletion queued"),
        pytest.param(None, [["Sync foo=1"]], id="nothing queued"),
        pytest.param("update", [["Updated foo=1"]], id="update queued"),
    ],
)
def test_a_resync_repeats_only_objects_that_have_nothing_queued(before: str | None, expected: list[list[str]]) -> None:
    fifo = make_fifo(FOO)
    if before:
        getattr(fifo, before)(FOO)
    fifo.resync()
    assert drain(fifo) == expected


KNOWN = [make_thing("foo", "5"), make_thing("bar", "6"), make_thing("baz", "7")]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param(
            [("delete", make_thing("baz", "10"))],
            [["Deleted baz=10"], ["Replaced foo=5"], ["Deleted bar=6†"]],
            id="one deleted",
        ),
        pytest.param(
            [("add", make_thing("baz", "10"))],
            [["Added baz=10", "Deleted baz=10†"], ["Replaced foo=5"], ["Deleted bar=6†"]],
            id="one added again: its queued state is newer than the held one",
        ),
        pytest.param(
            [("add", make_thing("qux", "10"))],
            [["Added qux=10", "Deleted qux=10†"], ["Replaced foo=5"], ["Deleted bar=6†"], ["Deleted baz=7†"]],
            id="another one added",
        ),
        pytest.param([], [["Replaced foo=5"], ["Deleted bar=6†"], ["Deleted baz=7†"]], id="nothing queued"),
        pytest.param(
            [("update", make_thing("foo", "9")), ("delete", make_thing("foo", "9"))],
            [["Updated foo=9", "Deleted foo=9", "Replaced foo=5"], ["Deleted bar=6†"], ["Deleted baz=7†"]],
            id="the listed one deleted before",
        ),
    ],
)
def test_a_list_deletes_what_it_lacks_the_queued_before_the_held(
    before: list[tuple[str, Event]], expected: list[list[str]]
) -> None:
    fifo = make_fifo(*KNOWN)
    for method, found in before:
        getattr(fifo, method)(found)
    fifo.replace([make_thing("foo", "5")])
    assert drain(fifo) == expected


def test_of_two_deletions_the_one_that_saw_the_last_state_stays() -> None:
    fifo = make_fifo(FOO)
    fifo.replace([])
    fifo.delete(FOO2)
    assert drain(fifo) == [["Deleted foo=2"]]


def test_of_two_seen_deletions_the_older_stays() -> None:
    fifo = make_fifo(FOO)
    fifo.delete(FOO)
    fifo.delete(FOO2)
    assert drain(fifo) == [["Deleted foo=1"]]


def test_the_first_list_is_synced_when_its_objects_and_its_deletions_are_popped() -> None:
    fifo = make_fifo(*KNOWN)
    fifo.replace([make_thing("foo", "5")])
    initial: list[bool] = []
    for _ in range(3):
        assert not fifo.has_synced
        fifo.pop(lambda _deltas, is_initial: initial.append(is_initial))
    assert initial == [True, True, True]
    assert fifo.has_synced


def test_a_popped_key_that_comes_again_goes_to_the_end() -> None:
    fifo = make_fifo()
    for name in ("foo", "bar"):
        fifo.add(make_thing(name, "1"))
    assert told(pop(fifo)) == ["Added foo=1"]
    fifo.add(make_thing("foo", "2"))
    fifo.add(make_thing("bar", "2"))
    assert drain(fifo) == [["Added bar=1", "Added bar=2"], ["Added foo=2"]]


def test_objects_and_tombstones_have_the_same_key() -> None:
    found = make_thing("a", namespace="ns")
    tombstone = DeletedFinalStateUnknown("ns/a", found)
    assert {key_of(found), key_of(tombstone)} == {"ns/a"}
    assert key_of(make_thing("a")) == "a"


BAR = make_thing("bar")


@pytest.mark.parametrize(
    ("steps", "pops", "expected"),
    [
        pytest.param([], 0, False, id="nothing came"),
        pytest.param([("add", FOO)], 0, True, id="an addition came first"),
        pytest.param([("replace", [])], 0, True, id="an empty list"),
        pytest.param([("replace", [FOO, BAR])], 0, False, id="two listed, none popped"),
        pytest.param([("replace", [FOO, BAR])], 1, False, id="two listed, one popped"),
        pytest.param([("replace", [FOO, BAR])], 2, True, id="two listed, both popped"),
        pytest.param([("replace", [FOO, FOO])], 1, True, id="one listed twice, popped"),
    ],
)
def test_it_is_synced_when_its_first_content_is_popped(
    steps: list[tuple[str, object]], pops: int, expected: bool
) -> None:
    fifo = make_fifo()
    for method, argument in steps:
        getattr(fifo, method)(argument)
    for _ in range(pops):
        pop(fifo)
    assert fifo.has_synced is expected
    assert fifo.wait_until_synced(0) is expected


def test_it_is_not_synced_before_the_last_object_has_been_processed() -> None:
    fifo = make_fifo()
    fifo.replace([FOO])
    inside: list[bool] = []
    fifo.pop(lambda _deltas, _initial: inside.append(fifo.has_synced))
    assert inside == [False]
    assert fifo.has_synced


def test_a_process_that_raises_has_had_its_deltas() -> None:
    fifo = make_fifo()
    fifo.replace([FOO])

    def fail(_deltas: Sequence[Delta[Event]], _initial: bool) -> None:
        raise ValueError("cannot")

    with pytest.raises(ValueError, match="cannot"):
        fifo.pop(fail)
    assert len(fifo) == 0
    assert fifo.has_synced


def test_closing_ends_all_who_wait() -> None:
    fifo = make_fifo()
    popped: list[Sequence[Delta[Event]]] = []

    def wait() -> None:
        popped.append(pop(fifo))

    threads = [threading.Thread(target=wait) for _ in range(10)]
    for thread in threads:
        thread.start()
    fifo.close()
    for thread in threads:
        thread.join(30)
    assert popped == [()] * 10


def test_a_closed_queue_hands_out_what_it_holds() -> None:
    fifo = make_fifo()
    fifo.add(FOO)
    fifo.close()
    assert told(pop(fifo)) == ["Added foo=1"]
    assert pop(fifo) == ()
