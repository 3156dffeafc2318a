"""Responses: JSON, with exactly its media type, and gzip for clients that accept it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
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


def reply_json(value: Any, *, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with *value* as JSON."""
    return web.Response(status=code, body=_encode(value), headers=headers, content_type="application/json")


async def compute_json(request: web.Request, work: Callable[[ThreadContext], Any]) -> web.Response:
    """Run *work* in the pool, and answer with its result as JSON, compressed if it is long. Raises: its errors."""
    pool = request.app[API].pool
    data, compressed = await gzip_response(
        request, pool, lambda context: _encode(work(context)), from_bytes=GZIP_FROM, level=_GZIP_LEVEL
    )
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if compressed:
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=data, content_type="application/json", headers=headers)


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"
