"""Checks of every request before its handler: its host, its origin, and its user."""

from __future__ import annotations

import ipaddress
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

_IMPERSONATION: Final = (("Impersonate-User", "users"), ("Impersonate-Group", "groups"), ("Impersonate-Uid", "uids"))


async def check_sender(request: web.Request, authenticator: Authenticator, names: frozenset[str]) -> None:
    """Refuse foreign hosts, and requests that a page of another site makes, then find the user. Raises: ApiError.

    Args: names: names of this server in Host, in addition to IP addresses; in lower case.
    """
    _check_host(request, names)
    if is_page(request):  # any site may link to it, and it shows nothing to users without rights
        return
    _check_origin(request)
    if not is_open(request):
        await request.app[API].access.refresh()
        request[USER] = user = await authenticator.user(request)
        _check_impersonation(request, user)


def _check_host(request: web.Request, names: frozenset[str]) -> None:
    """Refuse other names: after DNS rebinding, a page's name has our address, but Host has its name."""
    if is_unix(request.transport):
        return
    host = _host_of(request.host).encode(errors="replace").decode()
    if host not in names and not _is_address(host):
        raise status.ApiError(403, "Forbidden", f'this server is not "{host}": give the worker --name {host}')


def _check_origin(request: web.Request) -> None:
    origin = request.headers.get("Origin")
    same = origin is None or origin in (f"http://{request.host}", f"https://{request.host}")
    if not same or request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise status.ApiError(403, "Forbidden", "a page of another origin may not use this server")


def _check_impersonation(request: web.Request, user: User) -> None:
    """Refuse impersonation. If it were ignored, the users of a proxy would have the rights of the proxy."""
    for header, resource in _IMPERSONATION:
        if header in request.headers:
            why = f'User "{user.name}" cannot impersonate resource "{resource}" in API group ""'
            raise status.forbidden(resource, request.headers[header], f"{why} at the cluster scope: not supported")


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
