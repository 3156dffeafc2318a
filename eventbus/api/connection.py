"""Handles connections below the handlers: malformed requests, silent clients, and clients that read nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import BadStatusLine, HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from eventbus.api import status as api_status
from eventbus.api.metrics import NOTHING, labels_of

#: Timeout in seconds for the first request head of a connection.
HEAD_S: Final = 20.0
#: Seconds after which a client that reads nothing is disconnected.
STALLED_S: Final = 30.0
#: Responses that were aborted because the client read nothing, by the labels of the request.
ABORTED: Final = web.AppKey("aborted", Counter[tuple[str, ...]])
#: Called with each accepted connection.
CONNECTED: Final = web.AppKey[Callable[[asyncio.BaseTransport], None]]("connected")


class Stall:
    """Aborts a connection whose client reads no pending data for `STALLED_S`. Call `cancel` when all data is sent.

    Args: aborting: called before the abort.
    """

    __slots__ = ("_aborting", "_left", "_timer", "_transport")

    def __init__(self, transport: asyncio.WriteTransport, aborting: Callable[[], None]) -> None:
        self._transport = transport
        self._aborting = aborting
        self._expect_reading()

    def cancel(self) -> None:
        self._timer.cancel()

    def _expect_reading(self) -> None:
        self._left = self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(STALLED_S, self._abort_unless_read)

    def _abort_unless_read(self) -> None:
        if self._transport.get_write_buffer_size() < self._left:
            self._expect_reading()
            return
        self._aborting()
        self._transport.abort()  # a close would wait until the client has read the pending data


class Protocol(RequestHandler):
    """A connection. The keep-alive timeout limits its later heads, and `STALLED_S` its responses."""

    __slots__ = ("_aborted", "_answered", "_connected", "_first_head", "_stall")

    def __init__(
        self,
        *arguments: Any,
        aborted: Counter[tuple[str, ...]],
        connected: Callable[[asyncio.BaseTransport], None],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._aborted = aborted
        self._connected = connected
        self._answered = NOTHING
        self._stall: Stall | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the connection, and start the timeout for its first head."""
        self._connected(transport)
        super().connection_made(transport)
        self._first_head = asyncio.get_running_loop().call_later(HEAD_S, self._close_if_silent)
        if isinstance(transport, asyncio.WriteTransport):
            transport.set_write_buffer_limits(high=1, low=0)  # pause at the first byte that the system does not accept

    def connection_lost(self, exc: BaseException | None) -> None:
        self._first_head.cancel()
        self._end_stall()
        super().connection_lost(exc)

    def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> Coroutine[Any, Any, tuple[web.StreamResponse, bool]]:
        """Store the request's labels for the count of aborts, and convert aiohttp's errors to a Status."""
        self._answered = labels_of(request)
        if isinstance(resp, web.HTTPExpectationFailed):  # aiohttp raises it before our handlers run
            resp = api_status.response(api_status.api_error_of_http(resp))
            resp.force_close()
        return super().finish_response(request, resp, start_time)

    def pause_writing(self) -> None:
        """Limit the wait for the client to read a response, or the last data of a closed connection."""
        super().pause_writing()
        if self.transport is not None:
            self._stall = Stall(self.transport, self._count_abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_stall()

    def hand_over(self, successor: asyncio.Protocol) -> None:
        """Give *successor* the connection. Aiohttp sees it as lost: it drops its state and cancels the handler."""
        transport, self.transport = self.transport, None  # or aiohttp would close it
        if transport is None:
            raise ConnectionResetError
        transport.set_protocol(successor)
        self.connection_lost(None)
        successor.connection_made(transport)

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _count_abort(self) -> None:
        request = self._current_request
        self._aborted[self._answered if request is None else labels_of(request)] += 1

    def _close_if_silent(self) -> None:
        if self._request_count == 0 and self.transport is not None:
            self.transport.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer aiohttp's errors with a Status, and close the connection."""
        answer = _answer(status, exc, message)
        answer.force_close()
        return answer


class Runner(web.AppRunner):
    """An AppRunner that makes `Protocol` connections."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server
        server._kwargs["aborted"] = self.app[ABORTED]
        server._kwargs["connected"] = self.app[CONNECTED]
        return server


class _Server(web.Server):
    def __call__(self) -> Protocol:
        return Protocol(self, loop=self._loop, **self._kwargs)


def _answer(code: int, exc: BaseException | None, message: str | None) -> web.Response:
    if isinstance(exc, LineTooLong):
        return api_status.response(api_status.ApiError(431, "RequestHeaderFieldsTooLarge", "the head is too large"))
    if isinstance(exc, BadStatusLine) and "method" in (message or "").lower():
        return api_status.response(api_status.method_not_allowed())
    if code >= 500 and not isinstance(exc, HttpProcessingError):
        return api_status.response(api_status.internal())
    return api_status.response(api_status.bad_request("the request cannot be read"))
