"""Watches over WebSocket, as Headlamp and fabric8 open them: a text frame for each thing that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from eventbus.api.authentication import BEARER_PROTOCOL
from eventbus.api.crowd import Taker

#: Seconds between two pings; who does not answer is gone.
HEARTBEAT_S: Final = 30.0
#: Bytes of a message from the client: there is nothing for it to say.
_MOST: Final = 4096


def is_upgrade(request: web.Request) -> bool:
    """Return True if the client wants a WebSocket."""
    wants = request.headers.get("Upgrade", "").lower() == "websocket"
    return wants and "upgrade" in request.headers.get("Connection", "").lower()


class SocketOutlet:
    """Implements `Outlet`. *gone* is called when the client has closed."""

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
        """See `Outlet`. `send` has waited."""

    @property
    def taker(self) -> Taker | None:
        """None: each line is a frame of its own, with a length that its writer knows."""
        return None

    async def close(self) -> None:
        """Say goodbye, and end the reading."""
        await self.response.close()
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        """Pings and the end of the client are seen only by who reads."""
        async for _ in self.response:
            pass
        self._gone()


def _protocols(request: web.Request) -> tuple[str, ...]:
    """The first that the client offers, but never the one that is its token."""
    offered = (word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(","))
    return tuple(word for word in offered if word and not word.startswith(BEARER_PROTOCOL))[:1]
