"""Refuses exports from a bus into its own API: each event would return as a new event, endlessly."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from eventbus.api import status
from eventbus.broker.bus import Bus

#: Header of an export worker's webhook requests: the id of the source bus.
HEADER: Final = "Eventbus-Bus"
#: Field manager of an export worker at API servers; the bus id follows.
MANAGER: Final = "eventbus-"


def refuse_own_export(bus: Bus, request: web.Request) -> None:
    """Raises: Refusal: 403. The export then waits, and `eventbus status` shows the reason."""
    origin = request.headers.get(HEADER, "") or request.query.get("fieldManager", "").removeprefix(MANAGER)
    if bus.id and origin == bus.id:
        message = f"this export writes into the bus that it reads ({bus.prefix}, id {bus.id}): give it another target"
        raise status.Refusal(403, "Forbidden", message, details={})
