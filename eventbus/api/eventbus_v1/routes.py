"""All paths under `/eventbus/v1/`: their handlers, and their OpenAPI, which is made of the handlers' types."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web

from eventbus.api.auth.authentication import Authenticator
from eventbus.api.context import API
from eventbus.api.eventbus_v1.alertmanager import Alertmanager, WebhookMessage
from eventbus.api.eventbus_v1.cloud_events import BATCH, STRUCTURED, CloudEvents
from eventbus.api.eventbus_v1.dead import (
    BuriedBytes,
    DeadList,
    DeadQuery,
    Done,
    discard_dead,
    list_dead,
    replay_dead,
    show_dead,
)
from eventbus.api.eventbus_v1.notifications import Notifications, notifications
from eventbus.api.eventbus_v1.numbers import (
    ExpectedQuery,
    HistogramQuery,
    bus_status,
    expected,
    histogram,
    sinks,
    suppressed,
)
from eventbus.api.eventbus_v1.ping import Pings
from eventbus.api.eventbus_v1.record import BusFacts, Producers, Recorded, Recording, describe_bus
from eventbus.api.eventbus_v1.search import Found, SearchQuery, search
from eventbus.api.eventbus_v1.stream import STREAM_TYPE, Place, RawStream, StreamQuery
from eventbus.api.eventbus_v1.why import Verdicts, VerdictsRequest, Why, WhyQuery, verdicts, why
from eventbus.api.kube.handler import refuse_method
from eventbus.api.kube.negotiation import JSON
from eventbus.api.metrics import Metrics
from eventbus.api.page.session import Session, SessionReply, SignIn
from eventbus.broker.frames import FRAMES_TYPE
from eventbus.broker.health.status import BusStatus
from eventbus.client.numbers import Expected, Sinks, Sources
from eventbus.client.transport import LastNumbers
from eventbus.store.occurrences import Histogram

ROOT: Final = "/eventbus/v1"
#: Under which it is found in /openapi/v3.
PATH: Final = ROOT.removeprefix("/")

_REF: Final = "#/components/schemas/{name}"
_PLACEHOLDER: Final = re.compile(r"{(\w+)}")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: An event of a client: `intake.event_of` reads it.
_EVENT = Annotated[dict[str, Any], msgspec.Meta(description="an Event of core/v1 or events.k8s.io/v1")]
_RECORD: Final = {JSON: _EVENT | list[_EVENT], "application/x-ndjson": str, FRAMES_TYPE: bytes}
_RECORD_HEADERS: Final = ("Idempotency-Key",)
_CLOUD_EVENTS: Final = {STRUCTURED: dict[str, Any], BATCH: list[dict[str, Any]]}


class Route(msgspec.Struct, frozen=True):
    """One method of a path. *body*: the type of the request's body by media type. *reply*: None has no body."""

    method: str
    path: str
    handler: Handler
    summary: str
    reply: Any
    query: type[msgspec.Struct] | None = None
    body: Mapping[str, Any] = {}
    headers: tuple[str, ...] = ()
    reply_type: str = JSON


