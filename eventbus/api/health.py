"""Liveness and readiness checks for load balancers and kubelets, without authentication."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from eventbus.api import status
from eventbus.api.thread_context import BlockingPool, ThreadContext
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import EventBusError
from eventbus.util.log import log

PATHS: Final = ("/healthz", "/livez", "/readyz")
#: Seconds for which an answer of Redis counts, and seconds that one is waited for.
KEPT_S: Final = 1.0
READY_S: Final = 5.0
_PATH: Final = re.compile(f"({'|'.join(PATHS)})(/[^/]+)?")


def asks_for_health(request: web.Request) -> bool:
    """Return True for these paths alone, as the router reads them."""
    return request.method in ("GET", "HEAD") and _PATH.fullmatch(request.rel_url.path_safe) is not None


async def health(request: web.Request) -> web.Response:
    """`/livez`: the loop comes round. `/readyz`, `/healthz`: and Redis answers. `?verbose` names each check."""
    which, _, only = request.path.strip("/").partition("/")
    checks = {"ping": True}
    if which != "livez" and only != "ping":
        checks["redis"] = await request.app[READINESS].redis_answers()
    if only and only not in checks:
        raise status.no_such_path()
    good = all(checks.values()) if not only else checks[only]
    lines = [f"[{'+' if passed else '-'}]{name} {'ok' if passed else 'failed'}" for name, passed in checks.items()]
    verbose = "verbose" in request.query  # with any value, as in the API server
    if good and not verbose:
        text = "ok"
    else:
        text = "\n".join([*lines, f"{which} check {'passed' if good else 'failed'}"]) + "\n"
    return web.Response(status=200 if good else 500, text=text, content_type="text/plain", charset="utf-8")


class Readiness:
    """Checks if Redis answers, with one ping at a time, and none for a second after an answer.

    The paths need no authentication, so a request must cost little. Lives in the loop.

    Args: ping: asks Redis. Raises: EventBusError: it does not answer.
    """

    def __init__(self, ping: Callable[[], Awaitable[None]]) -> None:
        self._ping = ping
        self._asking: asyncio.Task[None] | None = None
        self._answers = False
        self._until = -math.inf

    async def redis_answers(self) -> bool:
        """Return the last result for `KEPT_S`, then ping again. False if the ping exceeds `READY_S`."""
        if time.monotonic() < self._until:
            return self._answers
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        done, _ = await asyncio.wait({self._asking}, timeout=READY_S)
        if not done:
            self._note(False)
        return self._answers

    async def _ask(self) -> None:
        answers = False
        try:
            await self._ping()
            answers = True
        except EventBusError as error:
            log.debug("not ready: %s", error)
        finally:
            self._asking = None
            self._note(answers)

    def _note(self, answers: bool) -> None:
        self._answers, self._until = answers, time.monotonic() + KEPT_S


def readiness_of(pool: BlockingPool) -> Readiness:
    """Ask Redis in a thread of *pool*."""

    def ping(context: ThreadContext) -> None:
        with redis_errors():
            context.client.ping()

    return Readiness(lambda: pool.run(ping))


READINESS: Final = web.AppKey("readiness", Readiness)
