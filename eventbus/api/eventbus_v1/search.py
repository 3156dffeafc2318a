"""`GET /eventbus/v1/events`: stored events, the one last seen first, by words, selectors and period."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from eventbus.api.context import require
from eventbus.api.eventbus_v1.answer import answer_json
from eventbus.api.eventbus_v1.query import instant_of, whole_number_of
from eventbus.api.kube.rendering import items_of
from eventbus.api.thread_context import Desk
from eventbus.model.encoding.event_json import seconds_to_json
from eventbus.model.kinds import EVENT
from eventbus.store.event_search import Search, search_events

#: Events of one answer, where nothing is said, and at the most.
LIMIT: Final = 500
MOST: Final = 5_000
_ENCODE: Final = msgspec.json.Encoder().encode


async def search(request: web.Request) -> web.Response:
    """At most *limit* events of *namespace* that *q* and selectors find between *since* and *until*.

    *resourceVersion*: a watch of core/v1 events from there tells all that is newer. *begins*: what was last seen
    before is forgotten. *examined*: how many events were looked at.
    """
    namespace = request.query.get("namespace", "")
    require(request, "list", "events", namespace)
    asked = Search(
        namespace=namespace,
        label_selector=request.query.get("labelSelector", ""),
        field_selector=request.query.get("fieldSelector", ""),
        text=request.query.get("q", ""),
        since=instant_of(request, "since"),
        until=instant_of(request, "until"),
        limit=whole_number_of(request, "limit", LIMIT, MOST),
    )

    def work(desk: Desk) -> bytes:
        found = search_events(desk.bus, desk.client, desk.objects(EVENT), asked)
        versions = desk.versions(EVENT)
        head = _ENCODE(
            {
                "resourceVersion": versions.of_list(found.resource_version),
                "begins": seconds_to_json(found.begins),
                "examined": found.examined,
                "more": found.more,
            }
        )
        items = b",".join(items_of(EVENT, found.items, versions))
        return head[:-1] + b',"items":[' + items + b"]}\n"

    return await answer_json(request, work)