def own_routes(app: web.Application, authenticator: Authenticator, metrics: Metrics) -> list[Route]:
    """Make the table of all paths. *app* has its `API` already, and ends the streams when it shuts down."""
    recording = Recording(app[API].pool)
    raw = RawStream(app[API].bus)
    cloud_events = CloudEvents(recording)
    session = Session(authenticator)
    pings = Pings(recording)
    alertmanager = Alertmanager(recording, metrics)

    async def end_streams(_app: web.Application) -> None:
        raw.close()

    app.on_shutdown.append(end_streams)
    return [
        Route("GET", "bus", describe_bus, "Facts that a recorder needs.", BusFacts),
        Route("POST", "record", recording.record, "Record events.", Recorded, body=_RECORD, headers=_RECORD_HEADERS),
        Route("POST", "producers", recording.producers, "Numbers of producers.", LastNumbers, body={JSON: Producers}),
        Route("POST", "cloudevents", cloud_events.receive, "Record CloudEvents.", Recorded, body=_CLOUD_EVENTS),
        Route("POST", "alertmanager", alertmanager.receive, "Record alerts.", Recorded, body={JSON: WebhookMessage}),
        Route("GET", "stream", raw.stream, "Raw events, a line each.", str, StreamQuery, reply_type=STREAM_TYPE),
        Route("GET", "stream/position", raw.position, "Where a later stream begins.", Place, StreamQuery),
        Route("GET", "status", bus_status, "Groups, workers, partitions, counters.", BusStatus),
        Route("GET", "suppressed", suppressed, "Suppressed events, by source.", Sources),
        Route("GET", "sinks", sinks, "External sinks.", Sinks),
        Route("GET", "expected", expected, "Expected events and their states.", Expected, ExpectedQuery),
        Route("GET", "notifications", notifications, "Open groups of the notifier.", Notifications),
        Route("GET", "histogram", histogram, "Numbers of events, by time and facet.", Histogram, HistogramQuery),
        Route("GET", "events", search, "Stored events, the one last seen first.", Found, SearchQuery),
        Route("GET", "why", why, "One object's story, and events around it.", Why, WhyQuery),
        Route("POST", "verdicts", verdicts, "Whether objects still fail.", Verdicts, body={JSON: VerdictsRequest}),
        Route("GET", "session", session.show, "The user of the page.", SessionReply),
        Route("POST", "session", session.sign_in, "Sign in, for a cookie.", SessionReply, body={JSON: SignIn}),
        Route("DELETE", "session", session.sign_out, "Sign out.", None),
        Route("GET", "dead", list_dead, "Dead letters.", DeadList, DeadQuery),
        Route("GET", "dead/{partition}/{entry}", show_dead, "One dead letter.", BuriedBytes),
        Route("DELETE", "dead/{partition}/{entry}", discard_dead, "Discard it.", Done),
        Route("POST", "dead/{partition}/{entry}/replay", replay_dead, "Return it to its group.", Done),
        *(
            Route(method, path, handler, summary, str, headers=_RECORD_HEADERS, reply_type="text/plain")
            for object_path in ("ping/{namespace}/{kind}/{name}", "token/{token}/ping/{namespace}/{kind}/{name}")
            for path, handler, summary in (
                (object_path, pings.done, "Record that a run has ended well."),
                (f"{object_path}/start", pings.start, "Record that a run begins."),
                (f"{object_path}/fail", pings.fail, "Record a Warning."),
            )
            for method in ("GET", "POST")
        ),
    ]


def add_own_routes(router: web.UrlDispatcher, routes: Sequence[Route]) -> None:
    """Mount *routes*; other methods of their paths are refused."""
    for route in routes:
        router.add_route(route.method, f"{ROOT}/{route.path}", route.handler)
    for path in {route.path: None for route in routes}:
        router.add_route("*", f"{ROOT}/{path}", refuse_method)


def own_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Make the document of all *routes*. The schemas of OpenAPI 3.1 are JSON Schema."""
    types = (shape for route in routes for shape in (route.reply, *route.body.values()) if shape is not None)
    found, components = _schemas(tuple(types))
    schemas = iter(found)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        reply = None if route.reply is None else next(schemas)
        operation: dict[str, Any] = {"summary": route.summary, "parameters": _parameters(route)}
        if route.body:
            content = {media_type: {"schema": next(schemas)} for media_type in route.body}
            operation["requestBody"] = {"required": True, "content": content}
        answer: dict[str, Any] = {"description": "done"}
        if reply is not None:
            answer["content"] = {route.reply_type: {"schema": reply}}
        operation["responses"] = {"204" if reply is None else "200": answer, "default": {"description": "a Status"}}
        paths.setdefault(f"{ROOT}/{route.path}", {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "eventbus", "version": "v1"},
        "paths": paths,
        "components": {"schemas": components},
    }


@cache
def _schemas(types: tuple[Any, ...]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """Return the schemas of *types* and of those that they refer to. Making them takes long: once in a process."""
    return msgspec.json.schema_components(types, ref_template=_REF)


def _parameters(route: Route) -> list[dict[str, Any]]:
    text = {"type": "string"}
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in _PLACEHOLDER.findall(route.path)
    ]
    if route.query is not None:
        _, shapes = _schemas((route.query,))
        for name, schema in shapes[route.query.__name__]["properties"].items():
            found.append({"name": name, "in": "query", "schema": schema})
    return found + [{"name": name, "in": "header", "schema": text} for name in route.headers]
