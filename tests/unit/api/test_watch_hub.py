"""Changes on their way from the hub's thread to watches in the loop: each watch gets each change once, in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest

from eventbus.api.kube.rendering import Renderer
from eventbus.api.watch.hub import WatchHub, WatchKey
from eventbus.errors import EventBusError, Expired
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import EVENT, NODE, Kind
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


class Encoder:
    """A line is the name of the object. Counts the lines that are made, and those that are written to a watch."""

    def __init__(self) -> None:
        self.made: Counter[bytes] = Counter()
        self.written = 0

    def line(self, _renderer: Renderer, event: WatchEvent[Any], *, first: bool) -> bytes:
        assert event.object is not None
        if event.object.metadata.name == "bad":
            raise ValueError("it cannot be shown")
        line = f"{event.type} {event.object.metadata.name}\n".encode()
        self.made[line] += 1
        return line

    def count(self, _resource: object, lines: int) -> None:
        self.written += lines


class Watched:
    """A watch that waits together with others, as an API worker has it."""

    def __init__(self, scene: Scene, *, after: int = 10, namespace: str = "") -> None:
        self.scene = scene
        self.got: list[str] = []
        self.room = 10**9  # lines that may be written
        self.state: WatchState[Any] = WatchState(
            selection=selection_of(NODE, namespace, "", ""),
            options=ListOptions(),
            start=WatchStart(after=Versions([after]), newest=(after,)),
            now=0.0,
            ready=self.ready,
        )
        offered = scene.watch_hub.attach(self.state, cast("Storage[Any]", Nodes()), [after])
        self.state.starts_at([offered])
        self.alone()

    def ready(self) -> None:
        self.scene.watch_hub.leave(self.state, NODE)
        asyncio.get_running_loop().call_soon(self.alone)

    def alone(self) -> None:
        while isinstance(step := self.state.next(0.0), WatchEvent):
            line = self.scene.encoder.line(RENDERER, step, first=False)
            self.got.append("alone " + line.decode().strip())
        self.ended = not isinstance(step, Idle)
        if not self.ended:
            key = WatchKey(RENDERER, self.state.selection)
            self.scene.watch_hub.join(self.state, NODE, key, self.write, cast("Any", self.scene.encoder))

    def write(self, lines: bytes) -> bool:
        if len(self.got) >= self.room:
            return False
        self.got += lines.decode().splitlines()
        return True


RENDERER = Renderer(cast("Any", NODE))


class Scene:
    def __init__(self) -> None:
        self.hub, self.encoder = Hub(), Encoder()
        self.watch_hub = WatchHub(cast("ChangeHub", self.hub), asyncio.get_running_loop())

    async def happens(self, version: int, *names: str, letter: ChangeType = ChangeType.ADDED) -> None:
        """Offer changes up to *version*, as the hub's thread does."""
        first = version - len(names) + 1
        changes = [Change(letter, node(name, first + at), "k", 0, first + at) for at, name in enumerate(names)]
        await asyncio.to_thread(self.hub.subscriber.offer, 0, changes, version)
        await asyncio.sleep(0.06)  # longer than any pause
        await asyncio.sleep(0)


def node(name: str, version: int) -> Node:
    return Node(metadata=ObjectMeta(name=name, resource_version=str(version)))


def test_a_group_encodes_each_change_once() -> None:
    async def run() -> None:
        scene = Scene()
        watches = [Watched(scene) for _ in range(3)]
        await scene.happens(12, "a", "b")
        await scene.happens(13, "c")
        for each in watches:
            assert each.got == ["ADDED a", "ADDED b", "ADDED c"]
        assert scene.encoder.made == {b"ADDED a\n": 1, b"ADDED b\n": 1, b"ADDED c\n": 1}
        assert scene.encoder.written == 9

    asyncio.run(run())


def test_a_slow_watch_advances_alone_and_joins_again() -> None:
    async def run() -> None:
        scene = Scene()
        quick, slow = Watched(scene), Watched(scene)
        slow.room = 1
        await scene.happens(11, "a")
        await scene.happens(12, "b")
        slow.room = 10**9
        await scene.happens(13, "c")
        assert quick.got == ["ADDED a", "ADDED b", "ADDED c"]
        assert slow.got == ["ADDED a", "alone ADDED b", "ADDED c"]

    asyncio.run(run())


