"""`async for` over changes and over the raw stream."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from eventbus import EVENT, EventBroadcaster, ListOptions, ObjectReference, ObjectStore, Settings
from eventbus.aio import raw_events, watch

WEB = ObjectReference("Pod", "default", "web-0")


@pytest.fixture
def settings(embedded_url: str, prefix: str) -> Settings:
    return Settings(redis_url=embedded_url, prefix=prefix, worker_block_ms=50)


def test_changes_come_as_they_are_written(settings: Settings) -> None:
    async def run() -> list[str]:
        seen = []
        with ObjectStore.open(settings=settings) as store, EventBroadcaster(settings=settings) as broadcaster:
            broadcaster.start_recording_to_sink()
            recorder = broadcaster.new_recorder("test")
            async with aclosing(watch(store.objects(EVENT), ListOptions())) as changes:
                recorder.event(WEB, "Normal", "First", "one")
                async for change in changes:
                    assert change.object is not None
                    seen.append(f"{change.type} {change.object.reason}")
                    if len(seen) == 2:
                        break
                    recorder.event(WEB, "Normal", "Second", "two")
        return seen

    assert asyncio.run(run()) == ["ADDED First", "ADDED Second"]


def test_a_watch_ends_with_its_time(settings: Settings) -> None:
    async def run() -> int:
        with ObjectStore.open(settings=settings) as store:
            return len([change async for change in watch(store.objects(EVENT), ListOptions(timeout_s=0.05))])

    assert asyncio.run(run()) == 0


def test_raw_events_come_in_order_and_stop_at_once(settings: Settings) -> None:
    async def run() -> list[str]:
        seen: list[str] = []
        with EventBroadcaster(settings=settings) as broadcaster:
            recorder = broadcaster.new_recorder("test")

            async def record() -> None:
                for number in range(10):
                    recorder.event(WEB, "Normal", "Tested", f"message {number}")

            events = raw_events(broadcaster)
            async with aclosing(events):
                waiting = asyncio.ensure_future(anext(events))
                while not broadcaster._watchers:
                    await asyncio.sleep(0.01)
                await record()
                seen.append((await waiting).message)
                async for event in events:
                    seen.append(event.message)
                    if len(seen) == 5:
                        break
        return seen

    assert asyncio.run(run()) == [f"message {number}" for number in range(5)]
