"""`/alertmanager/api/v2/silences` and `silence/{id}`: the stored silences in Alertmanager's form.

Source: alertmanager `api/v2/api.go` and `silence/silence.go`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.alertmanager.answers import filters_of, time_text
from eventbus.api.context import API, USER, require, require_anywhere
from eventbus.api.kube.authors import Author, read_all
from eventbus.api.kube.bodies import decode_as
from eventbus.api.kube.handler import typed_body
from eventbus.api.kube.negotiation import JSON
from eventbus.api.responses import compute_json, reply_json
from eventbus.api.thread_context import ThreadContext
from eventbus.model.event import Instant
from eventbus.model.kinds import SILENCE
from eventbus.model.objects.silence import ACTIVE, EXPIRED, PENDING, Silence, SilenceMatcher, SilenceSpec
from eventbus.notify.alerts import ms_of
from eventbus.notify.silencing import Silencing
from eventbus.store.storage import replaced

_MAX_BODY: Final = 64 * 1024
_STATES: Final = (ACTIVE, PENDING, EXPIRED)


class PostedSilence(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a POST. *created_by* is ignored: it is the authenticated user."""

    matchers: tuple[SilenceMatcher, ...]
    starts_at: Instant
    ends_at: Instant
    comment: str
    created_by: str = ""
    id: str = ""


async def silences(request: web.Request) -> web.Response:
    """Silences that the user may read: active, pending, then expired ones."""
    author = Author(request[USER], request.app[API].access)
    if not author.may_try("list", SILENCE):
        require(request, "list", SILENCE.plural)
    wanted = {str(matcher) for matcher in filters_of(request)}

    def work(context: ThreadContext) -> Any:
        now = datetime.now(UTC)
        found = [
            silence
            for silence in read_all(context, SILENCE)
            if wanted.issubset(map(str, silence.spec.matchers)) and author.may("list", SILENCE, silence)
        ]
        return [_plain(each, now) for each in sorted(found, key=lambda each: _order(each.spec, now))]

    return await compute_json(request, work)


async def silence(request: web.Request) -> web.Response:
    """One silence."""
    name = request.match_info["id"]

    def work(context: ThreadContext) -> Any:
        found = context.objects(SILENCE).get(name)
        _require(request, "get", found)
        return _plain(found, datetime.now(UTC))

    return await compute_json(request, work)


async def post(request: web.Request) -> web.Response:
    """Create a silence, or change one. Changed matchers expire the former silence and make another one."""
    require_anywhere(request, "create", SILENCE.plural)
    body = await typed_body(request, (JSON,), most=_MAX_BODY)
    posted = decode_as(PostedSilence, body.data, "a silence is needed")
    now = datetime.now(UTC)
    if posted.ends_at <= now:
        raise status.bad_request("Failed to create silence: end time can't be in the past")
    spec = SilenceSpec(
        matchers=posted.matchers,
        starts_at=posted.starts_at,
        ends_at=posted.ends_at,
        created_by=request[USER].name,
        comment=posted.comment,
    )

    def work(context: ThreadContext) -> str:
        objects = context.objects(SILENCE)
        former = objects.get(posted.id) if posted.id else None
        if former is not None:
            _require(request, "update", former)
            if _can_change(former.spec, spec, now):
                changed = replaced(former, spec=spec)
                _require(request, "update", changed)
                return str(objects.update(changed).metadata.name)
        new = Silence(spec=msgspec.structs.replace(spec, starts_at=max(posted.starts_at, now)))
        author = _require(request, "create", new)
        author.check_count(context, SILENCE, new)
        name = str(objects.create(new).metadata.name)
        if former is not None:
            _expire(context, former, now)
        return name

    return reply_json({"silenceID": await request.app[API].pool.run(work)})


async def delete(request: web.Request) -> web.Response:
    """Expire a silence. It stays until it is deleted."""
    name = request.match_info["id"]

    def work(context: ThreadContext) -> None:
        found = context.objects(SILENCE).get(name)
        _require(request, "update", found)
        _expire(context, found, datetime.now(UTC))

    await request.app[API].pool.run(work)
    return web.Response()


def _plain(silence: Silence, now: datetime) -> dict[str, Any]:
    spec, made = silence.spec, silence.metadata.creation_timestamp
    state = spec.state(now)
    updated = spec.ends_at if state == EXPIRED else made
    return {
        "id": silence.metadata.name,
        "status": {"state": state},
        "updatedAt": _time(updated),
        "comment": spec.comment,
        "createdBy": spec.created_by,
        "endsAt": _time(spec.ends_at),
        "matchers": [msgspec.to_builtins(matcher) for matcher in spec.matchers],
        "startsAt": _time(spec.starts_at),
    }


def _time(at: datetime | None) -> str:
    return time_text(int(at.timestamp() * 1000) if at else 0)


def _order(spec: SilenceSpec, now: datetime) -> tuple[int, float]:
    """The next one to end, the next one to start, and the last one that has ended come first among their states."""
    state = spec.state(now)
    at = spec.starts_at if state == PENDING else spec.ends_at
    seconds = at.timestamp() if at else 0.0
    return _STATES.index(state), -seconds if state == EXPIRED else seconds


def active_silences(context: ThreadContext) -> Silencing:
    """Return the silences that are active now, with the notifier's bound on their number."""
    silences, now_ms = Silencing({}), ms_of(datetime.now(UTC))
    for silence in read_all(context, SILENCE):
        silences.set(silence.metadata.name, silence, now_ms)
    return silences


def _require(request: web.Request, verb: str, silence: Silence) -> Author:
    """Raises: ApiError: 403. Rights in a namespace are enough for a silence that is restricted to it."""
    author = Author(request[USER], request.app[API].access)
    author.check(verb, SILENCE, silence)
    return author


def _can_change(former: SilenceSpec, new: SilenceSpec, now: datetime) -> bool:
    """Return True if the silence stays the same one. Otherwise, another one is made."""
    if former.matchers != new.matchers or new.starts_at is None:
        return False
    match former.state(now):
        case "active":
            return _time(new.starts_at) == _time(former.starts_at)
        case "pending":
            return new.starts_at >= now
    return False


def _expire(context: ThreadContext, found: Silence, now: datetime) -> None:
    if found.spec.state(now) != EXPIRED:
        context.objects(SILENCE).update(replaced(found, spec=found.spec.ended(now)))
