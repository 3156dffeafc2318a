"""`POST /v1/logs`: OTLP/HTTP, in protobuf or JSON. Log records with an event name become events of the bus."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Final

from aiohttp import web

from eventbus.api import status
from eventbus.api.context import API
from eventbus.api.eventbus_v1.record import Recording, read_recorded
from eventbus.api.kube.handler import refuse_method
from eventbus.api.metrics import Metrics
from eventbus.api.middleware import answer_of
from eventbus.errors import EventBusError
from eventbus.util.extras import is_needed
from eventbus.util.text import cut_bytes, printable

PATH: Final = "/v1/logs"
#: Requests of more than SMALL bytes, or of unknown size, that are read at once: each may take 20 MiB.
MOST_LARGE: Final = 8
SMALL: Final = 256 * 1024


def add_logs_route(app: web.Application, metrics: Metrics) -> None:
    """Mount the path; *app* has its `API` already."""
    app.router.add_post(PATH, Logs(Recording(app[API].pool), metrics).receive)
    app.router.add_route("*", PATH, refuse_method)


class Logs:
    """The handler. A log record that is sent again within ten minutes changes nothing, if it has a `log.record.uid`.

    Other records: a request with the same body changes nothing, if all its records have times.
    """

    def __init__(self, recording: Recording, metrics: Metrics) -> None:
        self._recording = recording
        self._metrics = metrics
        self._large = 0

    async def receive(self, request: web.Request) -> web.Response:
        """Record them. Errors are answered with a google.rpc.Status, as the protocol wants it."""
        try:
            from eventbus.api.eventbus_v1.log_records import JSON, PROTOBUF, pack_status
        except ImportError:
            message = f"this API worker cannot read OTLP: where it runs, {is_needed('otlp')}"
            raise status.ApiError(501, "NotImplemented", message, details={}) from None
        media_type = request.content_type
        try:
            if media_type not in (PROTOBUF, JSON):
                raise status.unsupported_media_type((PROTOBUF, JSON))
            return await self._bounded(request)
        except (status.ApiError, EventBusError) as error:
            answer = answer_of(request, error)
            media_type = media_type if media_type in (PROTOBUF, JSON) else JSON
            answer.body = pack_status(answer.status, cut_bytes(str(error), 1024), media_type)
            answer.content_type = media_type
            return answer

    async def _bounded(self, request: web.Request) -> web.Response:
        size = request.content_length
        if size is not None and size <= SMALL and "Content-Encoding" not in request.headers:
            return await self._receive(request)
        if self._large >= MOST_LARGE:
            raise status.too_many(f"{MOST_LARGE} requests of more than {SMALL} bytes are being read")
        self._large += 1
        try:
            return await self._receive(request)
        finally:
            self._large -= 1

    async def _receive(self, request: web.Request) -> web.Response:
        from eventbus.api.eventbus_v1.log_records import LOOPS, MAX_BODY, Result, pack_answer, read_logs

        api, media_type = request.app[API], request.content_type
        body = await read_recorded(request, most=MAX_BODY)
        read = await api.pool.run(lambda _: read_logs(body, media_type, api.bus.id))
        # Dropped, not rejected: the sender could do nothing about it, and an export would bury them as dead letters.
        dropped: Counter[str] = Counter(one.result for one in read if one.result in LOOPS)
        found = [one for one in read if one.result not in LOOPS]
        is_timed = all(one.uid or getattr(one.event, "last_timestamp", True) for one in found)
        same = blake2b(body, digest_size=16).hexdigest() if is_timed else ""
        taken = await self._recording.take(
            request,
            body,
            lambda _: [one.event for one in found],
            key=f"otlp:{same}" if same else "",
            same=same.encode(),
            uids=[one.uid for one in found],
        )
        if taken.failed:
            raise taken.error
        results: Counter[str] = Counter(one.result for one in found if one.result is not Result.ACCEPTED)
        results[Result.INVALID] += len(taken.refused) - sum(results.values())
        results[Result.ACCEPTED] = taken.accepted
        self._metrics.note_log_records(results + dropped)
        reasons = ", ".join(f"{count} {result}" for result, count in sorted(results.items()) if count)
        first = f"; the first: {printable(taken.refused[0].reason)}" if taken.refused else ""
        text = cut_bytes(f"{reasons}{first}", 1024)
        answer = pack_answer(len(taken.refused), text, media_type)
        return web.Response(body=answer, content_type=media_type)
