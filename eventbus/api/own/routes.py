"""All paths under `/eventbus/v1/`, and what serves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from eventbus.api.app_keys import API
from eventbus.api.authentication import Authenticator
from eventbus.api.kubernetes import refuse_method
from eventbus.api.own.cloud_events import CloudEvents
from eventbus.api.own.dead import discard_dead, list_dead, replay_dead, show_dead
from eventbus.api.own.histogram import histogram
from eventbus.api.own.numbers import bus_status, sinks, suppressed
from eventbus.api.own.record import Recording, describe_bus
from eventbus.api.own.search import search
from eventbus.api.own.session import Session
from eventbus.api.own.stream import RawStream
from eventbus.api.own.verdicts import verdicts
from eventbus.api.own.why import why

ROOT: Final = "/eventbus/v1"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_own_routes(app: web.Application, authenticator: Authenticator) -> None:
    """Mount them; *app* has its `API` already, and ends the streams when it shuts down."""
    recording = Recording()
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
