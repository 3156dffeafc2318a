"""`POST /eventbus/v1/record`: events of any language, or batches of a recorder of ours. See docs/http.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.access import Access, User
from eventbus.api.auth.authentication import is_from_browser
from eventbus.api.context import API, AUDIT_NOTE, USER, refuse_own_export, require_anywhere
from eventbus.api.eventbus_v1.frames import FramePublisher, bound_secret
from eventbus.api.eventbus_v1.idempotency import LIFE_MS, know, publish_known, publish_once
from eventbus.api.eventbus_v1.intake import Packed, Refused, pack_events, read_json, read_lines
from eventbus.api.eventbus_v1.publisher import Publisher
from eventbus.api.kube.bodies import MAX_BODY, decode_as, read_body
from eventbus.api.responses import reply_json
from eventbus.api.thread_context import BlockingPool, ThreadContext
from eventbus.api.write_batcher import WriteBatcher
from eventbus.broker.frames import FRAMES_TYPE, pack_answers, unpack_frames
from eventbus.broker.redis_errors import redis_errors
from eventbus.broker.redis_transport import RedisTransport
from eventbus.broker.transport import PRODUCER_LIFE_MS
from eventbus.client.transport import LastNumbers
from eventbus.errors import BusFull, EventBusError
from eventbus.util.clock import Clock, SystemClock

JSON_TYPES: Final = frozenset({"application/json", "text/json"})
LINE_TYPES: Final = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
ACCEPTED: Final = ("application/json", "application/x-ndjson", FRAMES_TYPE)


class Producers(msgspec.Struct, frozen=True):
    """The body of a question about producers."""

    producers: tuple[tuple[int, str], ...]
    shorten_life: bool = False  #: they are done: two hours of memory will do


class Recorded(msgspec.Struct, frozen=True):
    """The number of accepted events, and the refused ones."""

    accepted: int
    refused: list[Refused]


class BusFacts(msgspec.Struct, frozen=True, rename="camel"):
    """The facts about the bus that a recorder needs, and the life of events."""

    id: str
    partitions: int
    event_ttl_s: int
    codecs: tuple[int, ...]


class _Prepared(NamedTuple):
    """The *found* and *packed* events of one request, by number, and those that are still to be published."""

    found: int
    packed: int
    waiting: Sequence[Packed]
    refused: Sequence[Refused]
    failed: Mapping[int, EventBusError]
    headers: Mapping[str, str]


class Taken(NamedTuple):
    """The result of one request. *failed*: events by their index that may be sent again."""

    accepted: int
    refused: Sequence[Refused]
    failed: Mapping[int, EventBusError]
    headers: Mapping[str, str]

    @property
    def error(self) -> EventBusError:
        """Return one error for all that failed; errors that allow an immediate retry come last."""
        uncertain = [error for error in self.failed.values() if not isinstance(error, BusFull)]
        return (uncertain or list(self.failed.values()))[0]

    @property
    def answer(self) -> web.Response:
        """Return the answer `{"accepted": n, "refused": […]}`. Raises: EventBusError: nothing was accepted."""
        if not self.accepted and self.failed:
            raise self.error
        failed = [Refused(index, str(error)) for index, error in self.failed.items()]
        refused = sorted([*self.refused, *failed], key=lambda one: one.index)
        code = 422 if self.refused and not self.accepted else 200
        return reply_json(Recorded(self.accepted, refused), code=code, headers=self.headers)


class Recording:
    """The handlers that write into the stream."""

    def __init__(self, pool: BlockingPool, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._batcher = WriteBatcher(pool, Publisher(self._clock).publish)

    async def record(self, request: web.Request) -> web.Response:
        """Take events, and answer when Redis has them: `Recorded`.

        Nothing taken: 422 where all are refused, 429 where there is no room, 503 where Redis does not answer.
        """
        media_type = request.content_type
        if "Content-Type" not in request.headers and not is_from_browser(request):
            media_type = (
                "application/json"  # many clients omit it; browsers may not, because any page could send such a request
            )
        if media_type == FRAMES_TYPE:
            return await self._record_frames(request)
        if media_type in JSON_TYPES:
            read: Callable[[bytes], list[Any]] = read_json
        elif media_type in LINE_TYPES:
            read = read_lines
        else:
            raise status.unsupported_media_type(ACCEPTED)
        body = await read_recorded(request)
        return (await self.take(request, body, read, key=request.headers.get("Idempotency-Key", ""))).answer

    async def take(
        self,
        request: web.Request,
        body: bytes,
        read: Callable[[bytes], list[Any]],
        *,
        key: str,
        same: bytes = b"",
        uids: Sequence[str] = (),
        uid_life_ms: int = LIFE_MS,
    ) -> Taken:
        """Record the events that *read* finds in *body*. Requests with one *key* must repeat *same*; b"": the body.

        *uids*: of the events, for those that are recorded once in *uid_life_ms* in any request; "": none.
        """
        api, user = request.app[API], request[USER]
        refuse_own_export(api.bus, request)
        may_record = _may_record_of(api.access, user)
        now_ns = self._clock.time_ns()

        def prepare(context: ThreadContext) -> _Prepared:
            found = read(body)
            known = (
                know(context.bus, context.client, user=user.name, key=key, body=same or body, now_ns=now_ns)
                if key
                else None
            )
            packed, refused = pack_events(
                found,
                partitions=context.bus.partitions,
                user=user.name,
                now_ns=known.time_ns if known else now_ns,
                may_record=may_record,
            )
            api.event_rate.admit(user.name, len(packed))  # repeats too: else a key would be a way around
            transport = RedisTransport(context.bus, context.client)
            once = [(uids[one.index], one) for one in packed if uids and uids[one.index]]
            failed = publish_once(transport, user.name, once, life_ms=uid_life_ms)
            waiting = [one for one in packed if not (uids and uids[one.index])]
            if known:
                failed |= publish_known(transport, known, waiting)
                waiting = []
            headers = {"Idempotency-Replayed": "true"} if known and not known.is_new else {}
            return _Prepared(len(found), len(packed), waiting, refused, failed, headers)

        async def record() -> Taken:
            prepared = await api.pool.run(prepare)
            failed = {**prepared.failed}
            if prepared.waiting:
                failed |= await self._batcher.write(prepared.waiting)
            accepted = prepared.packed - len(failed)
            request[AUDIT_NOTE] = f"accepted {accepted} of {prepared.found} events"
            return Taken(accepted, prepared.refused, failed, prepared.headers)

        return await asyncio.shield(record())  # continues if the client disconnects

    async def producers(self, request: web.Request) -> web.Response:
        """Answer the last sequence number that the bus has of each (partition, producer) of this user; 0: none."""
        api, user = request.app[API], request[USER]
        body = await read_body(request)
        asked = decode_as(Producers, body, 'the body must be {"producers": [[partition, id], …]}')
        if len(asked.producers) > 1024 or any(not 0 <= p < api.bus.partitions for p, _ in asked.producers):
            raise status.bad_request(f"at most 1024 producers, of partitions 0 to {api.bus.partitions - 1}")
        ours = [(partition, bound_secret(user.name, producer)) for partition, producer in asked.producers]

        def work(context: ThreadContext) -> list[int | None]:
            last = RedisTransport(context.bus, context.client).last(ours) if ours else []
            if asked.shorten_life:
                pipe: Any = context.client.pipeline(transaction=False)
                for partition, producer in ours:
                    pipe.execute_command(
                        "PEXPIRE", context.bus.keys[partition].producer + producer.encode(), PRODUCER_LIFE_MS
                    )
                with redis_errors():
                    pipe.execute(raise_on_error=False)
            return last

        return reply_json(LastNumbers(await api.pool.run(work)))

    async def _record_frames(self, request: web.Request) -> web.Response:
        api, user = request.app[API], request[USER]
        body = await read_body(request)
        may_record = _may_record_of(api.access, user)

        def work(context: ThreadContext) -> bytes:
            frames = unpack_frames(body)
            api.event_rate.admit(user.name, sum(frame.events for frame in frames))
            request[AUDIT_NOTE] = f"sent {sum(frame.events for frame in frames)} events"
            publisher = FramePublisher(
                transport=RedisTransport(context.bus, context.client),
                partitions=context.bus.partitions,
                user=user.name,
                may_record=may_record,
            )
            return pack_answers(publisher.publish(frames))

        return web.Response(body=await api.pool.run(work), content_type=FRAMES_TYPE)


async def read_recorded(request: web.Request, *, most: int = MAX_BODY) -> bytes:
    """Read the body with events, if the user may record in some namespace.

    Raises: ApiError: 403, before it is read; else as `read_body`.
    """
    require_anywhere(request, "create", "events")
    return await read_body(request, most=most)


async def describe_bus(request: web.Request) -> web.Response:
    """Answer the `BusFacts`."""
    bus = request.app[API].bus
    return reply_json(BusFacts(bus.id, bus.partitions, bus.options.event_ttl_s, bus.codecs))


def _may_record_of(access: Access, user: User) -> Callable[[str], bool]:
    """Return a function that checks if *user* may create events in a namespace, once for each namespace."""
    known: dict[str, bool] = {}

    def may_record(namespace: str) -> bool:
        if namespace not in known:
            known[namespace] = access.allowed(user, "create", "events", namespace)
        return known[namespace]

    return may_record
