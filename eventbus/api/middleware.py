"""The one middleware: each request is authenticated, limited, counted, audited and answered."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.authentication import Authenticator
from eventbus.api.auth.proxies import TrustedProxies
from eventbus.api.auth.sender_check import check_sender
from eventbus.api.connection import count_as
from eventbus.api.context import AUDIT_NOTE, USER
from eventbus.api.limits import Limits, only_reads
from eventbus.api.metrics import Metrics, labels_of
from eventbus.api.token_path import loggable_path
from eventbus.errors import EventBusError
from eventbus.util.log import GuardedLog, log
from eventbus.util.text import printable

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: True if the head of the response has been sent.
STARTED: Final = web.RequestKey("started", bool)
audit_log: Final = GuardedLog(logging.getLogger("eventbus.audit"))


def audit(request: web.Request, answer: web.StreamResponse | None, took_s: float, proxies: TrustedProxies) -> None:
    """Log *request* by its answer; code 0: it had none. Those that only read are left out."""
    if only_reads(request):
        return
    user, note = request.get(USER), request.get(AUDIT_NOTE, "")
    fields = {
        "user": printable(user.name) if user else "-",
        "client": proxies.client(request),
        "peer": request.remote or "unix",
        "method": request.method,
        "path": printable(_path(request))[:500],
        "code": answer.status if answer is not None else 0,
        "durationMs": round(took_s * 1000, 3),
        "note": note,
    }
    audit_log.info(
        "audit: user=%s from=%s%s %s %s -> %d in %.0f ms%s",
        fields["user"],
        fields["client"],
        "" if fields["peer"] == fields["client"] else f" via={fields['peer']}",
        fields["method"],
        fields["path"],
        fields["code"],
        took_s * 1000,
        f": {note}" if note else "",
        extra={"fields": fields},
    )


class Middleware:
    """Runs before each handler. It is one coroutine, because each one that waits takes memory in every open request.

    Args: names: names of this server in Host, in addition to `localhost` and IP addresses.
          audits: finds the addresses of clients for the audit; None: no audit.
    """

    def __init__(
        self,
        *,
        metrics: Metrics,
        limits: Limits,
        authenticator: Authenticator,
        names: Iterable[str],
        audits: TrustedProxies | None,
    ) -> None:
        self._metrics = metrics
        self._limits = limits
        self._authenticator = authenticator
        self._names = frozenset({"localhost", *(name.lower() for name in names)})
        self._audits = audits

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note each request by the code of its answer; 0: there was none."""
        begun, place = time.monotonic(), ""
        count_as(request, labels_of(request))
        answer: web.StreamResponse | None = None
        try:
            # First, because it may wait for an issuer's keys, and holds no place then.
            await check_sender(request, self._authenticator, self._names)
            place = self._limits.begin(request)
            answer = await handler(request)
        except Exception as error:
            if request.get(STARTED):
                raise _cut_off(request, error) from error
            answer = answer_of(request, error)
        finally:
            self._limits.end(place)
            took_s = time.monotonic() - begun
            self._metrics.note(request, answer, took_s)
            if self._audits is not None:
                audit(request, answer, took_s, self._audits)
        return answer


async def prepare(request: web.Request, answer: web.StreamResponse) -> None:
    """Complete the head of a response, just before it is sent."""
    status.protect(answer)
    request[STARTED] = True


def _cut_off(request: web.Request, error: Exception) -> ConnectionError:
    """Close the connection in the middle of a response, so that the client notices the failure."""
    if not isinstance(error, ConnectionError):
        log.error("%s %s failed", request.method, _path(request), exc_info=error)
    if request.transport is not None:
        request.transport.abort()
    return ConnectionResetError("the response has failed")


def answer_of(request: web.Request, error: Exception) -> web.Response:
    """Answer an error with a Status. Raises: *error*, if the client has disconnected, or it is a response."""
    match error:
        case status.ApiError():
            return _answer(request, error)
        case EventBusError():
            return _answer(request, status.api_error_of(error))
        case web.HTTPException() if error.status >= 400:
            return _answer(request, status.api_error_of_http(error))
        case web.HTTPException() | ConnectionError():
            raise error
    log.error("%s %s failed", request.method, _path(request), exc_info=error)
    return _answer(request, status.internal())


def _path(request: web.Request) -> str:
    return loggable_path(request, known=USER in request)


def _answer(request: web.Request, error: status.ApiError) -> web.Response:
    answer = status.response(error)
    if request.body_exists and (not request.content.at_eof() or request.content.exception() is not None):
        answer.force_close()  # the rest of its body would be read as the next request
    return answer
