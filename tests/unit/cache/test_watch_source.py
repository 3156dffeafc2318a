"""The fake that tests of informers stand on."""

from __future__ import annotations

import pytest

from eventbus.errors import EventBusError, Expired, NotFound
from eventbus.model.event import Event
from eventbus.model.list_watch import ListOptions
from eventbus.model.selectors import EVENT_FIELDS, InvalidSelector
from eventbus.testing import FakeWatch, FakeWatchSource
from tests.unit.cache.things import make_thing


@pytest.fixture
def source() -> FakeWatchSource[Event]:
    return FakeWatchSource(fields=EVENT_FIELDS)


def read(watch: FakeWatch[Event]) -> list[str]:
    """Return what the watch has to deliver, and end it."""
    watch.close()
    return [
        f"{event.type} {event.object.metadata.name}@{event.resource_version}"
        if event.object is not None
        else f"{event.type} {event.error or event.resource_version}"
        for event in watch
    ]


def test_initial_events_end_with_a_bookmark_and_cannot_be_resumed_in_their_middle(
    source: FakeWatchSource[Event],
) -> None:
    for name in "abc":
        source.add(make_thing(name))
    options = ListOptions(resource_version=source.version, send_initial_events=True, allow_bookmarks=True)
    first, second, last, end = told = list(_closed(source.watch(options)))
    assert [event.initial_events_end for event in told] == [False, False, False, True]
    for event in (first, second):
        with pytest.raises(Expired):
            source.watch(ListOptions(resource_version=event.resource_version))
    for event in (last, end):
        assert list(_closed(source.watch(ListOptions(resource_version=event.resource_version)))) == []


@pytest.mark.parametrize("version", ["", "0"])
def test_without_initial_events_a_watch_of_any_version_begins_now(source: FakeWatchSource[Event], version: str) -> None:
    source.add(make_thing("a"))
    watch = source.watch(ListOptions(resource_version=version, send_initial_events=False))
    source.add(make_thing("b"))
    assert [event.object.metadata.name for event in _closed(watch) if event.object] == ["b"]


def _closed(watch: FakeWatch[Event]) -> FakeWatch[Event]:
    watch.close()
    return watch


def test_to_leave_a_selection_is_to_be_deleted_and_to_enter_it_to_be_added(source: FakeWatchSource[Event]) -> None:
    watch = source.watch(ListOptions(resource_version="1", label_selector="app=web"))
    source.add(make_thing("a", app="db"))
    source.modify(make_thing("a", app="web"))
    source.modify(make_thing("a", "1", app="web"))
    source.modify(make_thing("a", app="db"))
    source.delete(make_thing("a"))
    assert read(watch) == ["ADDED a@3", "MODIFIED a@4", "DELETED a@5"]


def test_what_leaves_a_selection_is_told_as_it_was_in_it(source: FakeWatchSource[Event]) -> None:
    source.add(make_thing("a", app="web"))
    watch = source.watch(ListOptions(resource_version="2", label_selector="app=web"))
    source.modify(make_thing("a", app="db"))
    [left] = [event.object for event in _closed(watch)]
    assert left is not None
    assert (left.metadata.labels, left.metadata.resource_version) == ({"app": "web"}, "3")


def test_lists_select_by_namespace_labels_and_fields(source: FakeWatchSource[Event]) -> None:
    source.add(make_thing("a", namespace="x", app="web"))
    source.add(make_thing("b", namespace="x"))
    source.add(make_thing("a", namespace="y"))

    def listed(namespace: str = "", label_selector: str = "", field_selector: str = "") -> list[str]:
        options = ListOptions(namespace=namespace, label_selector=label_selector, field_selector=field_selector)
        return [f"{found.metadata.namespace}/{found.metadata.name}" for found in source.list(options).items]

    assert listed() == ["x/a", "x/b", "y/a"]
    assert listed(namespace="x") == ["x/a", "x/b"]
    assert listed(label_selector="app") == ["x/a"]
    assert listed(field_selector="metadata.name=a") == ["x/a", "y/a"]
    with pytest.raises(InvalidSelector, match="field label not supported: bogus"):
        listed(field_selector="bogus=1")


def test_pages_continue_until_they_expire(source: FakeWatchSource[Event]) -> None:
    for name in "abcde":
        source.add(make_thing(name))
    first = source.list(ListOptions(limit=2))
    second = source.list(ListOptions(limit=2, continue_=first.continue_))
    last = source.list(ListOptions(limit=2, continue_=second.continue_))
    assert ["".join(e.metadata.name for e in page.items) for page in (first, second, last)] == ["ab", "cd", "e"]
    assert (bool(second.continue_), last.continue_) == (True, "")
    source.add(make_thing("f"))
    source.expire()
    with pytest.raises(Expired):
        source.list(ListOptions(limit=2, continue_=first.continue_))


def test_who_is_behind_is_told_expired_and_who_is_not_goes_on(source: FakeWatchSource[Event]) -> None:
    behind = source.watch(ListOptions(resource_version="1"))
    source.add(make_thing("a"))
    current = source.watch(ListOptions(resource_version="2"))
    source.expire()
    source.add(make_thing("b"))
    assert read(behind) == ["ERROR too old resource version (2)"]
    assert read(current) == ["ADDED b@3"]
    with pytest.raises(Expired, match=r"^too old resource version: 1 \(2\)$"):
        source.watch(ListOptions(resource_version="1"))


def test_a_version_from_the_future_is_refused(source: FakeWatchSource[Event]) -> None:
    with pytest.raises(Expired, match="too large resource version"):
        source.list(ListOptions(resource_version="99"))


def test_failures_come_once_each_in_order(source: FakeWatchSource[Event]) -> None:
    source.fail_next_list(EventBusError("1"), EventBusError("2"))
    source.fail_next_watch(EventBusError("3"))
    for expected in ("1", "2"):
        with pytest.raises(EventBusError, match=expected):
            source.list(ListOptions())
    source.list(ListOptions())
    with pytest.raises(EventBusError, match="3"):
        source.watch(ListOptions())
    source.watch(ListOptions())
    assert (len(source.lists), len(source.watches)) == (3, 2)


def test_bookmarks_come_to_those_who_want_them(source: FakeWatchSource[Event]) -> None:
    plain = source.watch(ListOptions(resource_version="1"))
    wanting = source.watch(ListOptions(resource_version="1", allow_bookmarks=True))
    source.bookmark()
    assert (read(plain), read(wanting)) == ([], ["BOOKMARK 1"])


def test_what_is_not_there_is_neither_modified_nor_deleted(source: FakeWatchSource[Event]) -> None:
    for write in (source.modify, source.delete):
        with pytest.raises(NotFound):
            write(make_thing("a"))
