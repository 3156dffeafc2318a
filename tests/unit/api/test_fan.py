"""Changes on their way from the hub's thread to the loop: none is lost to who comes in between, and few wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from eventbus.api.watch.hub import FanHub
from eventbus.errors import EventBusError, Expired
from eventbus.model.kinds import EVENT, Kind
from eventbus.store.change_hub import ChangeHub, Subscriber
from eventbus.store.storage import Storage


class Hub:
    """A hub that offers when it is told to, also before `attach` has returned."""

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
        self.told: list[int] = []
        self.failure: EventBusError | None = None

    def offer(self, _partition: int, _changes: Sequence[Any], version: int) -> None:
        asyncio.get_running_loop()  # raises elsewhere than in the loop
        self.told.append(version)

    def fail(self, error: EventBusError) -> None:
        self.failure = error


class Events:
    kind = EVENT


STORAGE = cast("Storage[Any]", Events())


def fan_over(hub: Hub) -> FanHub:
    return FanHub(cast("ChangeHub", hub), asyncio.get_running_loop())


def test_what_was_offered_to_nobody_yet_is_behind_who_comes_then() -> None:
    async def scene() -> None:
        fan = fan_over(Hub(early=7))
        first, second = Watch(), Watch()
        assert fan.attach(first, STORAGE, [5]) == (7,)
        assert fan.attach(second, STORAGE, [6]) == (7,)

    asyncio.run(scene())


def test_one_subscriber_stands_for_all_and_leaves_with_the_last() -> None:
    async def scene() -> None:
        hub = Hub()
        fan = fan_over(hub)
        first, second = Watch(), Watch()
        fan.attach(first, STORAGE, [1])
        fan.attach(second, STORAGE, [1])
        (only,) = hub.subscribers
        for version in (2, 3, 4):
            await asyncio.to_thread(only.offer, 0, [], version)
        while first.told[-1:] != [4] or second.told[-1:] != [4]:  # what comes while it tells, it tells a little later
            await asyncio.sleep(0)
        assert first.told == second.told == [2, 3, 4]
        fan.detach(first, EVENT)
        fan.detach(first, EVENT)
        assert hub.subscribers == [only]
        fan.detach(second, EVENT)
        assert hub.subscribers == []

    asyncio.run(scene())


def test_a_loss_is_told_to_all_and_the_next_watch_begins_anew() -> None:
    async def scene() -> None:
        hub = Hub()
        fan = fan_over(hub)
        first, second = Watch(), Watch()
        fan.attach(first, STORAGE, [1])
        (only,) = hub.subscribers
        await asyncio.to_thread(only.fail, Expired("gone"))
        while first.failure is None:
            await asyncio.sleep(0)
        assert isinstance(first.failure, Expired)
        assert fan.attach(second, STORAGE, [9]) == (9,)
        assert len(hub.subscribers) == 2
        assert second.failure is None

    asyncio.run(scene())
