"""A watch as a state machine: it never blocks, says what it waits for, and wakes its reader once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from eventbus.errors import Expired
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import NODE
from eventbus.model.list_watch import ListOptions, WatchEvent, WatchEventType
from eventbus.model.objects.cluster import Node
from eventbus.store.changes import Change, Versions
from eventbus.store.selection import Selection, Was
from eventbus.store.storage import ChangeType
from eventbus.store.watch import BOOKMARK_S, BUFFERED, CatchUp, Idle, WatchStart, WatchState


class Watched:
    """A watch of nodes on two partitions, offered all behind *offered*."""

    def __init__(
        self,
        *,
        after: tuple[int, int] = (10, 20),
        newest: tuple[int, int] | None = None,
        offered: tuple[int, int] | None = None,
        items: tuple[Node, ...] = (),
        marks_end: bool = False,
        path: Sequence[tuple[int, int]] = (),
        **options: Any,
    ) -> None:
        self.woken = 0
        asked = ListOptions(**options)
        self.state = WatchState(
            selection=Selection(NODE, asked),
            options=asked,
            start=WatchStart(
                after=Versions(after),
                newest=newest or after,
                items=items,
                item_versions=tuple(int(item.metadata.resource_version) for item in items),
                marks_end=marks_end,
            ),
            now=0.0,
            ready=self._wake,
        )
        self.state.starts_at([tuple(map(max, offered or after, newest or after)), *path])

    def _wake(self) -> None:
        self.woken += 1

    def events(self, now: float = 0.0) -> list[str]:
        """Return what there is to deliver up to the first step that is not an event."""
        found = []
        while isinstance(step := self.state.next(now), WatchEvent):
            name = step.object.metadata.name if step.object else ""
            found.append(f"{step.type} {name} {step.position}")
        self.last: Any = step
        return found


def node(name: str, version: int = 0, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, resource_version=str(version), labels=labels))


def change(
    letter: str, name: str, version: int, partition: int = 0, was: Was | None = None, **labels: str
) -> Change[Any]:
    kinds = {"A": ChangeType.ADDED, "M": ChangeType.MODIFIED, "D": ChangeType.DELETED}
    return Change(kinds[letter], node(name, version, **labels), "k", partition, version, was)


def test_it_waits_for_nothing_but_the_hub_and_is_woken_once() -> None:
    watched = Watched()
    assert watched.events() == []
    assert watched.last == Idle(None)
    for version in (11, 12):
        watched.state.offer(0, [change("A", f"n{version}", version)], version)
    assert watched.woken == 1
    assert watched.events() == ["ADDED n11 11-20", "ADDED n12 12-20"]
    assert watched.last == Idle(None)
    watched.state.offer(1, [], 25)
    assert watched.woken == 1, "there is nothing to tell"
    watched.state.offer(1, [change("M", "x", 26, 1)], 26)
    assert watched.woken == 2
    assert watched.events() == ["MODIFIED x 12-26"]


def test_what_came_before_the_hub_is_asked_for_until_it_is_there() -> None:
    watched = Watched(offered=(14, 20))
    assert watched.state.next(0) == CatchUp(0, 10, 14)
    assert watched.state.next(0) == CatchUp(0, 10, 14), "nothing was read"
    watched.state.offer(0, [change("A", "n15", 15)], 15)
    watched.state.caught_up([change("A", "n11", 11), change("A", "n12", 12)], 12)
    assert watched.events() == ["ADDED n11 11-20", "ADDED n12 12-20"]
    assert watched.last == CatchUp(0, 12, 14)
    watched.state.caught_up([change("A", "n14", 14), change("A", "n15", 15)], 15)
    assert watched.events() == ["ADDED n14 14-20", "ADDED n15 15-20"], "n15 comes from the hub, once"
    assert watched.last == Idle(None)


def test_nobody_goes_on_from_the_middle_of_what_there_was_at_the_beginning() -> None:
    items = (node("a", 5), node("b", 12))
    watched = Watched(items=items, newest=(12, 20), offered=(12, 20), marks_end=True)
    assert watched.events() == ["ADDED a unfinished", "ADDED b unfinished"]
    assert watched.last == CatchUp(0, 10, 12)
    watched.state.caught_up([change("M", "a", 11), change("M", "b", 12)], 12)
    assert watched.events() == ["MODIFIED a unfinished", "BOOKMARK  12-20"], "b was listed as it is now"


def test_bookmarks_are_due_by_the_readers_clock_and_one_stands_at_the_end() -> None:
    watched = Watched(allow_bookmarks=True, timeout_s=100.0)
    assert watched.events() == []
    assert watched.last == Idle(BOOKMARK_S)
    watched.state.offer(0, [], 13)
    assert watched.events(BOOKMARK_S) == ["BOOKMARK  13-20"]
    assert watched.last == Idle(100.0)
    watched.state.offer(1, [], 30)
    assert watched.events(100.0) == ["BOOKMARK  13-30"]
    assert watched.last is None
    assert watched.state.next(200.0) is None


def test_a_stopped_watch_tells_nothing_more_and_wakes_who_waits() -> None:
    watched = Watched(allow_bookmarks=True)
    watched.events()
    watched.state.offer(0, [change("A", "n11", 11)], 11)
    watched.state.stop()
    assert watched.woken == 1
    assert watched.events() == []
    assert watched.last is None
    watched.state.stop()


def test_a_loss_is_raised_behind_all_that_was_whole() -> None:
    watched = Watched()
    watched.events()
    watched.state.offer(0, [change("A", "n11", 11)], 11)
    watched.state.fail(Expired("too old resource version"))
    watched.state.offer(0, [change("A", "n12", 12)], 12)
    step = watched.state.next(0)
    assert isinstance(step, WatchEvent)
    assert step.position == "11-20"
    with pytest.raises(Expired, match="too old"):
        watched.events()
    assert watched.state.next(0) is None


def test_one_too_many_that_wait_end_it_behind_those() -> None:
    watched = Watched()
    watched.state.offer(0, [change("A", "n", version) for version in range(11, 11 + BUFFERED)], 10 + BUFFERED)
    watched.state.offer(0, [change("A", "late", 11 + BUFFERED)], 11 + BUFFERED)
    found = watched.events()
    assert len(found) == BUFFERED
    assert found[-1] == f"ADDED n {10 + BUFFERED}-20"
    assert watched.last is None


def test_what_comes_into_a_selection_is_added_and_what_leaves_it_deleted() -> None:
    watched = Watched(label_selector="a=b")
    changes = [
        change("A", "out", 11),
        change("M", "out", 12, was=Was({}, {}), a="b"),
        change("M", "out", 13, a="b"),
        change("M", "out", 14, was=Was({"a": "b"}, {})),
        change("D", "out", 15),
    ]
    watched.state.offer(0, changes, 15)
    assert watched.events() == ["ADDED out 12-20", "MODIFIED out 13-20", "DELETED out 14-20"]
    watched.state.offer(0, [], 16)
    assert watched.events() == []


def test_an_object_that_left_the_selection_is_delivered_as_it_was_selected() -> None:
    watched = Watched(label_selector="a=b")
    watched.state.offer(0, [change("M", "out", 11, was=Was({"a": "b"}, {}), a="c")], 11)
    step = watched.state.next(0)
    assert isinstance(step, WatchEvent)
    assert step.object is not None
    assert (step.type, step.object.metadata.labels) == (WatchEventType.DELETED, {"a": "b"})


def test_the_first_events_are_told_one_a_step() -> None:
    watched = Watched(items=(node("a", 5),))
    step = watched.state.next(0)
    assert isinstance(step, WatchEvent)
    assert (step.type, step.position) == (WatchEventType.ADDED, "10-20")


def test_what_was_there_at_the_beginning_is_let_go_when_it_is_told() -> None:
    held = node("a", 5)
    before = sys.getrefcount(held)
    watched = Watched(items=(held,))
    assert sys.getrefcount(held) > before
    assert watched.events() == ["ADDED a 10-20"]
    assert sys.getrefcount(held) == before


def test_what_is_behind_is_told_in_the_order_of_the_path_and_read_once() -> None:
    watched = Watched(after=(10, 20), offered=(10, 20), path=[(11, 21), (12, 21)])
    assert watched.events() == []
    assert watched.last == CatchUp(0, 10, 11)
    watched.state.caught_up([change("A", "a", 11), change("A", "c", 12)], 12)
    assert watched.events() == ["ADDED a 11-20"]
    assert watched.last == CatchUp(1, 20, 21)
    watched.state.caught_up([change("A", "b", 21, 1)], 21)
    assert watched.events() == ["ADDED b 11-21", "ADDED c 12-21"]


def test_a_position_tells_of_all_that_was_passed_over_before() -> None:
    watched = Watched()
    watched.state.offer(0, [change("A", "a", 11)], 13)  # two that nobody can read are behind it
    watched.state.offer(1, [change("A", "b", 21, 1)], 21)
    assert watched.events() == ["ADDED a 11-20", "ADDED b 13-21"]
