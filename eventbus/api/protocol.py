"""Answers below our handlers, in our words: requests that cannot be read, and clients that send nothing."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import BadStatusLine, HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from eventbus.api import status as refusals

#: Seconds in which the first head of a connection must have arrived.
HEAD_S: Final = 20.0


class Protocol(RequestHandler):
    """A connection. Its later heads are bounded by the keep-alive time-out."""

    __slots__ = ("_first_head",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._first_head = asyncio.get_running_loop().call_later(HEAD_S, self._close_if_silent)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._first_head.cancel()
        super().connection_lost(exc)

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
        """Answer what aiohttp could not serve with a Status, and close the connection."""
        answer = _answer(status, exc, message)
        answer.force_close()
        return answer


class Runner(web.AppRunner):
    """An AppRunner whose connections are of ours."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server
        return server


class _Server(web.Server):
    def __call__(self) -> Protocol:
        return Protocol(self, loop=self._loop, **self._kwargs)


def _answer(code: int, exc: BaseException | None, message: str | None) -> web.Response:
    if isinstance(exc, LineTooLong):
        return refusals.response(refusals.Refusal(431, "RequestHeaderFieldsTooLarge", "the head is too large"))
    if isinstance(exc, BadStatusLine) and "method" in (message or "").lower():
        return refusals.response(refusals.method_not_allowed())
    if code >= 500 and not isinstance(exc, HttpProcessingError):
        return refusals.response(refusals.internal())
    return refusals.response(refusals.bad_request("the request cannot be read"))


__all__ = ["HEAD_S", "Protocol", "Runner"]
