"""A proxy that can fail in every way a network can. Seeded: one seed does the same to the same bytes."""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from urllib.parse import unquote, urlsplit

CHUNK = 1 << 16


class Mode(StrEnum):
    """The treatment of the proxy's connections, until it is changed."""

    PASS = "pass"
    CUT_REPLY = "cut_reply"  #: now and then the line breaks when the answer comes: the call has had its effect
    CUT_REQUEST = "cut_request"  #: now and then it breaks in the middle of a request: no effect
    DELAY = "delay"  #: every piece is late by 0 to 2 x delay_s
    DRIP = "drip"  #: drip_bytes at a time, with a pause
    BLACK_HOLE = "black_hole"  #: nothing arrives, nobody hangs up
    REFUSE = "refuse"  #: hangs up at once


class Proxy:
    """Listens on loopback and forwards to *upstream*; both may be changed at any time, from any thread.

    Args: cut_every: of the pieces that pass, one in so many is cut.  cut_bytes: pieces that are shorter never are.
          tls: of its own connections; those to *upstream* are plain.
    """

    def __init__(
        self,
        upstream: str,
        *,
        seed: int,
        port: int = 0,
        cut_every: int = 20,
        cut_bytes: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.upstream = upstream
        self._tls = tls
        self.mode = Mode.PASS
        self.cut_every = cut_every
        self.cut_bytes = cut_bytes
        self.delay_s = 0.05
        self.drip_bytes = 512
        self.cuts = 0
        self._random = random.Random(seed)
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults-proxy", daemon=True)
        self._lines: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def port(self) -> int:
        return self._port

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)

    def hang_up(self) -> None:
        """Break every line that there is now."""
        self._call(self._close_lines)

    def switch(self, upstream: str) -> None:
        """Lead to another server from now on; lines to the old one break."""
        self.upstream = upstream
        self.hang_up()

    def _call(self, function: Callable[[], object]) -> None:
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(30)

    def _close_lines(self) -> None:
        for writer in list(self._lines):
            writer.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, ssl=self._tls)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        self.mode = Mode.REFUSE
        # A line that was accepted and has not begun would never be closed: no more of them, and two turns to begin in.
        self._loop.remove_reader(server.sockets[0].fileno())
        for _ in range(2):
            await asyncio.sleep(0)
        server.close()
        self._close_lines()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # Closed already, and held open by what somebody who stands still has not read.
        for transport in list(self._transports):
            transport.abort()
        await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Known at once: a task that is cancelled before it has begun closes nothing."""
        self._transports.add(writer.transport)
        task = self._loop.create_task(self._line(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer}
        try:
            if self.mode is Mode.REFUSE:
                return
            server_reader, server_writer = await self._connect()
            ends.add(server_writer)
            self._lines |= ends
            self._transports.add(server_writer.transport)
            await asyncio.gather(
                self._pump(reader, server_writer, writer, is_reply=False),
                self._pump(server_reader, writer, server_writer, is_reply=True),
            )
        except OSError:
            return  # the server is away
        except asyncio.CancelledError:  # the end of the proxy; asyncio's streams would log it as an error
            return
        finally:
            for end in ends:
                end.close()
            self._lines -= ends

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.upstream.startswith("unix:"):
            return await asyncio.open_unix_connection(unquote(self.upstream.removeprefix("unix://")))
        parts = urlsplit(self.upstream)
        return await asyncio.open_connection(parts.hostname, parts.port)

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, back: asyncio.StreamWriter, *, is_reply: bool
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while data := await source.read(CHUNK):
                if not await self._forward(data, target, is_reply):
                    break
        for end in (target, back):
            end.close()

    async def _forward(self, data: bytes, target: asyncio.StreamWriter, is_reply: bool) -> bool:
        """False: the line is to break."""
        mode = self.mode
        if mode is Mode.REFUSE:
            return False
        if mode is Mode.BLACK_HOLE:
            while self.mode is Mode.BLACK_HOLE:
                await asyncio.sleep(0.02)
            return False  # what was swallowed is gone: when the hole closes the line is found broken
        cuts = mode is (Mode.CUT_REPLY if is_reply else Mode.CUT_REQUEST) and len(data) >= self.cut_bytes
        if cuts and self._random.randrange(self.cut_every) == 0:
            self.cuts += 1
            if not is_reply:
                target.write(data[: len(data) // 2])
                await target.drain()
            return False
        if mode is Mode.DELAY:
            await asyncio.sleep(self._random.uniform(0, 2 * self.delay_s))
        if mode is Mode.DRIP:
            for start in range(0, len(data), self.drip_bytes):
                target.write(data[start : start + self.drip_bytes])
                await target.drain()
                await asyncio.sleep(0.01)
            return True
        target.write(data)
        await target.drain()
        return True
