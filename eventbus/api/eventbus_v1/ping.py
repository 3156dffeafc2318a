"""`GET|POST /eventbus/v1/ping/NAMESPACE/KIND/NAME[/start|/fail]`: an event by a URL alone, as Healthchecks users know.

The time of a start is in Redis, so any API worker can compute the duration.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from aiohttp import web

from eventbus.api.context import API, USER, require
from eventbus.api.eventbus_v1.record import Recording
from eventbus.api.kube.bodies import read_body
from eventbus.api.thread_context import ThreadContext
from eventbus.broker.keys import whole_number
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import InvalidObject
from eventbus.model.event import Event, EventType, ObjectReference
from eventbus.model.reference import spelled_kind
from eventbus.util.clock import Clock, SystemClock
from eventbus.util.outcome import duration
from eventbus.util.text import cut_bytes, repair

#: Bytes of a body, and of the message that is made of it.
MAX_BODY: Final = 64 * 1024
MAX_MESSAGE: Final = 1024
#: A run that takes longer is not measured.
LONGEST_RUN_MS: Final = 3 * 86_400_000


class Signal(StrEnum):
    """The last part of the path: the step of a run."""

    DONE = ""
    START = "start"
    FAIL = "fail"


_REASONS: Final = {Signal.DONE: "Pinged", Signal.START: "Started", Signal.FAIL: "Failed"}


class Pings:
    """The handlers. A ping without `Idempotency-Key` that is sent again counts twice, as with `record`."""

    def __init__(self, recording: Recording, clock: Clock | None = None) -> None:
        self._recording = recording
        self._clock = clock or SystemClock()

    async def done(self, request: web.Request) -> web.Response:
        """Record that a run has ended well."""
        return await self._record(request, Signal.DONE)

    async def start(self, request: web.Request) -> web.Response:
        """Record that a run begins: the message of the next ping has its duration."""
        return await self._record(request, Signal.START)

    async def fail(self, request: web.Request) -> web.Response:
        """Record a Warning."""
        return await self._record(request, Signal.FAIL)

    async def _record(self, request: web.Request, signal: Signal) -> web.Response:
        """Answer `OK` when Redis has the event. Raises: ApiError: 403, 413; InvalidObject; errors of the bus."""
        info = request.match_info
        about = ObjectReference(kind=spelled_kind(info["kind"]), namespace=info["namespace"], name=info["name"])
        require(request, "create", "events", about.namespace)
        pool = request.app[API].pool
        body = await read_body(request, most=MAX_BODY)
        text = repair(body.decode("utf-8", "replace")).strip()
        now_ns = self._clock.time_ns()
        parts = (request[USER].name, about.namespace, about.kind, about.name)
        whose = b"\0".join(part.encode("utf-8", "replace") for part in parts)
        name = blake2b(whose, digest_size=16).hexdigest().encode()
        took = ""
        if signal is not Signal.START:
            started_ns = await pool.run(lambda context: _read_start(context, name))
            if started_ns is not None and started_ns <= now_ns:
                took = f"took {duration((now_ns - started_ns) / 1e9)}"
        message = "; ".join(filter(None, (cut_bytes(text, MAX_MESSAGE - len("; ") - len(took)), took)))
        event = Event(
            involved_object=about,
            reason=_REASONS[signal],
            message=message,
            type=EventType.WARNING if signal is Signal.FAIL else EventType.NORMAL,
        )
        same = b"\0".join((whose, signal.encode(), text.encode()))
        key = request.headers.get("Idempotency-Key", "")
        taken = await self._recording.take(request, body, lambda _: [event], key=key, same=same)
        for refused in taken.refused:
            raise InvalidObject(refused.reason)
        for error in taken.failed.values():
            raise error
        if signal is Signal.START:
            await pool.run(lambda context: _write_start(context, name, now_ns))
        elif took:
            await pool.run(lambda context: _delete_start(context, name))
        return web.Response(text="OK\n")


def _read_start(context: ThreadContext, name: bytes) -> int | None:
    with redis_errors():
        found: Any = context.client.get(context.bus.keys[0].started + name)
    return whole_number(found) if found else None


def _write_start(context: ThreadContext, name: bytes, now_ns: int) -> None:
    with redis_errors():
        context.client.set(context.bus.keys[0].started + name, str(now_ns), px=LONGEST_RUN_MS)


def _delete_start(context: ThreadContext, name: bytes) -> None:
    with redis_errors():
        context.client.delete(context.bus.keys[0].started + name)
