"""Refuses an export of a bus into an API of the same bus: each event would come back as another, for ever."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from eventbus.api import status
from eventbus.broker.bus import Bus

#: What an export worker sends to webhooks: the id of the bus that its events come from.
HEADER: Final = "Eventbus-Bus"
#: What it calls itself to API servers, with the id behind it.
MANAGER: Final = "eventbus-"


def refuse_own_export(bus: Bus, request: web.Request) -> None:
    """Raises: Refusal: 403, with which an export waits, and says why in `eventbus status`."""
    origin = request.headers.get(HEADER, "") or request.query.get("fieldManager", "").removeprefix(MANAGER)
    if bus.id and origin == bus.id:
        message = f"this export writes into the bus that it reads ({bus.prefix}, id {bus.id}): give it another target"
        raise status.Refusal(403, "Forbidden", message, details={})
