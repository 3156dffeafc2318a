"""`/eventbus/v1/dead`: the dead letter, listed, shown, given back to its group, let go."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import msgspec
from aiohttp import web

from eventbus.api.context import API, require
from eventbus.api.eventbus_v1.query import whole_number_of
from eventbus.api.thread_context import ThreadContext
from eventbus.consume.dead_letter import DeadEntry, DeadLetter
from eventbus.errors import InvalidEvent
from eventbus.model.encoding.event_json import to_core
from eventbus.model.event import Event

#: Entries of one list, where nothing is said, and at the most.
LIMIT, MOST = 500, 5_000
RESOURCE: Final = "dead"


async def list_dead(request: web.Request) -> web.Response:
    """Buried entries, oldest first, of *group* and *cause*; at most *limit*, and whether there are *more*.

    Without their bytes, which one of them alone is shown with.
    """
    require(request, "list", RESOURCE)
    limit = whole_number_of(request, "limit", LIMIT, MOST)
    group, cause = request.query.get("group"), request.query.get("cause")

    def work(context: ThreadContext) -> dict[str, Any]:
        entries = DeadLetter(context.bus, context.client).list(group=group, cause=cause)
        found = list(islice(entries, limit + 1))
        return {"items": [_plain(entry) for entry in found[:limit]], "more": len(found) > limit}

    return _json(await request.app[API].pool.run(work))


async def show_dead(request: web.Request) -> web.Response:
    """One entry, with its events as far as they can be read, and its bytes."""
    require(request, "get", RESOURCE)
    entry = await request.app[API].pool.run(lambda context: _letter(context).get(_id_of(request)))
    return _json(_plain(entry) | {"bytes": entry.body.hex()})


async def replay_dead(request: web.Request) -> web.Response:
    """Give it back to the group that buried it. It moves once: 404 from then on."""
    require(request, "update", RESOURCE)
    await request.app[API].pool.run(lambda context: _letter(context).replay(_id_of(request)))
    return _json({"id": _id_of(request), "done": "replayed"})


async def discard_dead(request: web.Request) -> web.Response:
    """Let it go for good; it is counted."""
    require(request, "delete", RESOURCE)
    await request.app[API].pool.run(lambda context: _letter(context).discard(_id_of(request)))
    return _json({"id": _id_of(request), "done": "discarded"})


def _letter(context: ThreadContext) -> DeadLetter:
    return DeadLetter(context.bus, context.client)


def _id_of(request: web.Request) -> str:
    return f"{request.match_info['partition']}/{request.match_info['entry']}"


def _plain(entry: DeadEntry) -> dict[str, Any]:
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


def _json(found: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(found) + b"\n", content_type="application/json")
