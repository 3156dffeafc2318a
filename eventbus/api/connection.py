"""Connections below the handlers: malformed requests, silent clients, and clients that read nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import BadStatusLine, HttpProcessingError, LineTooLong

from eventbus.api import status as api_status
from eventbus.api.metrics import LABELS, UNKNOWN, Labels, Metrics

#: Timeout in seconds for the first request head of a connection.
HEAD_S: Final = 20.0
#: Seconds after which a client that reads nothing is disconnected.
STALLED_S: Final = 30.0


class Connection(web.RequestHandler):
    """A connection. The keep-alive timeout limits its later heads, and `STALLED_S` its responses.

    *labels* count an abort: those of the newest request. Args: connected: called with the transport at the accept.
    """

    __slots__ = ("_connected", "_first_head", "_metrics", "_stalled", "_unread", "labels")

    def __init__(
        self,
        server: web.Server,
        *,
        metrics: Metrics,
        connected: Callable[[asyncio.BaseTransport], None],
        **options: Any,
    ) -> None:
        super().__init__(server, **options)
        self._metrics = metrics
        self._connected = connected
        self._stalled: asyncio.TimerHandle | None = None
        self.labels: Labels | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the connection, and start the timeout for its first head."""
        self._connected(transport)
        super().connection_made(transport)
        self._first_head = asyncio.get_running_loop().call_later(HEAD_S, self._close_if_silent)
        # Pause at the first byte that the system does not accept. uvloop's transports do not inherit from asyncio's.
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=1, low=0)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._first_head.cancel()
        self._stop_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Limit the wait for the client to read a response, or the last data of a closed connection."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall()

    def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> Coroutine[Any, Any, tuple[web.StreamResponse, bool]]:
        """Convert aiohttp's refusal of `Expect`, which it raises before the middleware, to a Status."""
        if isinstance(resp, web.HTTPExpectationFailed):
            resp = api_status.response(api_status.api_error_of_http(resp))
            resp.force_close()
        return super().finish_response(request, resp, start_time)

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

    def _expect_reading(self) -> None:
        if self.transport is not None:
            self._unread = self.transport.get_write_buffer_size()
            self._stalled = asyncio.get_running_loop().call_later(STALLED_S, self._abort_unless_read)

    def _abort_unless_read(self) -> None:
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size() < self._unread:
            self._expect_reading()
            return
        self._metrics.note_abort(self.labels or UNKNOWN)
        self.transport.abort()  # a close would wait until the client has read the pending data

    def _stop_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _close_if_silent(self) -> None:
        if self.labels is None and self.transport is not None:
            self.transport.close()


def count_as(request: web.Request, labels: Labels) -> None:
    """Count *request* and an abort of its connection by *labels*."""
    request[LABELS] = labels
    if isinstance(request.protocol, Connection):
        request.protocol.labels = labels


def _answer(code: int, exc: BaseException | None, message: str | None) -> web.Response:
    if isinstance(exc, LineTooLong):
        return api_status.response(api_status.ApiError(431, "RequestHeaderFieldsTooLarge", "the head is too large"))
    if isinstance(exc, BadStatusLine) and "method" in (message or "").lower():
        return api_status.response(api_status.method_not_allowed())
    if code >= 500 and not isinstance(exc, HttpProcessingError):
        return api_status.response(api_status.internal())
    return api_status.response(api_status.bad_request("the request cannot be read"))
