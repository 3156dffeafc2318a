"""`GET /eventbus/v1/status`, `suppressed`, `sinks`, `expected`: the data of the commands, as JSON."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from aiohttp import web

from eventbus.api.context import require
from eventbus.api.responses import compute_json
from eventbus.broker.health.expected_status import read_expected_status
from eventbus.broker.health.export_status import export_status
from eventbus.broker.health.status import read_sources, read_status
from eventbus.client.numbers import Expected, Sinks, Sources


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
    namespace = request.query.get("namespace", "")
    require(request, "list", "expected", namespace)
    now = datetime.now(UTC)
    return await compute_json(
        request, lambda context: Expected(read_expected_status(context.bus, context.client, now, namespace))
    )
