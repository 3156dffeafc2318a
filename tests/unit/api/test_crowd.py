"""Watches that are told together: each is told every change once, in order, whoever of them has no room."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest

from eventbus.api.kube.rendering import Renderer
from eventbus.api.watch.group import Piece, Tone
from eventbus.api.watch.hub import FanHub
from eventbus.errors import Expired
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import NODE, Kind
from eventbus.model.list_watch import ListOptions, WatchEvent
from eventbus.model.objects.cluster import Node
from eventbus.store.change_hub import ChangeHub, Subscriber
from eventbus.store.changes import Change, Versions
from eventbus.store.selection import selection_of
from eventbus.store.storage import ChangeType, Storage
from eventbus.store.watch import BUFFERED, Idle, WatchStart, WatchState


class Hub:
    def attach(self, subscriber: Subscriber, _storage: object, newest: Sequence[int]) -> tuple[int, ...]:
        self.subscriber = subscriber
        return tuple(newest)

    def detach(self, subscriber: Subscriber, _kind: Kind[Any]) -> None:
        del self.subscriber


class Nodes:
    kind = NODE


class Lines:
    """A line is the name of the object; counts what was told, of whichever watch."""

    def __init__(self) -> None:
        self.made: Counter[bytes] = Counter()
        self.told: Counter[bytes] = Counter()

    def line(self, _renderer: Renderer, event: WatchEvent[Any], *, first: bool) -> bytes:
        assert event.object is not None
        if event.object.metadata.name == "bad":
            raise ValueError("it cannot be shown")
        line = f"{event.type} {event.object.metadata.name}\n".encode()
        self.made[line] += 1
        return line

    def note(self, _renderer: Renderer, line: bytes, times: int = 1) -> None:
        self.told[line] += times


class Watched:
    """A watch that waits together with others, as an API worker has it."""

    def __init__(self, scene: Scene, *, after: int = 10, namespace: str = "") -> None:
        self.scene = scene
        self.told: list[str] = []
        self.room = 10**9  # pieces that may be written
        self.full_behind = 10**9
        self.state: WatchState[Any] = WatchState(
            selection=selection_of(NODE, namespace, "", ""),
            options=ListOptions(),
            start=WatchStart(after=Versions([after]), newest=(after,)),
            now=0.0,
            ready=self.ready,
        )
        offered = scene.fan.attach(self.state, cast("Storage[Any]", Nodes()), [after])
        self.state.starts_at([offered])
        self.alone()

    def ready(self) -> None:
        self.scene.fan.scatter(self.state, NODE)
        asyncio.get_running_loop().call_soon(self.alone)

    def alone(self) -> None:
        while isinstance(step := self.state.next(0.0), WatchEvent):
            line = self.scene.lines.line(RENDERER, step, first=False)
            self.scene.lines.note(RENDERER, line)
            self.told.append("alone " + line.decode().strip())
        self.ended = not isinstance(step, Idle)
        if not self.ended:
            tone = Tone(RENDERER, self.state.selection)
            self.scene.fan.gather(self.state, NODE, tone, self, cast("Any", self.scene.lines))

    def take(self, piece: Piece) -> bool:
        if len(self.told) >= self.room:
            return False
        self.told += piece.lines.decode().splitlines()
        return True

    def has_room(self) -> bool:
        return len(self.told) < self.full_behind


RENDERER = Renderer(cast("Any", NODE))


class Scene:
    def __init__(self) -> None:
        self.hub, self.lines = Hub(), Lines()
        self.fan = FanHub(cast("ChangeHub", self.hub), asyncio.get_running_loop())

    async def happens(self, version: int, *names: str, letter: ChangeType = ChangeType.ADDED) -> None:
        """Offer changes up to *version*, as the hub's thread does."""
        first = version - len(names) + 1
        changes = [Change(letter, node(name, first + at), "k", 0, first + at) for at, name in enumerate(names)]
        await asyncio.to_thread(self.hub.subscriber.offer, 0, changes, version)
        await asyncio.sleep(0.06)  # longer than it ever rests
        await asyncio.sleep(0)


