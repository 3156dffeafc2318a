"""All paths under `/alertmanager/api/v2/`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from eventbus.api import status
from eventbus.api.alertmanager import alerts, silences
from eventbus.api.alertmanager.answers import Handler, in_its_form, time_text
from eventbus.api.kube.handler import refuse_method
from eventbus.api.responses import reply_json
from eventbus.broker.build import package_version

ROOT: Final = "/alertmanager/api/v2"
#: The version of this API in Alertmanager, by which clients decide.
_VERSION: Final = "0.25.0"


def add_alertmanager_routes(app: web.Application) -> None:
    """Mount them."""
    started = time_text(int(datetime.now(UTC).timestamp() * 1000))

    async def show_status(_request: web.Request) -> web.StreamResponse:
        """The version. The rules stay with the notifier, because they may hold secrets."""
        return reply_json(
            {
                "cluster": {"peers": [], "status": "disabled"},
                "config": {"original": ""},
                "uptime": started,
                "versionInfo": {
                    "branch": "eventbus",
                    "buildDate": "",
                    "buildUser": "",
                    "goVersion": "",
                    "revision": package_version(),
                    "version": _VERSION,
                },
            }
        )

    routes: list[tuple[str, str, Handler]] = [
        ("GET", "status", show_status),
        ("GET", "receivers", alerts.receivers),
        ("GET", "alerts", alerts.alerts),
        ("POST", "alerts", alerts.refuse_alerts),
        ("GET", "alerts/groups", alerts.groups),
        ("GET", "silences", silences.silences),
        ("POST", "silences", silences.post),
        ("GET", "silence/{id}", silences.silence),
        ("DELETE", "silence/{id}", silences.delete),
    ]
    for method, path, handler in routes:
        app.router.add_route(method, f"{ROOT}/{path}", in_its_form(handler))
    for path in {path: None for _, path, _ in routes}:
        app.router.add_route("*", f"{ROOT}/{path}", in_its_form(refuse_method))
    app.router.add_route("*", "/alertmanager/{path:.*}", in_its_form(_refuse_path))


async def _refuse_path(_request: web.Request) -> web.StreamResponse:
    """Raises: ApiError: 404."""
    raise status.no_such_path()
