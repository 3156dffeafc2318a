"""All paths under `/eventbus/v1/`, and their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from eventbus.api.auth.authentication import Authenticator
from eventbus.api.context import API
from eventbus.api.eventbus_v1.cloud_events import CloudEvents
from eventbus.api.eventbus_v1.dead import discard_dead, list_dead, replay_dead, show_dead
from eventbus.api.eventbus_v1.numbers import bus_status, sinks, suppressed
from eventbus.api.eventbus_v1.record import Recording, describe_bus
from eventbus.api.eventbus_v1.search import histogram, search
from eventbus.api.eventbus_v1.stream import RawStream
from eventbus.api.eventbus_v1.why import verdicts, why
from eventbus.api.kube.handler import refuse_method
from eventbus.api.page.session import Session

ROOT: Final = "/eventbus/v1"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_own_routes(app: web.Application, authenticator: Authenticator) -> None:
    """Mount them; *app* has its `API` already, and ends the streams when it shuts down."""
    recording = Recording(app[API].pool)
    raw = RawStream(app[API].bus)
    cloud_events = CloudEvents(recording)
    session = Session(authenticator)
    routes: list[tuple[str, str, Handler]] = [
        ("GET", "bus", describe_bus),
        ("POST", "record", recording.record),
        ("POST", "producers", recording.producers),
        ("POST", "cloudevents", cloud_events.receive),
        ("GET", "stream", raw.stream),
        ("GET", "stream/position", raw.position),
        ("GET", "status", bus_status),
        ("GET", "suppressed", suppressed),
        ("GET", "sinks", sinks),
        ("GET", "histogram", histogram),
        ("GET", "events", search),
        ("GET", "why", why),
        ("POST", "verdicts", verdicts),
        ("GET", "session", session.show),
        ("POST", "session", session.sign_in),
        ("DELETE", "session", session.sign_out),
        ("GET", "dead", list_dead),
        ("GET", "dead/{partition}/{entry}", show_dead),
        ("DELETE", "dead/{partition}/{entry}", discard_dead),
        ("POST", "dead/{partition}/{entry}/replay", replay_dead),
        ("POST", "dead/{partition}/{entry}/discard", discard_dead),
    ]
    for method, path, handler in routes:
        app.router.add_route(method, f"{ROOT}/{path}", handler)
    for path in {path: None for _, path, _ in routes}:
        app.router.add_route("*", f"{ROOT}/{path}", refuse_method)

    async def end_streams(_app: web.Application) -> None:
        raw.close()

    app.on_shutdown.append(end_streams)
