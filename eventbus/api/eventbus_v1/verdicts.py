"""`POST /eventbus/v1/verdicts`: of each object asked for, what fails, since when, how often, and does it still?"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from aiohttp import web

from eventbus.api.context import require
from eventbus.api.eventbus_v1.answer import answer_json
from eventbus.api.kube.bodies import decode_as, read_body
from eventbus.api.thread_context import Desk
from eventbus.model.event import ObjectReference
from eventbus.store.story.reading import read_verdicts

#: Objects of one question.
MOST: Final = 200
_ENCODE: Final = msgspec.json.Encoder().encode


class Asked(msgspec.Struct, frozen=True):
    """The objects asked for; kind and name are needed."""

    objects: Annotated[tuple[ObjectReference, ...], msgspec.Meta(max_length=MOST)]


async def verdicts(request: web.Request) -> web.Response:
    """Judge them by all events about each; those without a Warning are left out. It reads, and writes nothing."""
    asked = decode_as(Asked, await read_body(request), "objects")
    for namespace in {about.namespace or "default" for about in asked.objects}:
        require(request, "list", "events", namespace)

    def work(desk: Desk) -> bytes:
        return _ENCODE({"items": read_verdicts(desk.bus, desk.client, asked.objects)}) + b"\n"

    return await answer_json(request, work)
