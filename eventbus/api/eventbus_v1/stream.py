"""`GET /eventbus/v1/stream`: every event of the bus as it is recorded, uncorrelated, a JSON line each.

Lines are {"type": "EVENT", "object": <core/v1 Event>}, {"type": "BOOKMARK", "position": …} after the events that were
read at once, {"type": "MISSED", "count": n} if the stream was trimmed before it could be read, and {"type": "ERROR",
"message": …} at the end of a stream that cannot continue. One thread waits for Redis for all streams of a worker.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.context import API, require
from eventbus.api.eventbus_v1.query import InstantText, read_instant, read_query
from eventbus.api.responses import reply_json
from eventbus.api.thread_context import ThreadContext
from eventbus.broker.bus import Bus
from eventbus.broker.redis_errors import redis_errors
from eventbus.broker.stream_reader import Delivery, Position
from eventbus.errors import EventBusError, InvalidEvent, PoisonBatch
from eventbus.model.encoding.event_json import encode_core
from eventbus.model.encoding.wire import unpack_batch, unpack_event
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


#: Streams of one worker: each costs calls of its own whenever something happens.
MAX_STREAMS: Final = 256
#: A line at least so often, so that proxies see that the connection lives.
BEAT_S: Final = 30.0
#: Entries of one partition read at once.
COUNT: Final = 16
STREAM_TYPE: Final = "application/x-ndjson"


class StreamQuery(msgspec.Struct, frozen=True):
    """The place where a stream begins, and the namespace of its events."""

    since: InstantText = ""
    position: Annotated[str, msgspec.Meta(description="of a BOOKMARK, or of stream/position")] = ""
    namespace: str = ""


class Place(msgspec.Struct, frozen=True):
    """The place where a later stream begins; opaque."""

    position: str


class RawStream:
    """The handlers, and the thread that wakes all streams of this worker."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waker = StreamWaker(bus)

    async def position(self, request: web.Request) -> web.Response:
        """Answer the place from which a stream that is opened later misses nothing after now, or *since*."""
        query = read_query(request, StreamQuery)
        require(request, "watch", "events", query.namespace)
        positions = await self._positions(request, query)
        return reply_json(Place(",".join(map(str, positions))))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Stream events from now, from *since* or after *position*; if given, only of *namespace*. Does not end."""
        query = read_query(request, StreamQuery)
        require(request, "watch", "events", query.namespace)
        if self._waker.joined >= MAX_STREAMS:
            raise status.too_many(f"this worker has {MAX_STREAMS} streams; close some, or ask another worker")
        self._waker.join()
        try:
            positions = await self._positions(request, query)
            response = web.StreamResponse(headers={"Content-Type": STREAM_TYPE, "Cache-Control": "no-store"})
            await response.prepare(request)
            await self._write(request, response, positions, query.namespace)
            return response
        finally:
            self._waker.leave()

    def close(self) -> None:
        """End every stream gracefully."""
        self._waker.close()

    async def _write(
        self, request: web.Request, response: web.StreamResponse, positions: Sequence[Position], namespace: str
    ) -> None:
        pool = request.app[API].pool
        try:
            # At once: a client that is cut off before the first event knows its position.
            await response.write(_bookmark(positions))
            while not self._waker.closing:
                mark = self._waker.mark()
                lines = await pool.run(lambda context: _read(context, positions, namespace))
                if lines is not None:
                    await response.write(lines + _bookmark(positions))
                    continue
                await self._waker.wait(mark, BEAT_S)
                if mark is self._waker.mark():
                    await response.write(_bookmark(positions))
        except EventBusError as error:
            await response.write(_line(type="ERROR", message=str(error)))
        await response.write_eof()

    async def _positions(self, request: web.Request, query: StreamQuery) -> list[Position]:
        """Raises: ApiError: the position or time in the query is invalid."""
        since, text = read_instant("since", query.since), query.position
        if since is not None and text:
            raise status.bad_request("give since or position, not both")
        parts = text.split(",") if text else []
        if parts and len(parts) != self._bus.partitions:
            raise status.bad_request(f"position: is none of this bus, which has {self._bus.partitions} partitions")

        def work(context: ThreadContext) -> list[Position]:
            return [_position(context, p, since, parts[p] if parts else "") for p in range(context.bus.partitions)]

        try:
            return await request.app[API].pool.run(work)
        except ValueError as error:
            raise status.bad_request(f"position: {error}") from None


def _position(context: ThreadContext, partition: int, since: datetime | None, text: str) -> Position:
    found = Position(bus=context.bus, client=context.client, partition=partition)
    if text:
        found.at(text)
    elif since is not None:
        found.at_time(int(since.timestamp() * 1000))
    else:
        found.at_end()
    return found


def _read(context: ThreadContext, positions: Sequence[Position], namespace: str) -> bytes | None:
    """The next lines, of all partitions; None: there is nothing new.

    Redis: XREAD on incoming of every partition, one round trip.
    """
    pipe: Any = context.client.pipeline(transaction=False)
    for position in positions:
        pipe.execute_command(*position.command(count=COUNT))
    missed = sum(position.missed for position in positions)
    with redis_errors():
        replies = pipe.execute()
    found = [position.take(reply) for position, reply in zip(positions, replies, strict=True)]
    missed = sum(position.missed for position in positions) - missed
    if not any(found) and not missed:
        return None
    lines = [line for deliveries in found for delivery in deliveries for line in _lines(delivery, namespace)]
    if missed:
        lines.append(_line(type="MISSED", count=missed))
    return b"".join(lines)


def _lines(delivery: Delivery, namespace: str) -> list[bytes]:
    """Return a line for each event. Corrupt events are skipped, as in every watcher."""
    try:
        batch = unpack_batch(delivery.body)
    except PoisonBatch:
        return []
    lines: list[bytes] = []
    for position, packed in enumerate(batch.events):
        try:
            event = unpack_event(packed, batch.uid(position))
            if namespace in ("", event.metadata.namespace):
                lines.append(b'{"type":"EVENT","object":%s}\n' % encode_core(event))
        except (PoisonBatch, InvalidEvent):
            continue
    return lines


def _bookmark(positions: Sequence[Position]) -> bytes:
    return _line(type="BOOKMARK", position=",".join(map(str, positions)))


def _line(**fields: Any) -> bytes:
    return _ENCODE(fields) + b"\n"


_ENCODE: Final = msgspec.json.Encoder().encode
