"""The API server of a process: its loop, its listeners, and the application with all routes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import msgspec
import uvloop
from aiohttp import web

from eventbus.api import health
from eventbus.api.alertmanager.routes import add_alertmanager_routes
from eventbus.api.auth.access import Access
from eventbus.api.auth.authentication import Authenticator
from eventbus.api.auth.proxies import TrustedProxies
from eventbus.api.auth.reviews import Reviews
from eventbus.api.connection import Connection
from eventbus.api.context import API, Api
from eventbus.api.eventbus_v1.logs import add_logs_route
from eventbus.api.eventbus_v1.routes import PATH as OWN_PATH
from eventbus.api.eventbus_v1.routes import add_own_routes, own_document, own_routes
from eventbus.api.kube.bodies import MAX_BODY
from eventbus.api.kube.discovery import Discovery
from eventbus.api.kube.handler import KUBERNETES, KubernetesApi
from eventbus.api.kube.namespaces import NAMESPACE, make_default
from eventbus.api.kube.openapi import OpenApi
from eventbus.api.kube.resources import Resources
from eventbus.api.limits import Bounds, EventRate, Limits
from eventbus.api.listeners import BACKLOG, Listener
from eventbus.api.mcp import add_mcp_route
from eventbus.api.metrics import Metrics
from eventbus.api.middleware import Middleware, prepare
from eventbus.api.page.files import ROOT as PAGE
from eventbus.api.page.files import PageFiles
from eventbus.api.reread_file import RereadFile
from eventbus.api.thread_context import BlockingPool, ThreadContext
from eventbus.api.tls import ServerTls
from eventbus.api.versions.numbering import Numbering
from eventbus.api.versions.ordered_hub import OrderedHub
from eventbus.api.watch.hub import WatchHub
from eventbus.broker.build import package_version
from eventbus.broker.bus import Bus
from eventbus.broker.health.worker_problems import report_problem
from eventbus.consume.heartbeat import LoopHealth
from eventbus.errors import ConfigError, EventBusError
from eventbus.model.kinds import EVENT, KINDS
from eventbus.store.change_hub import ChangeHub
from eventbus.util.log import log

#: Maximum bytes of a line in a request head. Selectors are part of the request line.
MAX_LINE: Final = 32 * 1024
#: Seconds to wait for active requests at shutdown.
SHUTDOWN_S: Final = 0.5
KEEP_ALIVE_S: Final = 75.0
#: Seconds to read the rest of a refused body, so that the client sees the error.
LINGER_S: Final = 1.0
#: Seconds between checks of the certificates.
CARE_S: Final = 10.0
#: Seconds between notes that the loop makes progress.
ROUND_S: Final = 5.0


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Authentication, access and limits of the server."""

    access: Access
    authenticator: Authenticator
    names: tuple[str, ...] = ()
    bounds: Bounds = Bounds()
    tls: ServerTls | None = None
    event_rate: EventRate = msgspec.field(default_factory=EventRate)
    audit: bool = False
    proxies: TrustedProxies = msgspec.field(default_factory=TrustedProxies)
    files: tuple[RereadFile[Any], ...] = ()  #: read again when they change
    name: str = ""  #: of the worker, under which `eventbus doctor` reports a file with an error

    def files_invalid(self) -> int:
        """Return the number of files with an error."""
        return sum(bool(file.problem) for file in self.files)


