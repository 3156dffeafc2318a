"""`/eventbus/v1/dead`: the dead letter, listed, shown, given back to its group, let go."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web

from eventbus.api.context import API, require
from eventbus.api.eventbus_v1.query import read_query
from eventbus.api.responses import reply_json
from eventbus.api.thread_context import ThreadContext
from eventbus.consume.dead_letter import DeadEntry, DeadLetter
from eventbus.errors import InvalidEvent
from eventbus.model.encoding.event_json import to_core
from eventbus.model.event import Event

RESOURCE: Final = "dead"


class DeadQuery(msgspec.Struct, frozen=True):
    """The entries to list."""

    group: str | None = None
    cause: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 500


class Buried(msgspec.Struct, frozen=True):
    """A buried entry. *size* is in bytes; *events*: those that can be read."""

    id: str
    time: str
    group: str
    cause: str
    deaths: int
    why: str
    size: int
    events: list[dict[str, Any]]


class BuriedBytes(Buried, frozen=True):
    """A buried entry with its *bytes*, in hex."""

    bytes: str


class DeadList(msgspec.Struct, frozen=True):
    """Buried entries, oldest first, and whether there are more."""

    items: list[Buried]
    more: bool


class Done(msgspec.Struct, frozen=True):
    """The change of a buried entry: replayed or discarded."""

    id: str
    done: str


async def list_dead(request: web.Request) -> web.Response:
    """Buried entries, oldest first, of *group* and *cause*; at most *limit*, and whether there are *more*.

    Without their bytes, which one of them alone is shown with.
    """
    require(request, "list", RESOURCE)
    query = read_query(request, DeadQuery)

    def work(context: ThreadContext) -> DeadList:
        entries = _letter(context).list(group=query.group, cause=query.cause)
        found = list(islice(entries, query.limit + 1))
        return DeadList([Buried(**_fields(entry)) for entry in found[: query.limit]], len(found) > query.limit)

    return reply_json(await request.app[API].pool.run(work))


async def show_dead(request: web.Request) -> web.Response:
    """One entry, with its events as far as they can be read, and its bytes."""
    require(request, "get", RESOURCE)
    entry = await request.app[API].pool.run(lambda context: _letter(context).get(_id_of(request)))
    return reply_json(BuriedBytes(**_fields(entry), bytes=entry.body.hex()))


async def replay_dead(request: web.Request) -> web.Response:
    """Give it back to the group that buried it. It moves once: 404 from then on."""
    require(request, "update", RESOURCE)
    await request.app[API].pool.run(lambda context: _letter(context).replay(_id_of(request)))
    return reply_json(Done(_id_of(request), "replayed"))


async def discard_dead(request: web.Request) -> web.Response:
    """Let it go for good; it is counted."""
    require(request, "delete", RESOURCE)
    await request.app[API].pool.run(lambda context: _letter(context).discard(_id_of(request)))
    return reply_json(Done(_id_of(request), "discarded"))


def _letter(context: ThreadContext) -> DeadLetter:
    return DeadLetter(context.bus, context.client)


def _id_of(request: web.Request) -> str:
    return f"{request.match_info['partition']}/{request.match_info['entry']}"


def _fields(entry: DeadEntry) -> dict[str, Any]:
    moment = datetime.fromtimestamp(entry.time_ms / 1000, UTC)
    return {
        "id": entry.id,
        "time": moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z",
        "group": entry.group,
        "cause": entry.cause,
        "deaths": entry.deaths,
        "why": entry.why,
        "size": len(entry.body),
        "events": [core for event in entry.events() if (core := _core(event)) is not None],
    }


def _core(event: Event) -> dict[str, Any] | None:
    try:
        return to_core(event)
    except InvalidEvent:
        return None  # it can be decoded, but not encoded; its bytes are shown
