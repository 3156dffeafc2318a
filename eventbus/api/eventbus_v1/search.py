"""`GET /eventbus/v1/events`: stored events by words and selectors."""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import web

from eventbus.api.context import require
from eventbus.api.eventbus_v1.query import InstantText, read_instant, read_query
from eventbus.api.kube.rendering import items_of
from eventbus.api.responses import compute_json
from eventbus.api.thread_context import ThreadContext
from eventbus.model.encoding.event_json import seconds_to_json
from eventbus.model.kinds import EVENT
from eventbus.store.event_search import Search, search_events


class SearchQuery(msgspec.Struct, frozen=True, rename="camel"):
    """The events to find."""

    namespace: str = ""
    since: InstantText = ""
    until: InstantText = ""
    q: Annotated[str, msgspec.Meta(description="words, each in any field")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 500
    label_selector: str = ""
    field_selector: str = ""


class Found(msgspec.Struct, frozen=True, rename="camel"):
    """The events found, the one last seen first.

    A watch of core/v1 events from *resource_version* delivers all later changes. *begins*: events that were last seen
    before it are deleted. *examined*: the number of events that were read.
    """

    resource_version: str
    begins: str | None
    examined: int
    more: bool
    items: Annotated[list[msgspec.Raw], msgspec.Meta(description="Events of core/v1")]


async def search(request: web.Request) -> web.Response:
    """At most *limit* events of *namespace* that *q* and selectors find between *since* and *until*."""
    query = read_query(request, SearchQuery)
    require(request, "list", "events", query.namespace)
    wanted = Search(
        namespace=query.namespace,
        label_selector=query.label_selector,
        field_selector=query.field_selector,
        text=query.q,
        since=read_instant("since", query.since),
        until=read_instant("until", query.until),
        limit=query.limit,
    )

    def work(context: ThreadContext) -> Found:
        found = search_events(context.bus, context.client, context.objects(EVENT), wanted)
        versions = context.versions(EVENT)
        return Found(
            resource_version=versions.of_list(found.resource_version),
            begins=seconds_to_json(found.begins),
            examined=found.examined,
            more=found.more,
            items=[msgspec.Raw(item) for item in items_of(EVENT, found.items, versions)],
        )

    return await compute_json(request, work)
