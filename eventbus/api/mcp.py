"""`POST /mcp`: the tools for assistants, over the Model Context Protocol, with the rights of the request's user."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.access import Access, User
from eventbus.api.context import API, USER, check_right
from eventbus.api.eventbus_v1.why import granted_story
from eventbus.api.kube.bodies import read_body
from eventbus.api.kube.handler import refuse_method
from eventbus.api.thread_context import ThreadContext
from eventbus.broker.health.export_status import SinkStatus, export_status
from eventbus.broker.health.status import BusStatus, SourceCounts, read_sources, read_status
from eventbus.errors import BusRefused
from eventbus.model.event import Event, ObjectReference
from eventbus.model.kinds import EVENT
from eventbus.store.event_search import Search, SearchResult, search_events
from eventbus.store.occurrences import Histogram, OccurrencesRead, read_occurrences, summed
from eventbus.store.story.reading import read_verdicts
from eventbus.store.story.story import Story
from eventbus.store.story.verdict import Verdict
from eventbus.util.extras import is_needed

PATH: Final = "/mcp"
#: Bytes of a request: the name of a tool, and its arguments.
MAX_BODY: Final = 64 * 1024
#: Headers of the library's answers that clients need. Others are ours.
_PASSED: Final = frozenset({"content-type"})


def add_mcp_route(app: web.Application) -> None:
    """Mount the path; *app* has its `API` already."""
    app.router.add_post(PATH, answer)
    app.router.add_route("*", PATH, refuse_method)


async def answer(request: web.Request) -> web.Response:
    """Answer one message of an assistant."""
    try:  # in a thread: the first import takes half a second
        await asyncio.to_thread(import_module, "eventbus.mcp.http")
    except ImportError:
        message = f"this API worker cannot answer assistants: where it runs, {is_needed('mcp')}"
        raise status.ApiError(501, "NotImplemented", message, details={}) from None
    from eventbus.mcp.http import answer_post
    from eventbus.mcp.tools import call_tool

    api, user = request.app[API], request[USER]
    body = await read_body(request, most=MAX_BODY)

    async def call(name: str, arguments: Mapping[str, Any] | None) -> bytes:
        try:
            return await api.pool.run(lambda context: call_tool(_Granted(context, api.access, user), name, arguments))
        except status.ApiError as error:
            raise BusRefused(error.message) from None

    reply = await answer_post(call, PATH, request.headers.items(), body)
    headers = [(name, value) for name, value in reply.headers if name.lower() in _PASSED]
    return web.Response(status=reply.status, headers=[*headers, ("Cache-Control", "no-store")], body=reply.body)


class _Granted:
    """The readers of a thread, for one user. Raises of each: ApiError: 403."""

    def __init__(self, context: ThreadContext, access: Access, user: User) -> None:
        self._context = context
        self._access = access
        self._user = user

    def read_story(self, about: ObjectReference, before: timedelta) -> Story:
        self._check("list", "events", about.namespace)
        return granted_story(self._context, self._access, self._user, about, before=before)

    def read_verdicts(self, objects: Sequence[ObjectReference]) -> Sequence[Verdict]:
        for namespace in {about.namespace or "default" for about in objects}:
            self._check("list", "events", namespace)
        return read_verdicts(self._context.bus, self._context.client, objects)

    def read_event(self, namespace: str, name: str) -> Event:
        self._check("get", "events", namespace)
        found: Event = self._context.objects(EVENT).get(name, namespace)
        return found

    def search_events(self, search: Search) -> SearchResult:
        search = msgspec.structs.replace(search, namespaces=self._readable(search.namespace))
        return search_events(self._context.bus, self._context.client, self._context.objects(EVENT), search)

    def read_histogram(
        self, since: datetime, until: datetime, *, by: Sequence[str], only: Mapping[str, str], step_s: int
    ) -> Histogram:
        readable = self._readable(only.get("namespace", ""))
        found = read_occurrences(self._context.bus, self._context.client, since, until)
        rows = tuple(row for row in found.rows if not readable or row.namespace in readable)
        return summed(OccurrencesRead(rows, found.begins), by=by, only=only, step_s=step_s)

    def read_sources(self) -> Sequence[SourceCounts]:
        self._check("list", "suppressed")
        return read_sources(self._context.bus, self._context.client)

    def read_status(self) -> BusStatus:
        self._check("get", "status")
        return read_status(self._context.bus, self._context.client)

    def read_sinks(self) -> Sequence[SinkStatus]:
        self._check("list", "sinks")
        return export_status(self._context.bus, self._context.client)

    def _check(self, verb: str, resource: str, namespace: str = "") -> None:
        check_right(self._access, self._user, verb, resource, namespace)

    def _readable(self, namespace: str) -> frozenset[str]:
        """Return the namespaces that may be read if *namespace* is ""; none: all. Raises: ApiError: 403: none."""
        granted = {grant.namespace for grant in self._access.grants_of(self._user)}
        listed = frozenset(one for one in granted if self._access.allowed(self._user, "list", "events", one))
        if namespace or "" in listed or not listed:
            self._check("list", "events", namespace)
            return frozenset()
        return listed
