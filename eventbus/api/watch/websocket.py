"""Watches over WebSocket, as Headlamp and fabric8 open them: one text frame for each event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from eventbus.api.auth.authentication import BEARER_PROTOCOL
from eventbus.api.watch.group import Taker

#: Seconds between two pings. A client that does not answer is disconnected.
HEARTBEAT_S: Final = 30.0
#: Maximum bytes of a client's message. Clients have nothing to send.
_MOST: Final = 4096


def is_upgrade(request: web.Request) -> bool:
    """Return True if the client wants a WebSocket."""
    wants = request.headers.get("Upgrade", "").lower() == "websocket"
    return wants and "upgrade" in request.headers.get("Connection", "").lower()


class SocketOutlet:
    """Implements `Outlet`. *gone* is called when the client has disconnected."""

    def __init__(self, request: web.Request, gone: Callable[[], None]) -> None:
        self._request = request
        self._gone = gone
        self._reading: asyncio.Task[None] | None = None
        self.response = web.WebSocketResponse(
            heartbeat=HEARTBEAT_S, max_msg_size=_MOST, protocols=_protocols(request), compress=False
        )

    async def begin(self) -> None:
        await self.response.prepare(self._request)
        self._reading = asyncio.create_task(self._read())

    async def send(self, lines: bytes) -> None:
        for line in lines.splitlines():
            await self.response.send_str(line.decode())

    async def drain(self) -> None:
        """See `Outlet`. `send` already waits."""

    @property
    def taker(self) -> Taker | None:
        """None: each line is a frame of its own, and only its writer can encode the length."""
        return None

    async def close(self) -> None:
        """Close the WebSocket, and stop reading."""
        await self.response.close()
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        """Read until the client disconnects. Pings and the disconnect are handled only while reading."""
        async for _ in self.response:
            pass
        self._gone()


def _protocols(request: web.Request) -> tuple[str, ...]:
    """Return the first protocol that the client offers, but never the one with its token."""
    offered = (word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(","))
    return tuple(word for word in offered if word and not word.startswith(BEARER_PROTOCOL))[:1]
