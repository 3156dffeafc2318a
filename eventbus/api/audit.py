"""Writes an audit line for each request that may change something: user, address, path, status code."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from eventbus.api.context import USER, WHAT
from eventbus.api.limits import only_reads
from eventbus.util.log import GuardedLog
from eventbus.util.text import printable

log: Final = GuardedLog(logging.getLogger("eventbus.audit"))


def audit(request: web.Request, answer: web.StreamResponse | None, took_s: float) -> None:
    """Log *request* by its answer; code 0: it had none. Those that only read are left out."""
    if only_reads(request):
        return
    user = request.get(USER)
    log.info(
        "audit: user=%s from=%s %s %s -> %d in %.0f ms%s",
        printable(user.name) if user else "-",
        request.remote or "unix",
        request.method,
        printable(request.rel_url.raw_path)[:500],
        answer.status if answer is not None else 0,
        took_s * 1000,
        f": {what}" if (what := request.get(WHAT)) else "",
    )