class ApiServer:
    """Serves the bus over HTTP from a thread of its own, from `start` until `stop`. A `eventbus.workers.worker.Part`.

    Args: listeners: already bound. The caller owns them, so they outlive this server when the bus is reopened.
    """

    def __init__(self, *, bus: Bus, options: ApiOptions, listeners: Sequence[Listener]) -> None:
        self._bus = bus
        self._options = options
        self._listeners = listeners
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._serving = threading.Event()
        self._failure: BaseException | None = None
        self._last_round = time.monotonic()
        self._reported = ""  #: the problem of a file, to `eventbus doctor`
        self._thread = threading.Thread(target=self._run, name="eventbus-api-loop", daemon=True)

    @property
    def page(self) -> str:
        """Return the address of the page; "" if there are only unix sockets."""
        return next((listener.url + PAGE for listener in self._listeners if listener.url.startswith("http")), "")

    def start(self) -> None:
        """Start to serve; return when the server answers. Raises: the error that prevented it."""
        self._thread.start()
        self._serving.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        for listener in self._listeners:
            log.info("the API answers at %s", listener.url)
            if listener.url.startswith("http"):
                log.info("the web page is at %s%s", listener.url, PAGE)

    def stop(self, timeout_s: float) -> None:
        """Shut down gracefully: end the watches and finish active requests. Idempotent."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout_s)

    def loop_health(self) -> Sequence[LoopHealth]:
        return (
            LoopHealth(
                group="api",
                partition=0,
                last_progress=self._last_round,
                ready=self._serving.is_set(),
                counts={},
                gauges={"files_invalid": self._options.files_invalid()},
            ),
        )

    def _note_round(self) -> None:
        """Record progress now and every `ROUND_S`. A loop that hangs records none."""
        self._last_round = time.monotonic()
        asyncio.get_running_loop().call_later(ROUND_S, self._note_round)

    def _run(self) -> None:
        try:
            # Over TLS, a connection of asyncio's own loop has a buffer of 256 KiB; uvloop's takes memory as it is used.
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
            log.debug("the API ended", exc_info=True)
        finally:
            self._serving.set()

    async def _serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._note_round()
        options = self._options
        hub = ChangeHub(self._bus)
        numbering = Numbering(self._bus) if self._bus.partitions > 1 else None
        ordered = OrderedHub(hub, numbering)
        watch_hub = WatchHub(ordered, loop)
        pool = BlockingPool(bus=self._bus, hub=watch_hub, numbering=numbering)
        api = Api(bus=self._bus, pool=pool, access=options.access, event_rate=options.event_rate)
        limits = Limits(options.bounds)
        metrics = Metrics(
            limits=limits,
            event_rate=options.event_rate,
            tokens_refused=options.authenticator.refused,
            files_invalid=options.files_invalid,
        )
        app = _make_app(api, options, watch_hub, limits, metrics)
        async with AsyncExitStack() as ends:
            for part in (numbering, pool, hub, ordered):  # the last one is closed first
                if part is not None:
                    ends.callback(part.close)
            runner = web.AppRunner(
                app, access_log=None, handle_signals=False, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S
            )
            ends.push_async_callback(runner.cleanup)
            await pool.run(make_default)
            # Numbers the versions of all earlier writes, so that the first write gets a later number.
            await pool.run(lambda context: context.objects(EVENT).newest())
            await runner.setup()
            for listener in self._listeners:
                await self._listen(listener, runner, metrics, ends)
            self._serving.set()
            while not self._stopping.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(CARE_S):
                        await self._stopping.wait()
                await self._take_care(pool)

    async def _listen(self, listener: Listener, runner: web.AppRunner, metrics: Metrics, ends: AsyncExitStack) -> None:
        """Accept connections of *listener* until *ends* is closed."""
        loop, options = asyncio.get_running_loop(), self._options

        def connect() -> Connection:
            assert runner.server is not None
            return Connection(
                runner.server,
                metrics=metrics,
                connected=options.authenticator.connected,
                loop=loop,
                access_log=None,
                keepalive_timeout=KEEP_ALIVE_S,
                lingering_time=LINGER_S,
                max_line_size=MAX_LINE,
                max_field_size=MAX_LINE,
            )

        # A copy, because the caller's socket must stay open.
        copied = listener.socket.dup()
        server = await loop.create_server(connect, sock=copied, ssl=listener.tls, backlog=BACKLOG)
        ends.callback(server.close)

    async def _take_care(self, pool: BlockingPool) -> None:
        """Do periodic work: read changed certificates and files, and restore the version bases of a flushed bus."""
        if (tls := self._options.tls) is not None:
            try:
                await tls.refresh()
            except ConfigError as error:
                log.error("%s; the former certificate is still served", error)
        for file in self._options.files:
            await file.refresh()
        problem = "; ".join(file.problem for file in self._options.files if file.problem)
        try:
            await pool.run(ThreadContext.keep_bases)
            if problem or self._reported:
                await pool.run(lambda context: report_problem(context.bus, context.client, self._options.name, problem))
                self._reported = problem
        except EventBusError as error:
            log.debug("the API goes on: %s", error)


def _make_app(api: Api, options: ApiOptions, hub: WatchHub, limits: Limits, metrics: Metrics) -> web.Application:
    """Make the application. The routes of the Kubernetes API come last and match every other path."""
    middleware = Middleware(
        metrics=metrics,
        limits=limits,
        authenticator=options.authenticator,
        names=options.names,
        audits=options.proxies if options.audit else None,
    )
    app = web.Application(middlewares=[middleware.handle], client_max_size=MAX_BODY)
    app[API] = api
    kinds = [*KINDS, NAMESPACE]
    resources = Resources(kinds)
    kubernetes = KubernetesApi(api=api, resources=resources, hub=hub, limits=limits, metrics=metrics)
    app[KUBERNETES] = kubernetes
    app[health.READINESS] = health.readiness_of(api.pool)
    for path in health.PATHS:
        app.router.add_get(path, health.health)
        app.router.add_get(path + "/{check}", health.health)
    Reviews(resources=resources, authenticator=options.authenticator).add_routes(app.router)
    Discovery(resources=resources, build=package_version()).add_routes(app.router)
    app.router.add_get("/metrics", metrics.serve, allow_head=False)
    routes = own_routes(app, options.authenticator, metrics)
    # Made at the start, by one thread: before any other thread decodes to the types that it describes.
    OpenApi(kinds=kinds, more={OWN_PATH: own_document(routes)}).add_routes(app.router)
    add_own_routes(app.router, routes)
    add_alertmanager_routes(app)
    add_logs_route(app, metrics)
    add_mcp_route(app)
    PageFiles().add_routes(app.router)
    # The router looks up prefixes: it finds these routes faster than the catch-all route.
    app.router.add_route("*", "/api/v1/{path:.+}", kubernetes.handle)
    app.router.add_route("*", "/apis/{group}/{path:.+/.+}", kubernetes.handle)
    app.router.add_route("*", "/{path:.*}", kubernetes.handle)

    async def end_watches(_app: web.Application) -> None:
        kubernetes.stop()

    app.on_response_prepare.append(prepare)
    app.on_shutdown.append(end_watches)
    return app
