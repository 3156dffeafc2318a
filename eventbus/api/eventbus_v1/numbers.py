"""`GET /eventbus/v1/status`, `suppressed`, `sinks`: the data of `eventbus status` and `get suppressed`, as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from eventbus.api.context import require
from eventbus.api.responses import answer_json
from eventbus.api.thread_context import ThreadContext
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.health.export_status import export_status
from eventbus.broker.health.status import read_sources, read_status


async def bus_status(request: web.Request) -> web.Response:
    """Groups, workers, partitions, counters and losses of the whole bus."""
    require(request, "get", "status")
    return await _read(request, read_status)


async def suppressed(request: web.Request) -> web.Response:
    """Answer the suppressed events by component, kind, type and reason, the most first."""
    require(request, "list", "suppressed")
    return await _read(request, lambda bus, client: {"items": read_sources(bus, client)})


async def sinks(request: web.Request) -> web.Response:
    """Answer every external sink that ever had a worker, with its lag, its pause and its last error."""
    require(request, "list", "sinks")
    return await _read(request, lambda bus, client: {"items": export_status(bus, client)})


async def _read(request: web.Request, read: Callable[[Bus, Client], Any]) -> web.Response:
    def work(context: ThreadContext) -> bytes:
        return msgspec.json.encode(read(context.bus, context.client)) + b"\n"

    return await answer_json(request, work)
