"""Watches over WebSocket, as Headlamp and fabric8 open them: one text frame for each event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from eventbus.api.auth.authentication import BEARER_PROTOCOL
from eventbus.api.watch.watcher import Send

#: Seconds between two pings. A client that does not answer is disconnected.
HEARTBEAT_S: Final = 30.0
#: Maximum bytes of a client's message. Clients have nothing to send.
_MOST: Final = 4096


def is_upgrade(request: web.Request) -> bool:
    """Return True if the client wants a WebSocket."""
    wants = request.headers.get("Upgrade", "").lower() == "websocket"
    return wants and "upgrade" in request.headers.get("Connection", "").lower()


async def serve_socket(
    request: web.Request,
    run: Callable[[Send], Awaitable[None]],
    stop: Callable[[], None],
) -> web.WebSocketResponse:
    """Answer *request* with a WebSocket. *run* sends lines to it until the watch ends; *stop* ends the watch."""
    response = web.WebSocketResponse(
        heartbeat=HEARTBEAT_S, max_msg_size=_MOST, protocols=_protocols(request), compress=False
    )
    await response.prepare(request)

    async def read() -> None:
        # Pings and the disconnect are handled only while reading.
        async for _ in response:
            pass
        stop()

    async def send(lines: bytes) -> None:
        for line in lines.splitlines():
            await response.send_str(line.decode())

    reading = asyncio.create_task(read())
    try:
        await run(send)
        await response.close()
    finally:
        reading.cancel()
    return response


def _protocols(request: web.Request) -> tuple[str, ...]:
    """Return the first protocol that the client offers, but never the one with its token."""
    offered = (word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(","))
    return tuple(word for word in offered if word and not word.startswith(BEARER_PROTOCOL))[:1]
