"""Answers load balancers and kubelets, without a name: does this worker live, can it serve."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

from eventbus.api import status
from eventbus.api.app_keys import API
from eventbus.api.desk import Desk
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import EventBusError

PATHS: Final = ("/healthz", "/livez", "/readyz")
_PATH: Final = re.compile(f"({'|'.join(PATHS)})(/[^/]+)?")


def asks_for_health(request: web.Request) -> bool:
    """Return True for these paths alone, as the router reads them."""
    return request.method in ("GET", "HEAD") and _PATH.fullmatch(request.rel_url.path_safe) is not None


async def health(request: web.Request) -> web.Response:
    """`/livez`: the loop comes round. `/readyz`, `/healthz`: and Redis answers. `?verbose` names each check."""
    which, _, only = request.path.strip("/").partition("/")
    checks = {"ping": True}
    if which != "livez" and only != "ping":
        checks["redis"] = await _redis_answers(request)
    if only and only not in checks:
        raise status.no_such_path()
    good = all(checks.values()) if not only else checks[only]
    lines = [f"[{'+' if passed else '-'}]{name} {'ok' if passed else 'failed'}" for name, passed in checks.items()]
    verbose = "verbose" in request.query  # whatever it is, as in the API server
    if good and not verbose:
        text = "ok"
    else:
        text = "\n".join([*lines, f"{which} check {'passed' if good else 'failed'}"]) + "\n"
    return web.Response(status=200 if good else 500, text=text, content_type="text/plain", charset="utf-8")


async def _redis_answers(request: web.Request) -> bool:
    def ping(desk: Desk) -> None:
        with redis_errors():
            desk.client.ping()

    try:
        await request.app[API].pool.run(ping)
    except EventBusError:
        return False
    return True


__all__ = ["PATHS", "asks_for_health", "health"]
