"""Values that all handlers share: the worker, the user of a request, and the checks that need both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.access import Access, User
from eventbus.api.limits import EventRate
from eventbus.api.thread_context import BlockingPool
from eventbus.broker.bus import Bus

#: The name of API workers in metrics, and of the source of their events.
COMPONENT: Final = "eventbus-api"


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """One API worker, as its handlers see it."""

    bus: Bus
    pool: BlockingPool
    access: Access
    event_rate: EventRate


API: Final = web.AppKey("api", Api)
#: The user of the request; set for every request that requires authentication.
USER: Final = web.RequestKey("user", User)
#: Text that a handler adds to the line of the audit.
AUDIT_NOTE: Final = web.RequestKey("what", str)


def require(request: web.Request, verb: str, resource: str, namespace: str = "") -> User:
    """Return the user of *request* if permitted. Raises: ApiError: 403, worded as in the API server."""
    user = request[USER]
    check_right(request.app[API].access, user, verb, resource, namespace)
    return user


def check_right(access: Access, user: User, verb: str, resource: str, namespace: str = "") -> None:
    """Check that *user* is permitted. Raises: ApiError: 403, as `require`."""
    if not access.allowed(user, verb, resource, namespace):
        place = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        raise status.forbidden(
            f"{resource}.eventbus", "", f'User "{user.name}" cannot {verb} resource "{resource}" {place}'
        )


def require_anywhere(request: web.Request, verb: str, resource: str) -> None:
    """Check that the user is permitted in some namespace. Raises: ApiError: 403."""
    access, user = request.app[API].access, request[USER]
    if not any(access.allowed(user, verb, resource, grant.namespace) for grant in access.grants_of(user)):
        require(request, verb, resource)


def readable_namespaces(request: web.Request) -> Callable[[str], bool]:
    """Return the test of the namespaces in which the user may list events. Raises: ApiError: 403: in none."""
    require_anywhere(request, "list", "events")
    access, user = request.app[API].access, request[USER]
    return lambda namespace: access.allowed(user, "list", "events", namespace)


#: Header of an export worker's webhook requests: the id of the source bus.
HEADER: Final = "Eventbus-Bus"
#: Field manager of an export worker at API servers; the bus id follows.
MANAGER: Final = "eventbus-"


def refuse_own_export(bus: Bus, request: web.Request) -> None:
    """Raises: ApiError: 403. The export then waits, and `eventbus status` shows the reason."""
    origin = request.headers.get(HEADER, "") or request.query.get("fieldManager", "").removeprefix(MANAGER)
    if bus.id and origin == bus.id:
        message = f"this export writes into the bus that it reads ({bus.prefix}, id {bus.id}): give it another target"
        raise status.ApiError(403, "Forbidden", message, details={})
