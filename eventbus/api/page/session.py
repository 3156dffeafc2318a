"""`/eventbus/v1/session`: the user of the page and their rights; sign-in with a token, and sign-out.

A browser keeps the token in a cookie that no script can read and that goes to no other host. So there is nothing to
remember here: any worker of the bus knows its user, and a token that is taken out of the file is signed out.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.access import User
from eventbus.api.auth.authentication import Authenticator, cookie_name, cookie_value
from eventbus.api.context import API, USER
from eventbus.api.kube.bodies import decode_as
from eventbus.api.kube.handler import typed_body
from eventbus.api.kube.negotiation import JSON
from eventbus.api.responses import reply_json
from eventbus.broker.build import package_version
from eventbus.model.kinds import SILENCE

#: A wrong token is answered so much later, seconds.
_WRONG_S: Final = 1.0
#: Bytes of a token, and seconds that it may take to arrive, because its sender is not authenticated. The number of
#: sign-ins has no limit: each takes little memory, and no other request waits for it.
_BODY: Final = 8 * 1024
_BODY_S: Final = 5.0
#: Characters of a cookie's value: browsers drop a longer one without a word.
_COOKIE: Final = 4000


class SignIn(msgspec.Struct):
    """The body of a sign-in."""

    token: str


class Rights(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of the page that its user may use. *silence*: and acknowledge, on the whole bus."""

    replay: bool
    discard: bool
    see_health: bool
    silence: bool


class SessionReply(msgspec.Struct, frozen=True, rename="camel"):
    """The user of the page. *namespaces*: where the user may list events; null: everywhere.

    *silence_in*: namespaces in which the user may silence and acknowledge alerts.
    """

    user: str
    signed_in: bool
    namespaces: list[str] | None
    silence_in: list[str]
    may: Rights
    event_ttl_s: int
    occurrences_s: int
    build: str


class Session:
    """The handlers. GET asks for a user like all else; POST and DELETE make and end one."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def show(self, request: web.Request) -> web.Response:
        """Return the user and the parts of the page that the user may use."""
        by_cookie = await self._authenticator.cookie_user(request) is not None
        return reply_json(_session(request, request[USER], signed_in=by_cookie))

    async def sign_in(self, request: web.Request) -> web.Response:
        """Take {"token": …}, and give the cookie. Raises: ApiError: 401: an unknown token."""
        body = await typed_body(request, (JSON,), most=_BODY, within_s=_BODY_S)
        token = decode_as(SignIn, body.data, 'a body like {"token": "…"} is needed').token.strip()
        user = await self._authenticator.token_user(token)
        if user is None:
            await asyncio.sleep(_WRONG_S)
            takes = self._authenticator.takes_tokens
            raise status.ApiError(401, "Unauthorized", "unknown token" if takes else "this worker accepts no tokens")
        if len(cookie_value(token)) > _COOKIE:
            raise status.ApiError(
                413, "RequestEntityTooLarge", "no browser keeps a cookie with a token as long as this"
            )
        answer = reply_json(_session(request, user, signed_in=True))
        answer.set_cookie(
            cookie_name(request), cookie_value(token), path="/", httponly=True, samesite="Strict", secure=request.secure
        )
        return answer

    async def sign_out(self, request: web.Request) -> web.Response:
        """Delete the cookie."""
        answer = web.Response(status=204)
        secure = request.secure or None
        answer.del_cookie(cookie_name(request), path="/", httponly=True, samesite="Strict", secure=secure)
        return answer


def _session(request: web.Request, user: User, *, signed_in: bool) -> SessionReply:
    api = request.app[API]
    allowed, options = api.access.allowed, api.bus.options
    everywhere = allowed(user, "list", "events")
    places = sorted({grant.namespace for grant in api.access.grants_of(user) if grant.namespace})
    return SessionReply(
        user=user.name,
        signed_in=signed_in,
        namespaces=None if everywhere else [name for name in places if allowed(user, "list", "events", name)],
        silence_in=[name for name in places if allowed(user, "create", SILENCE.plural, name)],
        may=Rights(
            replay=allowed(user, "update", "dead"),
            discard=allowed(user, "delete", "dead"),
            see_health=allowed(user, "get", "status"),
            silence=allowed(user, "create", SILENCE.plural),
        ),
        event_ttl_s=options.event_ttl_s,
        occurrences_s=options.occurrences_s,
        build=package_version(),
    )
