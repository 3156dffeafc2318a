"""Compresses answers in the thread that made them, for clients that accept gzip."""

from __future__ import annotations

import gzip
from collections.abc import Callable

from aiohttp import web

from eventbus.api.thread_context import BlockingPool, Desk


async def run_packed(
    request: web.Request, pool: BlockingPool, work: Callable[[Desk], bytes], *, from_bytes: int, level: int
) -> tuple[bytes, bool]:
    """Run *work* in *pool*; return its data, and whether it is compressed.

    Data of *from_bytes* bytes and more is compressed, at gzip's *level*.

    Raises: the exceptions of *work*.
    """
    compress = "gzip" in request.headers.get("Accept-Encoding", "").lower()

    def made(desk: Desk) -> tuple[bytes, bool]:
        data = work(desk)
        if compress and len(data) >= from_bytes:
            return gzip.compress(data, level, mtime=0), True
        return data, False

    return await pool.run(made)
