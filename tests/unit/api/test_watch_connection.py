"""The moments of a taken-over connection that a client hits by chance."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import HttpVersion11

from eventbus.api import connection as protocol
from eventbus.api.connection import ABORTED
from eventbus.api.metrics import ASKED
from eventbus.api.watch.connection import WatchConnection
from eventbus.api.watch.group import Piece, chunk_of
from tests.waiting import eventually

LABELS = ("WATCH", "", "v1", "events", "cluster")


class Asked(dict[Any, Any]):
    """What a connection knows of its request."""

    version = HttpVersion11

    def __init__(self, aborted: Counter[tuple[str, ...]]) -> None:
        super().__init__({ASKED: LABELS})
        self.app = {ABORTED: aborted}


class Watched:
    """A connection that is taken over from nobody, and its other end, which does not read."""

    def __init__(self) -> None:
        self.aborted: Counter[tuple[str, ...]] = Counter()
        self.ended: list[bool] = []
        self.connection = WatchConnection(Asked(self.aborted), lambda: self.ended.append(True))  # type: ignore[arg-type]

    async def connect(self) -> None:
        near, self.far = socket.socketpair()
        self.transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, near)
        self.transport.set_write_buffer_limits(high=1, low=0)

    def take_over(self, tell: Callable[[WatchConnection], Awaitable[None]]) -> None:
        def hand_over(successor: asyncio.Protocol) -> None:
            self.transport.set_protocol(successor)
            successor.connection_made(self.transport)

        self.connection.take_over(SimpleNamespace(hand_over=hand_over), tell)  # type: ignore[arg-type]


async def forever(_: WatchConnection) -> None:
    await asyncio.Event().wait()


def test_who_is_lost_before_the_first_step_gives_the_place_back() -> None:
    async def scenario() -> None:
        watched = Watched()
        await watched.connect()
        watched.transport.abort()  # it is told so in the next round, before the task's first step
        watched.take_over(forever)
        await asyncio.to_thread(eventually, lambda: watched.ended == [True])
        watched.far.close()

    asyncio.run(scenario())


def test_a_head_that_is_never_read_is_cut_off_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "STALLED_S", 0.01)

    async def scenario() -> None:
        watched = Watched()
        await watched.connect()
        watched.transport.write(b"x" * 5_000_000)  # it paused a protocol that is not there any more
        watched.take_over(forever)
        await asyncio.to_thread(eventually, lambda: watched.ended == [True])
        assert watched.aborted == {LABELS: 1}
        watched.far.close()

    asyncio.run(scenario())


def test_an_end_waits_until_all_has_left() -> None:
    async def scenario() -> None:
        watched = Watched()
        await watched.connect()

        async def much(connection: WatchConnection) -> None:
            connection.take(chunk)
            assert not connection.has_room()
            assert not connection.take(chunk)

        lines = b"x" * 5_000_000
        chunk = Piece(lines, chunk_of(lines))
        watched.take_over(much)
        loop, read = asyncio.get_running_loop(), b""
        while not read.endswith(b"0\r\n\r\n"):
            assert len(read) > len(lines) // 2 or not watched.ended  # the system holds some of what has left
            read += await loop.run_in_executor(None, watched.far.recv, 1 << 20)
        assert len(read) == len(chunk.chunk) + len(b"0\r\n\r\n")
        await asyncio.to_thread(eventually, lambda: watched.ended == [True])
        assert watched.aborted == {}
        watched.far.close()

    asyncio.run(scenario())
