"""`GET /eventbus/v1/events` and `histogram`: stored events by words and selectors, and their numbers by time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.context import require
from eventbus.api.eventbus_v1.query import InstantText, read_instant, read_query
from eventbus.api.kube.rendering import items_of
from eventbus.api.responses import compute_json
from eventbus.api.thread_context import ThreadContext
from eventbus.model.encoding.event_json import seconds_to_json
from eventbus.model.kinds import EVENT
from eventbus.store.event_search import Search, search_events
from eventbus.store.occurrences import MINUTE_S, Occurrences, OccurrencesRead, read_occurrences


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


FACETS: Final = ("namespace", "kind", "type", "reason", "source")
#: The default period.
LAST: Final = timedelta(hours=1)
#: Buckets of one answer.
MOST_BUCKETS: Final = 20_160


class HistogramQuery(msgspec.Struct, frozen=True):
    """The period, the buckets, and facets; only events with a given value of a facet are counted."""

    since: InstantText = ""
    until: InstantText = ""
    by: Annotated[str, msgspec.Meta(description=f"facets to group by: some of {', '.join(FACETS)}")] = ""
    step: Annotated[int, msgspec.Meta(ge=1, le=86_400, description="seconds of a bucket, in whole minutes")] = MINUTE_S
    namespace: str | None = None
    kind: str | None = None
    type: str | None = None
    reason: str | None = None
    source: str | None = None


class Histogram(msgspec.Struct, frozen=True, rename="camel"):
    """Counts a bucket. A row has `time`, the words of *by*, and `count`; nothing before *begins* is known."""

    begins: str | None
    step_s: int
    by: list[str]
    rows: list[dict[str, Any]]


async def histogram(request: web.Request) -> web.Response:
    """Counts a bucket of *step* seconds (a whole number of minutes), from *since* to *until*.

    *by* groups by facets, separated by commas; each of `FACETS` may be given to count only one value. The facets of
    sources without a name of their own in a minute are "". Empty buckets are left out.
    """
    query = read_query(request, HistogramQuery)
    require(request, "list", "events", query.namespace or "")
    until = read_instant("until", query.until) or datetime.now(UTC)
    since = read_instant("since", query.since) or until - LAST
    if query.step % MINUTE_S:
        raise status.bad_request("step: must be a whole number of minutes, in seconds: 60, 300, 3600")
    if not 0 <= (until - since).total_seconds() <= MOST_BUCKETS * MINUTE_S:
        raise status.bad_request("since: must be before until, and at most 14 days")
    by = _facets(query.by)
    only = {facet: word for facet in FACETS if (word := getattr(query, facet)) is not None}

    def work(context: ThreadContext) -> Histogram:
        found = read_occurrences(context.bus, context.client, since, until)
        return summed(found, by=by, only=only, step_s=query.step)

    return await compute_json(request, work)


def summed(found: OccurrencesRead, *, by: Sequence[str], only: dict[str, str], step_s: int) -> Histogram:
    """Count by bucket and the words of *by*, in that order."""
    counts: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for row in found.rows:
        if all(getattr(row, facet) == word for facet, word in only.items()):
            counts[_bucket(row, step_s), tuple(getattr(row, facet) for facet in by)] += row.count
    rows = [
        {
            "time": seconds_to_json(datetime.fromtimestamp(start, UTC)),
            **dict(zip(by, words, strict=True)),
            "count": count,
        }
        for (start, words), count in sorted(counts.items())
    ]
    return Histogram(begins=seconds_to_json(found.begins), step_s=step_s, by=list(by), rows=rows)


def _bucket(row: Occurrences, step_s: int) -> int:
    return int(row.minute.timestamp()) // step_s * step_s


def _facets(text: str) -> list[str]:
    facets = [facet for facet in text.split(",") if facet]
    if wrong := [facet for facet in facets if facet not in FACETS]:
        raise status.bad_request(f"by: {wrong[0][:80]!a} is none of {', '.join(FACETS)}")
    return list(dict.fromkeys(facets))