def test_a_watch_that_leaves_has_the_position_of_the_group() -> None:
    async def run() -> None:
        scene = Scene()
        stays, leaves = Watched(scene), Watched(scene)
        await scene.happens(14, "a", "b")
        scene.watch_hub.leave(leaves.state, NODE)
        assert leaves.state.position == (14,)
        leaves.alone()
        await scene.happens(15, "c")
        assert leaves.got == stays.got == ["ADDED a", "ADDED b", "ADDED c"]
        for each in (stays, leaves):
            scene.watch_hub.leave(each.state, NODE)
            scene.watch_hub.detach(each.state, NODE)
        assert not hasattr(scene.hub, "subscriber")

    asyncio.run(run())


def test_only_watches_with_equal_position_and_selection_share_a_group() -> None:
    async def run() -> None:
        scene = Scene()
        first = Watched(scene)
        other, ahead = Watched(scene, namespace="other"), Watched(scene, after=11)
        await scene.happens(11, "a")
        await scene.happens(12, "b")
        assert first.got == ["ADDED a", "ADDED b"]
        assert (other.got, ahead.got) == ([], ["ADDED b"])

    asyncio.run(run())


def test_each_watch_gets_a_failure() -> None:
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


def test_each_watch_gets_an_overflow_and_an_object_that_cannot_be_encoded() -> None:
    async def run() -> None:
        scene = Scene()
        watches = [Watched(scene) for _ in range(2)]
        await scene.happens(11 + BUFFERED, *["a"] * (BUFFERED + 1))
        assert [(each.got, each.ended) for each in watches] == [([], True)] * 2
        later = Watched(scene, after=11 + BUFFERED)
        met: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, found: met.append(str(found["exception"])))
        await scene.happens(13 + BUFFERED, "fine", "bad")
        assert (met, later.ended) == (["it cannot be shown"], False)

    asyncio.run(run())


class FeedHub:
    """A hub that can offer a change before `attach` has returned."""

    def __init__(self, early: int = 0) -> None:
        self.subscribers: list[Subscriber] = []
        self._early = early

    def attach(self, subscriber: Subscriber, _storage: object, newest: Sequence[int]) -> tuple[int, ...]:
        self.subscribers.append(subscriber)
        if self._early:
            subscriber.offer(0, [], self._early)
        return tuple(newest)

    def detach(self, subscriber: Subscriber, _kind: Kind[Any]) -> None:
        self.subscribers.remove(subscriber)


class Watch:
    def __init__(self) -> None:
        self.got: list[int] = []
        self.failure: EventBusError | None = None

    def offer(self, _partition: int, _changes: Sequence[Any], version: int) -> None:
        asyncio.get_running_loop()  # raises outside of the loop
        self.got.append(version)

    def fail(self, error: EventBusError) -> None:
        self.failure = error


class Events:
    kind = EVENT


STORAGE = cast("Storage[Any]", Events())


def watch_hub_over(hub: FeedHub) -> WatchHub:
    return WatchHub(cast("ChangeHub", hub), asyncio.get_running_loop())


def test_a_new_watch_starts_after_the_changes_that_were_offered() -> None:
    async def scene() -> None:
        watch_hub = watch_hub_over(FeedHub(early=7))
        first, second = Watch(), Watch()
        assert watch_hub.attach(first, STORAGE, [5]) == (7,)
        assert watch_hub.attach(second, STORAGE, [6]) == (7,)

    asyncio.run(scene())


def test_the_feed_has_one_subscriber_until_the_last_watch_leaves() -> None:
    async def scene() -> None:
        hub = FeedHub()
        watch_hub = watch_hub_over(hub)
        first, second = Watch(), Watch()
        watch_hub.attach(first, STORAGE, [1])
        watch_hub.attach(second, STORAGE, [1])
        (only,) = hub.subscribers
        for version in (2, 3, 4):
            await asyncio.to_thread(only.offer, 0, [], version)
        while first.got[-1:] != [4] or second.got[-1:] != [4]:  # the hub may pause between two rounds
            await asyncio.sleep(0)
        assert first.got == second.got == [2, 3, 4]
        watch_hub.detach(first, EVENT)
        watch_hub.detach(first, EVENT)
        assert hub.subscribers == [only]
        watch_hub.detach(second, EVENT)
        assert hub.subscribers == []

    asyncio.run(scene())


def test_a_failure_ends_all_watches_and_the_next_one_attaches_again() -> None:
    async def scene() -> None:
        hub = FeedHub()
        watch_hub = watch_hub_over(hub)
        first, second = Watch(), Watch()
        watch_hub.attach(first, STORAGE, [1])
        (only,) = hub.subscribers
        await asyncio.to_thread(only.fail, Expired("gone"))
        while first.failure is None:
            await asyncio.sleep(0)
        assert isinstance(first.failure, Expired)
        assert watch_hub.attach(second, STORAGE, [9]) == (9,)
        assert len(hub.subscribers) == 2
        assert second.failure is None

    asyncio.run(scene())
