"""`GET /eventbus/v1/why` and `POST verdicts`: one object's story, and the state of many objects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.access import Access, User
from eventbus.api.context import API, require
from eventbus.api.eventbus_v1.query import DurationText, read_query, read_seconds
from eventbus.api.kube.bodies import decode_as, read_body
from eventbus.api.kube.rendering import versioned
from eventbus.api.responses import compute_json
from eventbus.api.thread_context import ThreadContext
from eventbus.errors import InvalidEvent
from eventbus.model.encoding.event_json import to_core
from eventbus.model.event import ObjectReference
from eventbus.model.kinds import EVENT, KINDS
from eventbus.model.reference import DEFAULT_NAMESPACE, reference_to, spelled_kind
from eventbus.store.story.reading import BEFORE, read_story, read_verdicts
from eventbus.store.story.story import Story, StoryJson, story_to_json
from eventbus.store.story.verdict import Verdict

#: The longest that is looked back from a first Warning.
MOST_S: Final = 14 * 86_400


class WhyQuery(msgspec.Struct, frozen=True):
    """The object, and the extent of its story."""

    object: Annotated[str, msgspec.Meta(description="shop/Order/7, instead of kind and name")] = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    before: Annotated[DurationText, msgspec.Meta(description="how long before its first Warning: 10m")] = ""
    system: Annotated[bool, msgspec.Meta(description="with eventbus's own workers")] = False


class Why(StoryJson, frozen=True, kw_only=True, rename="camel"):
    """One object's story. A watch of core/v1 events from *resource_version* delivers all later changes."""

    resource_version: str


async def why(request: web.Request) -> web.Response:
    """The story of *object*, or of *kind* and *name* in *namespace*.

    Its surroundings are other objects', so all of that namespace must be readable; of an object in none, all of all.
    """
    query = read_query(request, WhyQuery)
    about = _asked(query)
    user = require(request, "list", "events", about.namespace)
    before_s = read_seconds("before", query.before, int(BEFORE.total_seconds()), MOST_S)
    access = request.app[API].access

    def work(context: ThreadContext) -> Why:
        version = str(context.objects(EVENT).newest())
        story = granted_story(context, access, user, about, before=timedelta(seconds=before_s), system=query.system)
        versions = context.versions(EVENT)
        plain = story_to_json(story, datetime.now(UTC), lambda event: versioned(to_core(event), versions))
        found_kind = KINDS.named(about.kind)
        if found_kind is not None and plain.stored:
            versioned(plain.stored, context.versions(found_kind))
        return Why(**msgspec.structs.asdict(plain), resource_version=versions.of_list(version))

    return await compute_json(request, work)


def granted_story(
    context: ThreadContext,
    access: Access,
    user: User,
    about: ObjectReference,
    *,
    before: timedelta,
    system: bool = False,
) -> Story:
    """Return the story of *about*, without the objects that *user* may not read. Check the right to list it before."""
    reader = context.objects(EVENT)
    story = read_story(context.bus, context.client, about, before=before, system=system, reader=reader)
    kind = KINDS.named(about.kind)
    place = about.namespace if kind is not None and kind.namespaced else ""
    if kind is None or not access.allowed(user, "get", kind.plural, place):
        story = msgspec.structs.replace(story, stored=None)
    return story if access.allowed(user, "list", "events") else story.within(about.namespace)


def _asked(query: WhyQuery) -> ObjectReference:
    """Raises: ApiError: 400."""
    namespace = query.namespace
    if query.object:
        try:
            return reference_to(query.object, namespace or DEFAULT_NAMESPACE)
        except InvalidEvent as error:
            raise status.bad_request(str(error)) from None
    kind, name = spelled_kind(query.kind), query.name
    if not kind or not name:
        raise status.bad_request("kind and name: of which object? why?kind=Pod&namespace=default&name=web-0")
    known = KINDS.named(kind)
    typed = ObjectReference(kind=kind, namespace=namespace, name=name)
    return typed if known is not None and not known.namespaced else reference_to(typed)


#: Objects of one question.
MOST: Final = 200


class VerdictsRequest(msgspec.Struct, frozen=True):
    """The objects asked for; kind and name are needed."""

    objects: Annotated[tuple[ObjectReference, ...], msgspec.Meta(max_length=MOST)]


class Verdicts(msgspec.Struct, frozen=True):
    """The verdict on each object that has Warnings."""

    items: Sequence[Verdict]


async def verdicts(request: web.Request) -> web.Response:
    """Judge them by all events about each; those without a Warning are left out. It reads, and writes nothing."""
    asked = decode_as(VerdictsRequest, await read_body(request), "objects")
    for namespace in {about.namespace or "default" for about in asked.objects}:
        require(request, "list", "events", namespace)

    def work(context: ThreadContext) -> Verdicts:
        return Verdicts(read_verdicts(context.bus, context.client, asked.objects))

    return await compute_json(request, work)
