"""The one middleware: every request is counted, let in, and answered, whatever goes wrong."""

from __future__ import annotations

import time

from aiohttp import web

from eventbus.api import doors
from eventbus.api.limits import Limits
from eventbus.api.telling import Telling


class Entrance:
    """Goes through all that stands before a handler. One function: each that waits would be held by a request."""

    def __init__(self, *, telling: Telling, limits: Limits, access: doors.Access) -> None:
        self._telling = telling
        self._limits = limits
        self._access = access

    @web.middleware
    async def middleware(self, request: web.Request, handler: doors.Handler) -> web.StreamResponse:
        """Note each request by the code of its answer; 0: there was none."""
        begun, place = time.monotonic(), ""
        answer: web.StreamResponse | None = None
        try:
            await self._access.check(request)  # first, for it may wait for an issuer's keys, and holds no place then
            place = self._limits.begin(request)
            answer = await handler(request)
        except Exception as error:
            answer = doors.answer_of(request, error)
        finally:
            self._limits.end(place)
            self._telling.note(request, answer, time.monotonic() - begun)
        return answer


__all__ = ["Entrance"]
