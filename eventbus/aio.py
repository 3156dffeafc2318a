"""`async for` over the store's changes and over the raw stream: for programs that have an event loop, like FastAPI's.

Recorders need nothing of this: `recorder.event()` never waits, and may be called from coroutines.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import datetime
from typing import Final, TypeVar

from eventbus.model.event import Event
from eventbus.model.list_watch import HasMetadata, ListOptions, WatchEvent
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.store.reader import ObjectReader
from eventbus.store.watch import CatchUp, Idle, Step

T = TypeVar("T", bound=HasMetadata)

#: The maximum number of queued events of the raw stream. If the queue is full, the watcher waits and Redis keeps the
#: newer events.
QUEUED: Final = 256
#: The interval, in seconds, at which a full queue is checked for a reader.
_LOOK_S: Final = 0.2


async def watch(objects: ObjectReader[T], options: ListOptions | None = None) -> AsyncGenerator[WatchEvent[T], None]:
    """Yield the stored objects, then each change, in order; without a waiting thread.

    A thread of the loop's pool is used only for short calls: to start, and to read missed changes. Other code must not
    use *objects* meanwhile, so open a store for it: `ObjectStore.open()`. Leave the loop with `aclosing`; else the
    watch ends only when Python collects it.

        async with aclosing(watch(store.objects(EVENT), ListOptions(namespace="shop"))) as changes:
            async for change in changes:
                print(change.type, change.object.message)

    Raises: Expired: changes were lost; list again. BusUnavailable: watch again from the last `resource_version`.
    """
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def ready() -> None:
        with suppress(RuntimeError):  # the loop is closed, so no coroutine waits
            loop.call_soon_threadsafe(woken.set)

    state = await asyncio.to_thread(objects.open_watch, options or ListOptions(), ready)
    try:
        while True:
            woken.clear()
            step: Step[T] = state.next(loop.time())
            if step is None:
                return
            if isinstance(step, Idle):
                await _wait(woken, None if step.until is None else step.until - loop.time())
            elif isinstance(step, CatchUp):
                state.caught_up(*await asyncio.to_thread(objects.read_changes, step))
            else:
                yield step
    finally:
        objects.close_watch(state)


async def raw_events(broadcaster: EventBroadcaster, *, since: datetime | None = None) -> AsyncGenerator[Event, None]:
    """Yield every recorded event of the bus in order, not correlated, from now on or from *since*.

    If the program is slower than the bus, the watcher waits for it. Workers that share the events of a group use
    `EventBroadcaster.start_event_watcher(handler, group=…)`: with this generator, events that are acknowledged but not
    processed when the loop ends would be lost.

    Raises: BusUnavailable, BusRefused, ConfigError: as that does.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event] = asyncio.Queue(QUEUED)
    left = threading.Event()

    def handle(event: Event) -> None:
        waiting = None if left.is_set() else asyncio.run_coroutine_threadsafe(queue.put(event), loop)
        while waiting is not None and not left.is_set():
            with suppress(TimeoutError):
                return waiting.result(_LOOK_S)

    watcher = await asyncio.to_thread(broadcaster.start_event_watcher, handle, since=since)
    try:
        while True:
            yield await queue.get()
    finally:
        left.set()
        await asyncio.to_thread(watcher.stop)


async def _wait(woken: asyncio.Event, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
            await woken.wait()


__all__ = ["QUEUED", "raw_events", "watch"]