def node(name: str, version: int) -> Node:
    return Node(metadata=ObjectMeta(name=name, resource_version=str(version)))


def test_all_that_wait_are_told_what_is_made_once() -> None:
    async def run() -> None:
        scene = Scene()
        watches = [Watched(scene) for _ in range(3)]
        await scene.happens(12, "a", "b")
        await scene.happens(13, "c")
        for each in watches:
            assert each.told == ["ADDED a", "ADDED b", "ADDED c"]
        assert scene.lines.made == {b"ADDED a\n": 1, b"ADDED b\n": 1, b"ADDED c\n": 1}
        assert set(scene.lines.told.values()) == {3}

    asyncio.run(run())


def test_who_has_no_room_goes_on_alone_and_comes_back() -> None:
    async def run() -> None:
        scene = Scene()
        quick, slow, full = (Watched(scene) for _ in range(3))
        slow.room, full.full_behind = 1, 1
        await scene.happens(11, "a")
        await scene.happens(12, "b")
        slow.room = full.full_behind = 10**9
        await scene.happens(13, "c")
        assert quick.told == ["ADDED a", "ADDED b", "ADDED c"]
        assert slow.told == ["ADDED a", "alone ADDED b", "ADDED c"]
        assert [line.removeprefix("alone ") for line in full.told] == quick.told
        assert scene.lines.told == {b"ADDED a\n": 3, b"ADDED b\n": 3, b"ADDED c\n": 3}

    asyncio.run(run())


def test_who_leaves_stands_where_the_others_do() -> None:
    async def run() -> None:
        scene = Scene()
        stays, leaves = Watched(scene), Watched(scene)
        await scene.happens(14, "a", "b")
        scene.fan.scatter(leaves.state, NODE)
        assert leaves.state.position == (14,)
        leaves.alone()
        await scene.happens(15, "c")
        assert leaves.told == stays.told == ["ADDED a", "ADDED b", "ADDED c"]
        for each in (stays, leaves):
            scene.fan.scatter(each.state, NODE)
            scene.fan.detach(each.state, NODE)
        assert not hasattr(scene.hub, "subscriber")

    asyncio.run(run())


def test_only_who_stands_at_the_same_place_and_selects_the_same_joins() -> None:
    async def run() -> None:
        scene = Scene()
        first = Watched(scene)
        other, ahead = Watched(scene, namespace="other"), Watched(scene, after=11)
        await scene.happens(11, "a")
        await scene.happens(12, "b")
        assert first.told == ["ADDED a", "ADDED b"]
        assert (other.told, ahead.told) == ([], ["ADDED b"])

    asyncio.run(run())


def test_a_loss_is_told_to_each() -> None:
    async def run() -> None:
        scene = Scene()
        watches = [Watched(scene) for _ in range(2)]
        for each in watches:
            each.alone = lambda: None  # type: ignore[method-assign]
        await asyncio.to_thread(scene.hub.subscriber.fail, Expired("gone"))
        await asyncio.sleep(0.01)
        for each in watches:
            with pytest.raises(Expired):
                each.state.next(0.0)

    asyncio.run(run())


def test_too_much_at_once_ends_each_and_what_cannot_be_shown_is_met_by_each() -> None:
    async def run() -> None:
        scene = Scene()
        watches = [Watched(scene) for _ in range(2)]
        await scene.happens(11 + BUFFERED, *["a"] * (BUFFERED + 1))
        assert [(each.told, each.ended) for each in watches] == [([], True)] * 2
        later = Watched(scene, after=11 + BUFFERED)
        met: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, found: met.append(str(found["exception"])))
        await scene.happens(13 + BUFFERED, "fine", "bad")
        assert (met, later.ended) == (["it cannot be shown"], False)

    asyncio.run(run())
