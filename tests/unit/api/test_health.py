"""Readiness, which anybody may ask for."""

from __future__ import annotations

import asyncio

import pytest

from eventbus.api import health
from eventbus.api.health import Readiness
from eventbus.errors import BusUnavailable


class Redis:
    """The other end of pings: open or closed, there or not."""

    def __init__(self) -> None:
        self.pings = 0
        self.open = asyncio.Event()
        self.is_there = True

    async def ping(self) -> None:
        self.pings += 1
        await self.open.wait()
        if not self.is_there:
            raise BusUnavailable("gone")


def test_many_who_ask_at_once_and_soon_after_cost_one_ping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "KEPT_S", 3600)

    async def go() -> None:
        redis = Redis()
        readiness = Readiness(redis.ping)
        asking = [asyncio.create_task(readiness.redis_answers()) for _ in range(1000)]
        await asyncio.sleep(0)
        redis.open.set()
        assert await asyncio.gather(*asking) == [True] * 1000
        assert await readiness.redis_answers()
        assert redis.pings == 1

    asyncio.run(go())


def test_what_takes_too_long_is_not_ready_and_asked_no_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "KEPT_S", 0)
    monkeypatch.setattr(health, "READY_S", 0.001)

    async def go() -> None:
        redis = Redis()
        readiness = Readiness(redis.ping)
        assert [await readiness.redis_answers() for _ in range(3)] == [False] * 3
        assert redis.pings == 1
        redis.open.set()
        async with asyncio.timeout(60):
            while not await readiness.redis_answers():
                await asyncio.sleep(0)

    asyncio.run(go())


def test_an_answer_is_asked_for_again_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "KEPT_S", 0)

    async def go() -> None:
        redis = Redis()
        readiness = Readiness(redis.ping)
        redis.open.set()
        assert await readiness.redis_answers()
        redis.is_there = False
        assert not await readiness.redis_answers()
        redis.is_there = True
        assert await readiness.redis_answers()

    asyncio.run(go())
