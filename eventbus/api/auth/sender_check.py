"""Checks of every request before its handler: its host, its origin, and its user."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.access import User
from eventbus.api.auth.authentication import Authenticator
from eventbus.api.auth.peers import is_unix
from eventbus.api.context import API, USER
from eventbus.api.limits import is_open
from eventbus.api.page.files import is_page

_BROWSER: Final = ("Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest")
_IMPERSONATION: Final = (("Impersonate-User", "users"), ("Impersonate-Group", "groups"), ("Impersonate-Uid", "uids"))


class SenderCheck:
    """Lets through who is known, and no browser that another site's page sends.

    Args: names: by which this server is asked for besides `localhost` and any address in numbers.
    """

    def __init__(self, *, authenticator: Authenticator, names: Iterable[str] = ()) -> None:
        self._authenticator = authenticator
        self._names = frozenset({"localhost", *(name.lower() for name in names)})

    async def check(self, request: web.Request) -> None:
        """Refuse foreign hosts and origins, then find out who asks. Raises: ApiError."""
        self._check_host(request)
        if is_page(request):  # a link to it may stand anywhere, and it says nothing to who has no right
            return
        _check_origin(request)
        if not is_open(request):
            await request.app[API].access.refresh()
            request[USER] = user = await self._authenticator.user(request)
            _check_impersonation(request, user)

    def _check_host(self, request: web.Request) -> None:
        """A page whose name was bound to our address anew (DNS rebinding) still asks for its own name."""
        if is_unix(request.transport):
            return
        host = _host_of(request.host).encode(errors="replace").decode()
        if host not in self._names and not _is_address(host):
            raise status.ApiError(403, "Forbidden", f'this server is not "{host}": give the worker --name {host}')


def is_from_browser(request: web.Request) -> bool:
    """Return True if a page may have sent it, which can send any body that needs no Content-Type of its own."""
    return any(name in request.headers for name in _BROWSER)


def _check_origin(request: web.Request) -> None:
    origin = request.headers.get("Origin")
    same = origin is None or origin in (f"http://{request.host}", f"https://{request.host}")
    if not same or request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise status.ApiError(403, "Forbidden", "a page of another origin may not use this server")


def _check_impersonation(request: web.Request, user: User) -> None:
    """Refuse to be asked in another's name: if that were not minded, a proxy's users would have all its rights."""
    for header, resource in _IMPERSONATION:
        if header in request.headers:
            why = f'User "{user.name}" cannot impersonate resource "{resource}" in API group ""'
            raise status.forbidden(resource, request.headers[header], f"{why} at the cluster scope: nobody can here")


def _host_of(header: str) -> str:
    """The host of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.rpartition(":")[0].lower() if ":" in header else header.lower()


@lru_cache(maxsize=64)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
