"""A Kubernetes API as small as a kopf operator can do with: one object to handle, and a place to post events to."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

from aiohttp import web

EXAMPLE = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {"name": "web", "namespace": "default", "uid": "uid-1", "resourceVersion": "1"},
    "spec": {},
}
GROUP = {"name": "kopf.dev", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}}


def resource(plural: str, kind: str, *verbs: str) -> dict[str, Any]:
    return {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": True, "verbs": verbs}


class KubernetesApi:
    """Serves on a port of this machine, in a thread, until the block ends.

    Attributes: events: the bodies that were posted.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.url = ""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kubernetes-api")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        app = web.Application()
        app.router.add_get("/api", self._answer({"versions": ["v1"]}))
        app.router.add_get("/apis", self._answer({"groups": [GROUP]}))
        core = [resource("events", "Event", "create"), resource("namespaces", "Namespace", "list")]
        app.router.add_get("/api/v1", self._answer({"resources": core}))
        examples = resource("kopfexamples", "KopfExample", "list", "watch", "patch")
        app.router.add_get("/apis/kopf.dev/v1", self._answer({"resources": [examples]}))
        app.router.add_get("/apis/kopf.dev/v1/kopfexamples", self._list_or_watch)
        app.router.add_patch("/apis/kopf.dev/v1/namespaces/default/kopfexamples/web", self._answer(EXAMPLE))
        app.router.add_post("/api/v1/namespaces/default/events", self._post_event)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = "http://{}:{}".format(*runner.addresses[0])
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    def _answer(self, body: dict[str, Any]) -> Any:
        async def answer(_request: web.Request) -> web.Response:
            return web.json_response(body)

        return answer

    async def _list_or_watch(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [EXAMPLE]})
        stream = web.StreamResponse()
        await stream.prepare(request)
        await self._stop.wait()
        return stream

    async def _post_event(self, request: web.Request) -> web.Response:
        self.events.append(await request.json())
        return web.json_response({})
