"""The Kubernetes API's own requests: from a path to an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.access import Role
from eventbus.api.auth.authentication import is_from_browser
from eventbus.api.connection import count_as
from eventbus.api.context import USER, Api, refuse_own_export
from eventbus.api.kube import deletes, verbs
from eventbus.api.kube.authors import AUTHORED, CHECKED, Author
from eventbus.api.kube.bodies import (
    APPLY_PATCH,
    BODY_S,
    JSON_PATCH,
    MAX_BODY,
    MAX_PATCH,
    PATCHES,
    READ,
    Body,
    media_type_of,
    read_body,
)
from eventbus.api.kube.namespaces import NAMESPACE
from eventbus.api.kube.negotiation import JSON, Answer, negotiate
from eventbus.api.kube.options import WriteOptions, asked_version, list_options, write_options
from eventbus.api.kube.rendering import Renderer
from eventbus.api.kube.request_info import RequestInfo, check_name, read_request, selected_name
from eventbus.api.kube.resources import Resources
from eventbus.api.limits import Limits, is_long
from eventbus.api.metrics import Labels, Metrics
from eventbus.api.responses import gzip_response
from eventbus.api.thread_context import THREADS, ThreadContext
from eventbus.api.watch.hub import LineEncoder, WatchHub
from eventbus.api.watch.watcher import Watcher, begin_watch, is_upgrade, serve_socket
from eventbus.api.write_batcher import WriteBatcher, send_calls
from eventbus.broker.keys import OPERATED
from eventbus.errors import Expired
from eventbus.model.list_watch import ObjectList
from eventbus.store.calls import Call

#: Bytes from which a response is compressed for clients that accept gzip, as in the API server.
GZIP_FROM: Final = 128 * 1024
_GZIP_LEVEL: Final = 1
#: Bytes of a body that is created together with others; decoding a larger one would keep them waiting.
MOST_TOGETHER: Final = 32 * 1024
#: Watches that start at once. If thousands reconnect together, a waiting one takes less memory than a starting one.
MOST_OPENING: Final = 2 * THREADS
_OPTIONS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


class KubernetesApi:
    """Answers everything below /api and /apis that is about objects. Lives in the loop."""

    def __init__(self, *, api: Api, resources: Resources, hub: WatchHub, limits: Limits, metrics: Metrics) -> None:
        self._api = api
        self._hub = hub
        self._resources = resources
        self._limits = limits
        self._encoder = LineEncoder(metrics)
        self._creates: WriteBatcher[Callable[[ThreadContext], Call[Any]], Any] = WriteBatcher(api.pool, send_calls)
        self._watchers: set[Watcher] = set()
        self._opening = asyncio.Semaphore(MOST_OPENING)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Raises: ApiError and all that the store raises."""
        info = read_request(request.method, request.rel_url.raw_path, request.query, self._resources)
        count_as(request, _labels(request, info))
        self._authorize(request, info)
        check_name(info.name)
        query = request.query
        watch = info.verb == "watch"
        agent = request.headers.get("User-Agent", "")
        many = None if info.verb in ("watch", "delete") else info.verb in ("list", "deletecollection")
        answer = negotiate(request.headers.get("Accept", ""), query, agent, watch=watch, many=many)
        if watch:
            return await self._watch(request, info, answer)
        if is_long(request):  # it has the form of a watch, so the middleware did not count it
            with self._limits.answering(request):
                return await self._serve(request, info, answer)
        return await self._serve(request, info, answer)

    async def _serve(self, request: web.Request, info: RequestInfo, answer: Answer) -> web.StreamResponse:
        match info.verb:
            case "get":
                version = asked_version(request.query)
                author = self._author(request, info)
                return await self._answer(request, answer, lambda context: _got(context, info, answer, version, author))
            case "list":
                options = list_options(request.query, info.namespace, watch=False)
                author = self._author(request, info)

                def work(context: ThreadContext) -> bytes:
                    found = verbs.list_objects(context, info, options)
                    return _listed(
                        context, info, answer, author.readable(info.resource.kind, found) if author else found
                    )

                return await self._answer(request, answer, work)
            case "delete" | "deletecollection":
                return await self._delete(request, info, answer)
        return await self._write(request, info, answer)

    def stop(self) -> None:
        """End all watches."""
        for watcher in list(self._watchers):
            watcher.stop()

    def _authorize(self, request: web.Request, info: RequestInfo) -> None:
        user, resource = request[USER], info.resource
        namespace = info.namespace
        if resource.kind is NAMESPACE and info.name and info.verb == "get":
            namespace = info.name
        if self._api.access.allowed(user, info.verb, resource.plural, namespace):
            return
        author = self._author(request, info)
        if author and author.may_try(info.verb, resource.kind):
            return
        full = f"{resource.plural}/{info.subresource}" if info.subresource else resource.plural
        if resource.kind is NAMESPACE:
            namespace = info.name  # a namespace lies in itself, as the API server says
        place = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        what = f'User "{user.name}" cannot {info.verb} resource "{full}" in API group "{resource.group}" {place}'
        if resource.plural in OPERATED and any(one.role is Role.ADMIN for one in self._api.access.grants_of(user)):
            what += f": that takes the role operator, which admin is without (--grant operator=user:{user.name})"
        raise status.forbidden(resource.label, info.name or selected_name(request.query), what)

    def _author(self, request: web.Request, info: RequestInfo) -> Author | None:
        """Return the author, if the object is checked again when it is known."""
        if info.resource.kind not in AUTHORED or info.verb not in CHECKED:
            return None
        return Author(request[USER], self._api.access)

    def _may_read(self, request: web.Request, info: RequestInfo) -> bool:
        return self._api.access.allowed(request[USER], "get", info.resource.plural, info.namespace)

    async def _write(self, request: web.Request, info: RequestInfo, answer: Answer) -> web.StreamResponse:
        refuse_own_export(self._api.bus, request)
        accepted = PATCHES if info.verb == "patch" else READ
        media_type = _body_type(request, accepted)
        patch = verbs.patch
        if info.verb == "patch" and not self._may_read(request, info):
            if media_type == JSON_PATCH:
                why = "a JSON patch reads the object, which takes the right to get: send a merge patch"
                raise status.forbidden(info.resource.label, info.name, why)
            patch = verbs.patch_unread
        options = write_options(request.query, _OPTIONS[info.verb], applied=media_type == APPLY_PATCH)
        options = msgspec.structs.replace(options, author=self._author(request, info))
        body = await typed_body(request, accepted, most=MAX_PATCH if info.verb == "patch" else MAX_BODY)
        do: Callable[..., verbs.Written] = {"create": verbs.create, "update": verbs.update, "patch": patch}[info.verb]

        user = request[USER].name

        def admit(_found: Any) -> None:
            if info.resource.is_events and not options.dry_run:
                self._api.event_rate.admit(user)

        def rendered(context: ThreadContext, written: verbs.Written) -> tuple[verbs.Written, bytes]:
            return written, _renderer(context, info, answer).one(written.object)

        def work(context: ThreadContext) -> tuple[verbs.Written, bytes]:
            return rendered(context, do(context, info, body, options, admit))

        def creation(context: ThreadContext) -> Call[tuple[verbs.Written, bytes]]:
            call = verbs.creation(context, info, body, options, admit)
            return Call(call.command, lambda response: rendered(context, call.result(response)))

        if self._is_batched(info, body, options):
            written, data = await self._creates.write(creation)
        else:
            written, data = await self._api.pool.run(work)
        headers = [("Warning", f'299 - "{_quoted(text)}"') for text in written.warnings]
        return reply(answer, data, code=201 if written.created else 200, headers=headers)

    def _is_batched(self, info: RequestInfo, body: Body, options: WriteOptions) -> bool:
        """Return True for a create that is one short call of Redis: others may wait for it."""
        if info.verb != "create" or not info.resource.is_events or options.dry_run or self._api.bus.partitions > 1:
            return False
        return body.media_type == JSON and len(body.data) <= MOST_TOGETHER

    async def _delete(self, request: web.Request, info: RequestInfo, answer: Answer) -> web.StreamResponse:
        body = await typed_body(request, READ) if request.can_read_body else None
        wanted, dry_run = deletes.read_delete_options(body, request.query)
        options = write_options(request.query, "DeleteOptions", dry_run)
        options = msgspec.structs.replace(options, author=self._author(request, info))
        if info.verb == "delete":

            def work(context: ThreadContext) -> bytes:
                done = deletes.delete(context, info, wanted, options)
                renderer = _renderer(context, info, answer)
                return renderer.bytes_of(done) if isinstance(done, dict) else renderer.one(done)

            return reply(answer, await self._api.pool.run(work))
        selected = list_options(request.query, info.namespace, watch=False)
        return await self._answer(
            request,
            answer,
            lambda context: _listed(
                context, info, answer, deletes.delete_collection(context, info, selected, wanted, options)
            ),
        )

    async def _answer(
        self, request: web.Request, answer: Answer, work: Callable[[ThreadContext], bytes]
    ) -> web.StreamResponse:
        pool = self._api.pool
        data, compressed = await gzip_response(request, pool, work, from_bytes=GZIP_FROM, level=_GZIP_LEVEL)
        headers = [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")] if compressed else []
        return reply(answer, data, headers=headers)

    async def _watch(self, request: web.Request, info: RequestInfo, answer: Answer) -> web.StreamResponse:
        options = list_options(request.query, info.namespace, info.name, watch=True)
        self._limits.begin_watch()
        watcher = Watcher(
            pool=self._api.pool,
            hub=self._hub,
            resource=info.resource,
            answer=answer,
            encoder=self._encoder,
        )
        self._watchers.add(watcher)
        try:
            try:
                async with self._opening:
                    await watcher.open(begin_watch(info.resource, options))
            except Expired as error:
                # Also if the version is ahead: the store has lost the change that it belongs to.
                raise status.ApiError(410, "Expired", str(error)) from None
            if is_upgrade(request):
                return await serve_socket(request, watcher.run, watcher.stop)
            response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-store"})
            response.force_close()
            await response.prepare(request)  # shows the client that its watch has started
            await watcher.run(response.write)
            await response.write_eof()
            return response
        finally:
            self._watchers.discard(watcher)
            watcher.close()
            self._limits.end_watch()


async def typed_body(
    request: web.Request, accepted: tuple[str, ...], *, most: int = MAX_BODY, within_s: float = BODY_S
) -> Body:
    """Read the body of *request*, which has one of the *accepted* types. Raises: ApiError: 408, 413, 415."""
    media_type = _body_type(request, accepted)
    return Body(await read_body(request, most=most, within_s=within_s), media_type)


def _body_type(request: web.Request, accepted: tuple[str, ...]) -> str:
    """The media type of the body of *request*. Raises: ApiError: 415."""
    header = request.headers.get("Content-Type")
    if not header and is_from_browser(request):
        raise status.unsupported_media_type(accepted)
    return media_type_of(header, accepted)


def reply(answer: Answer, data: bytes, *, code: int = 200, headers: Iterable[tuple[str, str]] = ()) -> web.Response:
    """Make a response with exactly its media type: lightkube does not understand a charset after it."""
    return web.Response(status=code, body=data, headers=[("Content-Type", answer.media_type), *headers])


async def refuse_method(_request: web.Request) -> web.StreamResponse:
    """Raises: ApiError: 405. For paths that are served, and not that way."""
    raise status.method_not_allowed()


def _got(context: ThreadContext, info: RequestInfo, answer: Answer, version: str, author: Author | None) -> bytes:
    found = verbs.get(context, info, version)
    if author:
        author.check("get", info.resource.kind, found)
    return _renderer(context, info, answer).one(found)


def _labels(request: web.Request, info: RequestInfo) -> Labels:
    """Return the labels that the API server uses: HTTP methods, but LIST, WATCH and APPLY are separate."""
    verb = {"list": "LIST", "watch": "WATCH"}.get(info.verb, request.method)
    if verb == "PATCH" and request.content_type == APPLY_PATCH:
        verb = "APPLY"
    scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
    return Labels(verb, info.resource.group, info.resource.version, info.resource.plural, scope)


def _listed(context: ThreadContext, info: RequestInfo, answer: Answer, found: ObjectList[Any]) -> bytes:
    return _renderer(context, info, answer).many(found)


def _renderer(context: ThreadContext, info: RequestInfo, answer: Answer) -> Renderer:
    """Made when the object is there: only then its kind is sure to have a base of versions."""
    return Renderer(info.resource, answer, context.versions(info.resource.kind))


def _quoted(text: str) -> str:
    """Inside the quotes of a Warning: printable ASCII."""
    plain = "".join(character if " " <= character <= "~" else "?" for character in text)
    return plain.replace("\\", "\\\\").replace('"', '\\"')


KUBERNETES: Final = web.AppKey("kubernetes", KubernetesApi)
