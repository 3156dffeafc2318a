"""The body of a request, whole and bounded."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from eventbus.api import status

#: As the API server's own bound.
MAX_BYTES: Final = 3 * 1024 * 1024


async def read_body(request: web.Request) -> bytes:
    """All of it. Raises: Refusal: 413, too large; 400, it ended early or is not what its header says."""
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise status.too_large(MAX_BYTES) from None
    if len(body) > MAX_BYTES:
        raise status.too_large(MAX_BYTES)
    return body


__all__ = ["MAX_BYTES", "read_body"]
