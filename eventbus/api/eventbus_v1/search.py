"""`GET /eventbus/v1/events` and `histogram`: stored events by words and selectors, and their numbers by time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.context import require
from eventbus.api.eventbus_v1.query import instant_of, whole_number_of
from eventbus.api.kube.rendering import items_of
from eventbus.api.responses import answer_json
from eventbus.api.thread_context import ThreadContext
from eventbus.model.encoding.event_json import seconds_to_json
from eventbus.model.kinds import EVENT
from eventbus.store.event_search import Search, search_events
from eventbus.store.occurrences import MINUTE_S, Occurrences, OccurrencesRead, read_occurrences

#: Events of one answer, where nothing is said, and at the most.
LIMIT: Final = 500
MOST: Final = 5_000
_ENCODE: Final = msgspec.json.Encoder().encode


async def search(request: web.Request) -> web.Response:
    """At most *limit* events of *namespace* that *q* and selectors find between *since* and *until*.

    *resourceVersion*: a watch of core/v1 events from there delivers all later changes. *begins*: events that were last
    seen before it are deleted. *examined*: the number of events that were read.
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

    def work(context: ThreadContext) -> bytes:
        found = search_events(context.bus, context.client, context.objects(EVENT), asked)
        versions = context.versions(EVENT)
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


FACETS: Final = ("namespace", "kind", "type", "reason", "source")
#: The default period.
LAST: Final = timedelta(hours=1)
#: Buckets of one answer.
MOST_BUCKETS: Final = 20_160


async def histogram(request: web.Request) -> web.Response:
    """Counts a bucket of *step* seconds (a whole number of minutes), from *since* to *until*.

    *by* groups by facets, separated by commas; each of `FACETS` may be given to count only one value. The facets of
    sources without a name of their own in a minute are "". Empty buckets are left out.
    """
    namespace = request.query.get("namespace", "")
    require(request, "list", "events", namespace)
    until = instant_of(request, "until") or datetime.now(UTC)
    since = instant_of(request, "since") or until - LAST
    step_s = whole_number_of(request, "step", MINUTE_S, 86_400)
    if step_s % MINUTE_S:
        raise status.bad_request("step: must be a whole number of minutes, in seconds: 60, 300, 3600")
    if not 0 <= (until - since).total_seconds() <= MOST_BUCKETS * MINUTE_S:
        raise status.bad_request("since: must be before until, and at most 14 days")
    by = _facets(request.query.get("by", ""))
    only = {facet: request.query[facet] for facet in FACETS if facet in request.query}

    def work(context: ThreadContext) -> bytes:
        found = read_occurrences(context.bus, context.client, since, until)
        return msgspec.json.encode(summed(found, by=by, only=only, step_s=step_s)) + b"\n"

    return await answer_json(request, work)


def summed(found: OccurrencesRead, *, by: Sequence[str], only: dict[str, str], step_s: int) -> dict[str, Any]:
    """Rows of a time, the words of *by*, and a count, in that order. *begins*: nothing before it is known."""
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
    return {"begins": seconds_to_json(found.begins), "stepS": step_s, "by": list(by), "rows": rows}


def _bucket(row: Occurrences, step_s: int) -> int:
    return int(row.minute.timestamp()) // step_s * step_s


def _facets(text: str) -> list[str]:
    facets = [facet for facet in text.split(",") if facet]
    if wrong := [facet for facet in facets if facet not in FACETS]:
        raise status.bad_request(f"by: {wrong[0][:80]!a} is none of {', '.join(FACETS)}")
    return list(dict.fromkeys(facets))
