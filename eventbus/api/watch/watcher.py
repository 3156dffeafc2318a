"""Watches: a `WatchState` each, stepped in the loop; its lines go to an `Outlet`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from eventbus.api import status
from eventbus.api.histograms import Histogram
from eventbus.api.kube.negotiation import Answer, Shape
from eventbus.api.kube.rendering import Renderer
from eventbus.api.kube.resources import Resource
from eventbus.api.kube.verbs import in_client_versions, store_version
from eventbus.api.thread_context import BlockingPool, ThreadContext
from eventbus.api.watch.group import CHUNK, Taker, Tone
from eventbus.errors import EventBusError
from eventbus.model.list_watch import ListOptions, WatchEvent, WatchEventType
from eventbus.store.changes import Change
from eventbus.store.watch import CatchUp, Idle, WatchState


class Outlet(Protocol):
    """The sink of a watch's lines."""

    async def send(self, lines: bytes) -> None:
        """Returns once there is room for more. Raises: ConnectionError: it is gone, or has read nothing too long."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more. Raises: as `send`."""
        ...

    @property
    def taker(self) -> Taker | None:
        """The way to write at once, together with others; None: there is none."""
        ...


class Frames:
    """Encodes the lines of watches. Watches that send the same object in the same form share the encoding.

    Args: sizes: histograms of bytes per line, for all watches of a resource.
    """

    def __init__(self, sizes: Mapping[Resource, Histogram]) -> None:
        self._sizes = sizes
        self._known: dict[tuple[Any, ...], tuple[object, bytes]] = {}
        self._clearing = False

    def note(self, renderer: Renderer, line: bytes, times: int = 1) -> None:
        """Count a line that is sent to *times* watches."""
        self._sizes[renderer.resource].note(len(line), times)

    def line(self, renderer: Renderer, event: WatchEvent[Any], *, first: bool) -> bytes:
        """Return a line. The cache keeps the object alive while its id is a key, for 50 ms."""
        if event.type is WatchEventType.BOOKMARK or first:
            return renderer.frame(event, first=first)
        key = (id(event.object), event.type, event.position, renderer.resource.kind.api_version, renderer.answer)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (event.object, renderer.frame(event, first=False))
            if not self._clearing:
                self._clearing = True
                asyncio.get_running_loop().call_later(0.05, self._clear)
        return found[1]

    def _clear(self) -> None:
        self._known.clear()
        self._clearing = False


