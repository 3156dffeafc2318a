"""`GET /eventbus/v1/status`, `suppressed`, `sinks`, `expected`, `histogram`: the numbers of the bus, as JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.context import require
from eventbus.api.eventbus_v1.query import InstantText, read_instant, read_query
from eventbus.api.responses import compute_json
from eventbus.api.thread_context import ThreadContext
from eventbus.broker.health.expected_status import read_expected_status
from eventbus.broker.health.export_status import export_status
from eventbus.broker.health.status import read_sources, read_status
from eventbus.client.numbers import Expected, Sinks, Sources
from eventbus.store.occurrences import FACETS, MINUTE_S, Histogram, read_occurrences, summed


async def bus_status(request: web.Request) -> web.Response:
    """Groups, workers, partitions, counters and losses of the whole bus."""
    require(request, "get", "status")
    return await compute_json(request, lambda context: read_status(context.bus, context.client))


async def suppressed(request: web.Request) -> web.Response:
    """Answer the suppressed events by component, kind, type and reason, the most first."""
    require(request, "list", "suppressed")
    return await compute_json(request, lambda context: Sources(read_sources(context.bus, context.client)))


async def sinks(request: web.Request) -> web.Response:
    """Answer every external sink that ever had a worker, with its lag, its pause and its last error."""
    require(request, "list", "sinks")
    return await compute_json(request, lambda context: Sinks(export_status(context.bus, context.client)))


class ExpectedQuery(msgspec.Struct, frozen=True):
    """The parameters of `expected`. *namespace*: of the objects, "": all."""

    namespace: str = ""


async def expected(request: web.Request) -> web.Response:
    """Answer the events that the notifier's rules expect, and their states."""
    namespace = read_query(request, ExpectedQuery).namespace
    require(request, "list", "expected", namespace)
    now = datetime.now(UTC)
    return await compute_json(
        request, lambda context: Expected(read_expected_status(context.bus, context.client, now, namespace))
    )


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


def _facets(text: str) -> list[str]:
    facets = [facet for facet in text.split(",") if facet]
    if wrong := [facet for facet in facets if facet not in FACETS]:
        raise status.bad_request(f"by: {wrong[0][:80]!a} is none of {', '.join(FACETS)}")
    return list(dict.fromkeys(facets))
