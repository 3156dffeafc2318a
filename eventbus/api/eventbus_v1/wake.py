"""Wakes the streams of a worker when new entries arrive: one thread waits for Redis for all of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from eventbus.broker.bus import Bus
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import EventBusError
from eventbus.util.log import log

#: The longest wait of one call, and the pause of a cluster, where no call can wait for several nodes.
BLOCK_MS, CLUSTER_PAUSE_S = 500, 0.1
#: Between two calls: a flood of entries must not become a flood of wakes.
PAUSE_S = 0.005
#: While Redis does not answer.
AWAY_S = 1.0


class StreamWaker:
    """Wakes the streams in `wait`, from the first `join` until the last `leave`. Use it from one loop."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._joined = 0
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = threading.Event()
        self.closing = False

    @property
    def joined(self) -> int:
        return self._joined

    def join(self) -> None:
        """Start to listen: entries that arrive from now on wake the stream."""
        self._joined += 1
        if self._joined == 1:
            self._loop, self._stop = asyncio.get_running_loop(), threading.Event()
            thread = threading.Thread(target=self._run, args=(self._stop,), name="eventbus-api-wake", daemon=True)
            thread.start()

    def leave(self) -> None:
        """Listen no more; with the last one the thread ends, within a call."""
        self._joined -= 1
        if self._joined == 0:
            self._stop.set()

    def mark(self) -> asyncio.Event:
        """Return a mark. Take it before you read, and pass it to `wait` if there was nothing to read."""
        return self._event

    async def wait(self, mark: asyncio.Event, timeout_s: float) -> None:
        """Return when there is something new since *mark*, or after *timeout_s*."""
        try:
            async with asyncio.timeout(timeout_s):
                await mark.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Wake all streams, so that they end."""
        self.closing = True
        self._stop.set()
        self._wake()

    def _wake(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    def _run(self, stop: threading.Event) -> None:
        client = self._bus.client(block_ms=BLOCK_MS, name="eventbus-api-wake")
        seen: list[bytes] = []
        while not stop.is_set():
            try:
                newest = self._newest(client)
                if newest != seen:
                    seen = newest
                    self._tell()
                    stop.wait(PAUSE_S)
                elif self._bus.is_cluster:
                    stop.wait(CLUSTER_PAUSE_S)
                else:
                    self._block(client, seen)
            except EventBusError as error:
                log.debug("the streams wait: %s", error)
                self._tell()  # each stream then gets the error itself
                stop.wait(AWAY_S)
        client.close()

    def _newest(self, client: Any) -> list[bytes]:
        pipe = client.pipeline(transaction=False)
        for keys in self._bus.keys:
            pipe.execute_command("XREVRANGE", keys.incoming, "+", "-", "COUNT", 1)
        with redis_errors():
            return [found[0][0] if found else b"0-0" for found in pipe.execute()]

    def _block(self, client: Any, seen: list[bytes]) -> None:
        streams = [keys.incoming for keys in self._bus.keys]
        with redis_errors():
            client.execute_command("XREAD", "COUNT", 1, "BLOCK", BLOCK_MS, "STREAMS", *streams, *seen)

    def _tell(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                return  # closed in this moment
