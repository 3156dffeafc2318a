"""The HTTP connection of a watch, taken over from aiohttp after the response head. It keeps no aiohttp objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from aiohttp import HttpVersion11, web

from eventbus.api.connection import ABORTED, Protocol, Stall
from eventbus.api.kube.negotiation import JSON
from eventbus.api.metrics import labels_of
from eventbus.api.watch.group import Piece, Taker, chunk_of
from eventbus.util.log import log

_LAST_CHUNK: Final = b"0\r\n\r\n"
#: Writes the events of a watch to its connection, until the watch ends.
Tell: TypeAlias = Callable[["WatchConnection"], Awaitable[None]]


class WatchConnection(asyncio.Protocol):
    """Implements `Outlet` and `Taker`. Further data from the client is read and dropped: the head has `close`.

    In aiohttp, a request, its headers and two tasks took half of the memory of an idle watch.
    """

    __slots__ = ("_aborted", "_chunked", "_ended", "_labels", "_room", "_stall", "_task", "_transport")

    def __init__(self, request: web.Request, ended: Callable[[], None]) -> None:
        self._chunked = request.version >= HttpVersion11  # else the end of the connection ends the response
        self._aborted, self._labels = request.app[ABORTED], labels_of(request)
        self._ended = ended
        self._transport: Any = None
        self._stall: Stall | None = None
        self._room: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def reply(self, tell: Tell) -> web.StreamResponse:
        """Make the response. The caller sends its head, and the handler must return it: *tell* starts then."""
        reply = _Reply(self, tell)
        reply.force_close()
        if self._chunked:
            reply.enable_chunked_encoding()
        return reply

    def take_over(self, protocol: Protocol, tell: Tell) -> None:
        """Continue without aiohttp. Raises: ConnectionError: the connection is closed; *ended* was called."""
        try:
            protocol.hand_over(self)
        except ConnectionError:
            self._ended()
            raise
        self._task = asyncio.get_running_loop().create_task(self._tell(tell))
        # A task that is canceled before its first step does not run its own cleanup.
        self._task.add_done_callback(self._end)

    async def _tell(self, tell: Tell) -> None:
        try:
            await tell(self)
            if self._chunked:
                self._transport.write(_LAST_CHUNK)  # shows the client that the response is complete
            await self.drain()
            self._transport.close()
        except ConnectionError:
            pass
        except Exception:
            log.exception("a watch ended before its time")

    def _end(self, _task: asyncio.Task[None]) -> None:
        self._task = None
        if not self._transport.is_closing():
            self._transport.abort()
        self._ended()

    async def send(self, lines: bytes) -> None:
        """See `Outlet`."""
        if self._transport.is_closing():
            raise ConnectionResetError
        self._transport.write(chunk_of(lines) if self._chunked else lines)
        await self.drain()

    async def drain(self) -> None:
        """See `Outlet`. Does not raise if the client has disconnected; the next `send` does."""
        if self._stall is not None:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    @property
    def taker(self) -> Taker | None:
        return self

    def take(self, piece: Piece) -> bool:
        """See `Taker`."""
        if self._transport.is_closing() or self._transport.get_write_buffer_size():
            return False
        self._transport.write(piece.chunk if self._chunked else piece.lines)
        return True

    def has_room(self) -> bool:
        """See `Taker`."""
        return not self._transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over aiohttp's state: reading may be paused, and the head may still be in the buffer."""
        self._transport = transport
        if not self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading()
        if self._transport.get_write_buffer_size():
            self.pause_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the watch: its client has disconnected."""
        self.resume_writing()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._stall = Stall(self._transport, self._count_abort)

    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _count_abort(self) -> None:
        self._aborted[self._labels] += 1


class _Reply(web.StreamResponse):
    """A response whose connection is taken over when aiohttp would end it, after the handler has returned."""

    def __init__(self, connection: WatchConnection, tell: Tell) -> None:
        # Proxies must not buffer: the head shows the client that its watch has started.
        super().__init__(headers={"Content-Type": JSON, "Cache-Control": "no-store"})
        self._connection = connection
        self._tell = tell

    async def write_eof(self, data: bytes = b"") -> None:
        """Take over the connection instead of ending the response."""
        assert self._req is not None
        protocol = self._req.protocol
        assert isinstance(protocol, Protocol)
        self._connection.take_over(protocol, self._tell)