class Watcher:
    """One watch. Call `run` in its own task; `stop` ends it soon.

    Raises, from `open`: ApiError, Expired, InvalidSelector: the watch has not started.
    """

    def __init__(self, *, pool: BlockingPool, resource: Resource, answer: Answer, frames: Frames) -> None:
        self._pool = pool
        self._resource = resource
        self._renderer = Renderer(resource, answer)
        self._frames = frames
        self._loop = asyncio.get_running_loop()
        self._state: WatchState[Any] | None = None
        self._woken: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._first = answer.shape is Shape.TABLE
        self._stopped = False

    async def open(self, begin: Callable[[ThreadContext, Callable[[], None]], WatchState[Any]]) -> None:
        """List, if requested, and attach. The caller must call `close` afterwards."""
        opening = asyncio.ensure_future(self._pool.run(lambda context: begin(context, self._ready)))
        try:
            self._state = await asyncio.shield(opening)
            await self._find_versions()
            if self._stopped:
                self._state.stop()
        except asyncio.CancelledError:
            # The client has disconnected, but the thread continues: detach the state that it attaches.
            opening.add_done_callback(self._abandon)
            raise

    async def run(self, outlet: Outlet) -> None:
        """Write events until the watch ends. Raises: ConnectionError: the client has disconnected, or reads nothing."""
        assert self._state is not None
        failure: EventBusError | None = None
        ended = False
        while not ended:
            lines: list[bytes] = []
            size = 0
            step: Any = None
            try:
                while size < CHUNK:
                    step = self._state.next(self._loop.time())
                    if not isinstance(step, WatchEvent):
                        break
                    if self._lacks_base(step):
                        await self._find_versions()
                    lines.append(self._frames.line(self._renderer, step, first=self._first))
                    self._frames.note(self._renderer, lines[-1])
                    size += len(lines[-1])
                    self._first = False
                ended = step is None
                if isinstance(step, CatchUp):
                    self._state.caught_up(*await self._read(step))
            except EventBusError as error:
                failure, ended = error, True
            if lines:
                await outlet.send(b"".join(lines))
            if isinstance(step, Idle) and not ended:
                await self._wait(step, outlet.taker)
                await outlet.drain()  # waits for the lines that the group wrote in the meantime
        if failure is not None:
            await outlet.send(_error_frame(failure))

    def stop(self) -> None:
        """End soon, without an error. Clients resume elsewhere from their last position."""
        self._stopped = True
        if self._state is not None:
            self._state.stop()
        self._wake()

    def close(self) -> None:
        """Detach from the hub. Idempotent."""
        self._wake_at(None)
        state, self._state = self._state, None
        if state is not None:
            state.stop()
            self._pool.hub.detach(state, self._resource.kind)

    def _lacks_base(self, event: WatchEvent[Any]) -> bool:
        """Return True if the kind had no object before this one."""
        versions = self._renderer.versions
        return event.object is not None and not versions.base and versions.partitions == 1

    async def _find_versions(self) -> None:
        versions = await self._pool.run(lambda context: context.versions(self._resource.kind))
        self._renderer = msgspec.structs.replace(self._renderer, versions=versions)

    async def _read(self, behind: CatchUp) -> tuple[Sequence[Change[Any]], int]:
        return await self._pool.run(lambda context: context.objects(self._resource.kind).read_changes(behind))

    def _abandon(self, opening: asyncio.Future[WatchState[Any]]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._state = opening.result()
            self.close()

    async def _wait(self, step: Idle, taker: Taker | None) -> None:
        # No other code of the loop has run since `next`, so no call of `ready` was missed.
        if self._stopped:
            return
        state, hub, kind = self._state, self._pool.hub, self._resource.kind
        assert state is not None
        self._woken = self._loop.create_future()
        self._wake_at(step.until)
        try:
            if taker is not None and self._may_join():
                hub.gather(state, kind, Tone(self._renderer, state.selection), taker, self._frames)
            await self._woken
        finally:
            self._woken = None
            hub.scatter(state, kind)

    def _may_join(self) -> bool:
        """Return True if the watch can share its lines with a group."""
        versions = self._renderer.versions
        return not self._first and bool(versions.base or versions.partitions > 1)

    def _wake_at(self, when: float | None) -> None:
        """Set the timer. One timer serves many changes, which come far more often than it fires."""
        if self._timer is not None and self._timer.when() != when:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and when is not None:
            self._timer = self._loop.call_at(when, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        self._wake()

    def _ready(self) -> None:
        # Offers arrive in the loop. A failure, or the end of the store, may arrive in any thread.
        try:
            if asyncio.get_running_loop() is self._loop:
                self._wake()
                return
        except RuntimeError:
            pass
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


def _error_frame(error: EventBusError) -> bytes:
    """Encode the last line of a watch that has failed."""
    plain = status.api_error_of(error).to_json()
    return msgspec.json.encode({"type": "ERROR", "object": plain}) + b"\n"


def begin_watch(
    resource: Resource, options: ListOptions
) -> Callable[[ThreadContext, Callable[[], None]], WatchState[Any]]:
    """Return the function with which `Watcher.open` starts a watch of a stored kind."""

    def begin(context: ThreadContext, ready: Callable[[], None]) -> WatchState[Any]:
        objects = context.objects(resource.kind)
        with in_client_versions(context, resource.kind, options.resource_version):
            return objects.open_watch(store_version(context, resource.kind, options), ready)

    return begin
