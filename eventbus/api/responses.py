"""Responses: JSON, with exactly its media type, and gzip for clients that accept it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Final

from aiohttp import web

from eventbus.api.context import API
from eventbus.api.thread_context import BlockingPool, ThreadContext


async def gzip_response(
    request: web.Request, pool: BlockingPool, work: Callable[[ThreadContext], bytes], *, from_bytes: int, level: int
) -> tuple[bytes, bool]:
    """Run *work* in *pool*; return its data, and whether it is compressed.

    Data of *from_bytes* bytes and more is compressed, at gzip's *level*.

    Raises: the exceptions of *work*.
    """
    compress = "gzip" in request.headers.get("Accept-Encoding", "").lower()

    def made(context: ThreadContext) -> tuple[bytes, bool]:
        data = work(context)
        if compress and len(data) >= from_bytes:
            return gzip.compress(data, level, mtime=0), True
        return data, False

    return await pool.run(made)


#: Bytes from which it is worth it: a page is asked for over slow lines, too.
GZIP_FROM: Final = 4 * 1024
_GZIP_LEVEL: Final = 6


async def answer_json(request: web.Request, work: Callable[[ThreadContext], bytes]) -> web.Response:
    """Answer with the JSON that *work* returns. Raises: the errors of *work*."""
    pool = request.app[API].pool
    data, compressed = await gzip_response(request, pool, work, from_bytes=GZIP_FROM, level=_GZIP_LEVEL)
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if compressed:
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=data, content_type="application/json", headers=headers)
