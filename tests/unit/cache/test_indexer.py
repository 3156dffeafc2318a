"""The local copy, its indexes, and reading it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

import pytest

from eventbus.cache.indexer import NAMESPACE, Indexer, Lister
from eventbus.model.event import Event
from eventbus.model.selectors import InvalidSelector, LabelSelector
from tests.unit.cache.things import make_thing
from tests.waiting import eventually


def by_letters(found: Event) -> Iterable[str]:
    return set(found.message)


def by_letter() -> Indexer[Event]:
    indexer: Indexer[Event] = Indexer()
    indexer.add_indexers({"letters": by_letters})
    return indexer


def names(found: Iterable[Event]) -> list[str]:
    return sorted(thing.metadata.name for thing in found)


def test_objects_are_found_by_every_value_of_an_index() -> None:
    indexer = by_letter()
    indexer.add(make_thing("a", "xy"))
    indexer.add(make_thing("b", "yz"))
    assert names(indexer.by_index("letters", "y")) == ["a", "b"]
    assert sorted(indexer.index_keys("letters", "z")) == ["b"]
    assert sorted(indexer.index_values("letters")) == ["x", "y", "z"]
    assert names(indexer.index("letters", make_thing("asks", "xz"))) == ["a", "b"]


def test_an_update_moves_the_object_in_every_index() -> None:
    indexer = by_letter()
    indexer.add(make_thing("a", "xy"))
    indexer.add(make_thing("a", "yz"))
    assert indexer.by_index("letters", "x") == []
    assert names(indexer.by_index("letters", "z")) == ["a"]
    assert sorted(indexer.index_values("letters")) == ["y", "z"], "a value without objects is gone"


def test_a_deletion_takes_the_object_out_of_every_index() -> None:
    indexer = by_letter()
    indexer.add(make_thing("a", "x"))
    indexer.delete_key("a")
    indexer.delete_key("never there")
    assert (indexer.list(), indexer.index_values("letters"), len(indexer)) == ([], [], 0)


def test_the_name_of_an_index_can_be_used_once() -> None:
    indexer: Indexer[Event] = Indexer()
    with pytest.raises(ValueError, match="indexer conflict: namespace"):
        indexer.add_indexers({"letters": by_letters, NAMESPACE: by_letters})
    with pytest.raises(ValueError, match="does not exist"):
        indexer.index_values("letters")


def test_an_unknown_index_is_an_error() -> None:
    indexer: Indexer[Event] = Indexer()
    for ask in (indexer.by_index, indexer.index_keys):
        with pytest.raises(ValueError, match="index with name bogus does not exist"):
            ask("bogus", "x")


def test_an_index_function_that_raises_costs_its_index_only(caplog: pytest.LogCaptureFixture) -> None:
    def first_letter(found: Event) -> Iterable[str]:
        return (found.message[0],)

    indexer = by_letter()
    indexer.add_indexers({"first": first_letter})
    with caplog.at_level(logging.ERROR):
        indexer.add(make_thing("a", ""))
    assert "Index first failed on a" in caplog.text
    assert names(indexer.list()) == ["a"]
    indexer.add(make_thing("a", "x"))
    assert names(indexer.by_index("first", "x")) == ["a"]


def test_an_object_is_found_by_another_with_its_key() -> None:
    indexer: Indexer[Event] = Indexer()
    indexer.add(make_thing("a", "new", namespace="ns"))
    found = indexer.get(make_thing("a", "old", namespace="ns"))
    assert found is not None
    assert found.message == "new"
    assert indexer.get(make_thing("a")) is None


def test_readers_and_writers_do_not_disturb_each_other() -> None:
    indexer = by_letter()
    problems: list[Exception] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                indexer.by_index("letters", "x")
                indexer.list()
                indexer.index_values("letters")
        except Exception as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for i in range(2000):
        indexer.add(make_thing(f"n{i % 50}", "xyz"[i % 3]))
        indexer.delete_key(f"n{(i + 25) % 50}")
    done.set()
    for reader in readers:
        reader.join(30)
    assert problems == []
    eventually(lambda: len(indexer) == 25)


@pytest.fixture
def lister() -> Lister[Event]:
    indexer: Indexer[Event] = Indexer()
    indexer.add(make_thing("one", namespace="ns", app="web"))
    indexer.add(make_thing("two", namespace="ns", app="db"))
    indexer.add(make_thing("one", namespace="other", app="web"))
    indexer.add(make_thing("node-1", app="web"))
    return Lister(indexer, "nodes")


def test_a_lister_lists_what_a_selector_of_labels_selects(lister: Lister[Event]) -> None:
    assert names(lister.list()) == ["node-1", "one", "one", "two"]
    assert names(lister.list("app=web")) == ["node-1", "one", "one"]
    assert names(lister.list(LabelSelector.parse("app!=web"))) == ["two"]
    with pytest.raises(InvalidSelector):
        lister.list("app in web")


def test_a_lister_keeps_to_its_namespace(lister: Lister[Event]) -> None:
    assert names(lister.namespaced("ns").list()) == ["one", "two"]
    assert names(lister.namespaced("ns").list("app=web")) == ["one"]
    assert lister.namespaced("nowhere").list() == []
    assert lister.namespaced("other").get("one").metadata.namespace == "other"
