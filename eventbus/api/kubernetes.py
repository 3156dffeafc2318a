"""The Kubernetes API's own requests: from a path to an answer."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from aiohttp import web

from eventbus.api import status, verbs
from eventbus.api.bodies import APPLY_PATCH, PATCHES, READ, Body, media_type_of
from eventbus.api.doors import is_from_browser
from eventbus.api.event_rate_limit import EventRateLimit
from eventbus.api.limits import Limits, is_long
from eventbus.api.namespaces import NAMESPACE
from eventbus.api.negotiation import JSON, Answer, negotiate
from eventbus.api.options import list_options, write_options
from eventbus.api.rendering import Renderer
from eventbus.api.request_info import Asked, read_request
from eventbus.api.resources import Resources
from eventbus.api.shared import API, USER, Api, Desk
from eventbus.api.sockets import SocketOutlet, is_upgrade
from eventbus.api.telling import ASKED
from eventbus.api.watching import ChunkedOutlet, Frames, Watcher, begin_watch
from eventbus.errors import Expired
from eventbus.list_watch import ObjectList

#: Seconds that a body may take to arrive.
BODY_S: Final = 30.0
#: Bytes from which a reply is compressed for who asks; the API server's.
GZIP_FROM: Final = 128 * 1024
_GZIP_LEVEL: Final = 1
_OPTIONS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


class KubernetesApi:
    """Answers everything below /api and /apis that is about objects. Lives in the loop."""

    def __init__(self, *, api: Api, resources: Resources, limits: Limits, rates: EventRateLimit | None = None) -> None:
        self._api = api
        self._resources = resources
        self._limits = limits
        self._rates = rates
        self._frames = Frames()
        self._watchers: set[Watcher] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Raises: Refusal and all that the store raises."""
        asked = read_request(request.method, request.rel_url.raw_path, request.query, self._resources)
        request[ASKED] = _labels(request, asked)
        self._authorize(request, asked)
        query = request.query
        watch = asked.verb == "watch"
        agent = request.headers.get("User-Agent", "")
        answer = negotiate(request.headers.get("Accept", ""), query, agent, watch=watch)
        if watch:
            return await self._watch(request, asked, answer)
        if is_long(request):  # it says watch where there is nothing to watch, and was not counted for that
            with self._limits.answering(request.method):
                return await self._serve(request, asked, answer)
        return await self._serve(request, asked, answer)

    async def _serve(self, request: web.Request, asked: Asked, answer: Answer) -> web.StreamResponse:
        match asked.verb:
            case "get":
                return await self._answer(request, answer, lambda desk: _got(desk, asked, answer))
            case "list":
                options = list_options(request.query, asked.namespace, watch=False)
                return await self._answer(
                    request,
                    answer,
                    lambda desk: _listed(desk, asked, answer, verbs.list_objects(desk, asked, options)),
                )
            case "delete" | "deletecollection":
                return await self._delete(request, asked, answer)
        return await self._write(request, asked, answer)

    def stop(self) -> None:
        """End all watches."""
        for watcher in list(self._watchers):
            watcher.stop()

    def _authorize(self, request: web.Request, asked: Asked) -> None:
        user, resource = request[USER], asked.resource
        namespace = asked.namespace
        if resource.kind is NAMESPACE and asked.name and asked.verb == "get":
            namespace = asked.name
        if self._api.access.allowed(user, asked.verb, resource.plural, namespace):
            return
        full = f"{resource.plural}/{asked.subresource}" if asked.subresource else resource.plural
        place = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        what = f'User "{user.name}" cannot {asked.verb} resource "{full}" in API group "{resource.group}" {place}'
        raise status.forbidden(resource.label, asked.name, what)

    async def _write(self, request: web.Request, asked: Asked, answer: Answer) -> web.StreamResponse:
        options = write_options(request.query, _OPTIONS[asked.verb])
        body = await read_body(request, PATCHES if asked.verb == "patch" else READ)
        do: Callable[..., verbs.Written] = {"create": verbs.create, "update": verbs.update, "patch": verbs.patch}[
            asked.verb
        ]

        rates, user = self._rates, request[USER].name

        def admit(found: Any) -> None:
            if rates is not None and asked.resource.is_events and not options.dry_run:
                rates.admit(user, found)

        def work(desk: Desk) -> tuple[verbs.Written, bytes]:
            written = do(desk, asked, body, options, admit)
            return written, _renderer(desk, asked, answer).one(written.object)

        written, data = await self._api.pool.run(work)
        headers = [("Warning", f'299 - "{_quoted(text)}"') for text in written.warnings]
        return reply(answer, data, code=201 if written.made else 200, headers=headers)

    async def _delete(self, request: web.Request, asked: Asked, answer: Answer) -> web.StreamResponse:
        body = await read_body(request, READ) if request.can_read_body else None
        preconditions, dry_run = verbs.read_delete_options(body, request.query)
        options = write_options(request.query, "DeleteOptions", dry_run)
        if asked.verb == "delete":
            done = await self._api.pool.run(lambda desk: verbs.delete(desk, asked, preconditions, options))
            return reply(answer, Renderer(asked.resource, answer).bytes_of(done))
        selected = list_options(request.query, asked.namespace, watch=False)
        return await self._answer(
            request,
            answer,
            lambda desk: _listed(desk, asked, answer, verbs.delete_collection(desk, asked, selected, options)),
        )

    async def _answer(self, request: web.Request, answer: Answer, work: Callable[[Desk], bytes]) -> web.StreamResponse:
        compress = "gzip" in request.headers.get("Accept-Encoding", "").lower()

        def made(desk: Desk) -> tuple[bytes, bool]:
            data = work(desk)
            if compress and len(data) >= GZIP_FROM:
                return gzip.compress(data, _GZIP_LEVEL, mtime=0), True
            return data, False

        data, compressed = await self._api.pool.run(made)
        headers = [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")] if compressed else []
        return reply(answer, data, headers=headers)

    async def _watch(self, request: web.Request, asked: Asked, answer: Answer) -> web.StreamResponse:
        options = list_options(request.query, asked.namespace, asked.name, watch=True)
        with self._limits.watching(request[USER].name):
            watcher = Watcher(pool=self._api.pool, resource=asked.resource, answer=answer, frames=self._frames)
            self._watchers.add(watcher)
            try:
                try:
                    await watcher.open(begin_watch(asked.resource, options))
                except Expired as error:
                    # Also of a version that is ahead: the store has lost what it was of, so waiting is in vain.
                    raise status.Refusal(410, "Expired", str(error)) from None
                outlet = SocketOutlet(request, watcher.stop) if is_upgrade(request) else ChunkedOutlet(request)
                await outlet.begin()
                await watcher.run(outlet)
                await outlet.close()
                return outlet.response
            finally:
                self._watchers.discard(watcher)
                watcher.close()


async def read_body(request: web.Request, accepted: tuple[str, ...]) -> Body:
    """The body of *request*. Raises: Refusal: 408, 413, 415."""
    header = request.headers.get("Content-Type")
    if not header and is_from_browser(request):
        raise status.unsupported_media_type(accepted)
    media_type = media_type_of(header, accepted)
    try:
        async with asyncio.timeout(BODY_S):
            return Body(await request.read(), media_type)
    except TimeoutError:
        raise status.Refusal(408, "Timeout", f"the body has not arrived within {BODY_S:g} s", details={}) from None


def reply(answer: Answer, data: bytes, *, code: int = 200, headers: Iterable[tuple[str, str]] = ()) -> web.Response:
    """An answer with exactly its media type: lightkube understands no charset behind it."""
    found = web.Response(status=code, body=data, content_type=answer.media_type)
    found.headers.extend(headers)
    return found


def reply_json(plain: Any, *, code: int = 200) -> web.Response:
    """A plain value as JSON."""
    return web.Response(status=code, body=msgspec.json.encode(plain) + b"\n", content_type=JSON)


def _got(desk: Desk, asked: Asked, answer: Answer) -> bytes:
    return _renderer(desk, asked, answer).one(verbs.get(desk, asked))


def _labels(request: web.Request, asked: Asked) -> tuple[str, ...]:
    """As the API server counts requests: verbs by their HTTP names, but LIST, WATCH and APPLY told apart."""
    verb = {"list": "LIST", "watch": "WATCH"}.get(asked.verb, request.method)
    if verb == "PATCH" and request.content_type == APPLY_PATCH:
        verb = "APPLY"
    scope = "resource" if asked.name else "namespace" if asked.namespace else "cluster"
    return verb, asked.resource.group, asked.resource.version, asked.resource.plural, scope


def _listed(desk: Desk, asked: Asked, answer: Answer, found: ObjectList[Any]) -> bytes:
    return _renderer(desk, asked, answer).many(found)


def _renderer(desk: Desk, asked: Asked, answer: Answer) -> Renderer:
    """Made when the object is there: only then its kind is sure to have a base of versions."""
    return Renderer(asked.resource, answer, desk.versions(asked.resource.kind))


def _quoted(text: str) -> str:
    """Inside the quotes of a Warning: printable ASCII."""
    plain = "".join(character if " " <= character <= "~" else "?" for character in text)
    return plain.replace("\\", "\\\\").replace('"', '\\"')


KUBERNETES: Final = web.AppKey("kubernetes", KubernetesApi)

__all__ = ["API", "KUBERNETES", "KubernetesApi", "read_body", "reply", "reply_json"]
