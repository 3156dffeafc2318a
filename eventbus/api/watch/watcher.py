"""Watches: each advances its `WatchState` in the event loop, and writes lines to a response or a WebSocket.

Groups of watches that wait are in `hub.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.authentication import BEARER_PROTOCOL
from eventbus.api.kube.negotiation import Answer, Shape
from eventbus.api.kube.rendering import Renderer
from eventbus.api.kube.resources import Resource
from eventbus.api.kube.verbs import in_client_versions, store_version
from eventbus.api.thread_context import BlockingPool, ThreadContext
from eventbus.api.watch.hub import CHUNK, LineEncoder, WatchHub, WatchKey
from eventbus.errors import EventBusError
from eventbus.model.list_watch import ListOptions, WatchEvent
from eventbus.store.changes import Change
from eventbus.store.watch import CatchUp, Idle, WatchState

#: Bytes of lines that may wait for a client in a group. With more bytes waiting, a client leaves its group.
MAX_PENDING: Final = 64 * 1024


#: Writes lines to a client. Returns when there is room for more. Raises: ConnectionError: the client has disconnected.
Send: TypeAlias = Callable[[bytes], Awaitable[None]]


class Watcher:
    """A watch of one client: call `open`, then `run` in a task of its own, and `close` in the end."""

    def __init__(
        self, *, pool: BlockingPool, hub: WatchHub, resource: Resource, answer: Answer, encoder: LineEncoder
    ) -> None:
        self._pool = pool
        self._hub = hub
        self._resource = resource
        self._renderer = Renderer(resource, answer)
        self._encoder = encoder
        self._loop = asyncio.get_running_loop()
        self._state: WatchState[Any] | None = None
        self._woken: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sends_columns = answer.shape is Shape.TABLE
        self._stopped = False
        self._is_ready = False  # `_ready` was called after the last step
        self._pending: list[bytes] = []  # lines of the group
        self._pending_bytes = 0

    async def open(self, begin: Callable[[ThreadContext, Callable[[], None]], WatchState[Any]]) -> None:
        """Start the watch: run *begin* in the pool, which lists the objects if asked to, and attaches to the hub.

        Raises: ApiError, Expired, InvalidSelector: the watch has not started.
        """
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

    async def run(self, send: Send) -> None:
        """Write events until the watch ends. Raises: ConnectionError: the client has disconnected, or reads nothing."""
        assert self._state is not None
        failure: EventBusError | None = None
        ended = False
        while not ended:
            lines: list[bytes] = []
            size = 0
            step: Any = None
            self._is_ready = False
            try:
                while size < CHUNK:
                    step = self._state.next(self._loop.time())
                    if not isinstance(step, WatchEvent):
                        break
                    if self._lacks_base(step):
                        await self._find_versions()
                    lines.append(self._encoder.line(self._renderer, step, first=self._sends_columns))
                    size += len(lines[-1])
                    self._sends_columns = False
                ended = step is None
                if isinstance(step, CatchUp):
                    self._state.caught_up(*await self._read(step))
            except EventBusError as error:
                failure, ended = error, True
            if lines:
                self._encoder.count(self._resource, len(lines))
                await send(b"".join(lines))
            if isinstance(step, Idle) and not ended:
                await self._wait(step, send)
        if failure is not None:
            await send(_error_frame(failure))

    def stop(self) -> None:
        """Have `run` end soon, without an error. The client resumes at another worker, from its last position."""
        self._stopped = True
        if self._state is not None:
            self._state.stop()
        self._end_wait()

    def close(self) -> None:
        """Detach from the hub. Idempotent."""
        self._wake_at(None)
        state, self._state = self._state, None
        if state is not None:
            state.stop()
            self._hub.detach(state, self._resource.kind)

    def _lacks_base(self, event: WatchEvent[Any]) -> bool:
        """Return True if the base of the client's versions is unknown: the kind had no object before this one."""
        versions = self._renderer.versions
        return event.object is not None and not versions.base and versions.partitions == 1

    async def _find_versions(self) -> None:
        versions = await self._pool.run(lambda context: context.versions(self._resource.kind))
        self._renderer = msgspec.structs.replace(self._renderer, versions=versions)

    async def _read(self, catch_up: CatchUp) -> tuple[Sequence[Change[Any]], int]:
        return await self._pool.run(lambda context: context.objects(self._resource.kind).read_changes(catch_up))

    def _abandon(self, opening: asyncio.Future[WatchState[Any]]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._state = opening.result()
            self.close()

    async def _wait(self, step: Idle, send: Send) -> None:
        """Send the lines of a group until this watch is stopped, or its state is ready for a step."""
        state, hub, kind = self._state, self._hub, self._resource.kind
        assert state is not None
        if self._has_own_step():  # since the last lines were sent
            return
        self._wake_at(step.until)
        if self._may_join():
            hub.join(state, kind, WatchKey(self._renderer, state.selection), self._queue, self._encoder)
        try:
            while True:
                if self._pending:
                    lines = b"".join(self._pending)
                    self._pending.clear()
                    self._pending_bytes = 0
                    await send(lines)
                    continue
                if self._has_own_step():
                    return
                self._woken = self._loop.create_future()
                try:
                    await self._woken
                finally:
                    self._woken = None
        finally:
            hub.leave(state, kind)

    def _has_own_step(self) -> bool:
        return self._stopped or self._is_ready

    def _may_join(self) -> bool:
        """Return True if the watch can join a group: its lines are those of all watches with the same key."""
        versions = self._renderer.versions
        return not self._sends_columns and bool(versions.base or versions.partitions > 1)

    def _queue(self, lines: bytes) -> bool:
        """See `WatchWriter`."""
        if self._pending_bytes > MAX_PENDING:
            return False
        self._pending.append(lines)
        self._pending_bytes += len(lines)
        self._wake()
        return True

    def _wake_at(self, when: float | None) -> None:
        """Set the timer; None: stop it. It keeps a timer for the same time, because each change calls it."""
        if self._timer is not None and self._timer.when() != when:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and when is not None:
            self._timer = self._loop.call_at(when, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        self._end_wait()

    def _ready(self) -> None:
        # Changes arrive in the loop, a failure or the end of the store in any thread.
        try:
            if asyncio.get_running_loop() is self._loop:
                self._end_wait()
                return
        except RuntimeError:
            pass
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_wait)

    def _end_wait(self) -> None:
        self._is_ready = True
        self._wake()

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


#: Seconds between two pings. A client that does not answer is disconnected.
HEARTBEAT_S: Final = 30.0
#: Maximum bytes of a client's message. Clients have nothing to send.
_MOST_MESSAGE: Final = 4096


def is_upgrade(request: web.Request) -> bool:
    """Return True if the client wants a WebSocket."""
    wants = request.headers.get("Upgrade", "").lower() == "websocket"
    return wants and "upgrade" in request.headers.get("Connection", "").lower()


async def serve_socket(
    request: web.Request,
    run: Callable[[Send], Awaitable[None]],
    stop: Callable[[], None],
) -> web.WebSocketResponse:
    """Answer *request* with a WebSocket, as Headlamp and fabric8 open it: one text frame for each event.

    *run* sends lines to it until the watch ends; *stop* ends the watch.
    """
    response = web.WebSocketResponse(
        heartbeat=HEARTBEAT_S, max_msg_size=_MOST_MESSAGE, protocols=_protocols(request), compress=False
    )
    await response.prepare(request)

    async def read() -> None:
        # Pings and the disconnect are handled only while reading.
        async for _ in response:
            pass
        stop()

    async def send(lines: bytes) -> None:
        for line in lines.splitlines():
            await response.send_str(line.decode())

    reading = asyncio.create_task(read())
    try:
        await run(send)
        await response.close()
    finally:
        reading.cancel()
    return response


def _protocols(request: web.Request) -> tuple[str, ...]:
    """Return the first protocol that the client offers, but never the one with its token."""
    offered = (word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(","))
    return tuple(word for word in offered if word and not word.startswith(BEARER_PROTOCOL))[:1]
