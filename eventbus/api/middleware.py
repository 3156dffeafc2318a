"""The one middleware: every request is counted, let in, and answered, whatever goes wrong."""

from __future__ import annotations

import time

from aiohttp import web

from eventbus.api.audit import audit
from eventbus.api.auth import sender_check as doors
from eventbus.api.limits import Limits
from eventbus.api.metrics import Metrics


class Entrance:
    """Goes through all that stands before a handler. One function: each that waits would be held by a request."""

    def __init__(self, *, metrics: Metrics, limits: Limits, sender: doors.SenderCheck, audits: bool) -> None:
        self._metrics = metrics
        self._limits = limits
        self._sender = sender
        self._audits = audits

    @web.middleware
    async def middleware(self, request: web.Request, handler: doors.Handler) -> web.StreamResponse:
        """Note each request by the code of its answer; 0: there was none."""
        begun, place = time.monotonic(), ""
        answer: web.StreamResponse | None = None
        try:
            await self._sender.check(request)  # first, for it may wait for an issuer's keys, and holds no place then
            place = self._limits.begin(request)
            answer = await handler(request)
        except Exception as error:
            answer = doors.answer_of(request, error)
        finally:
            self._limits.end(place)
            took_s = time.monotonic() - begun
            self._metrics.note(request, answer, took_s)
            if self._audits:
                audit(request, answer, took_s)
        return answer
