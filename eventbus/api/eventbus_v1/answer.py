"""Answers with what a thread of the pool has encoded, compressed there for who asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from eventbus.api.context import API
from eventbus.api.gzip_response import run_packed
from eventbus.api.thread_context import Desk

#: Bytes from which it is worth it: a page is asked for over slow lines, too.
GZIP_FROM: Final = 4 * 1024
_GZIP_LEVEL: Final = 6


async def answer_json(request: web.Request, work: Callable[[Desk], bytes]) -> web.Response:
    """The JSON that *work* returns. Raises: whatever it raises."""
    pool = request.app[API].pool
    data, compressed = await run_packed(request, pool, work, from_bytes=GZIP_FROM, level=_GZIP_LEVEL)
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if compressed:
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=data, content_type="application/json", headers=headers)
