"""kopf: an operator that is told of events, and posts one about what it sees."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import kopf
from telling import NAMESPACE, new_event, tell


@kopf.on.login()
def login(**_: Any) -> kopf.ConnectionInfo:
    return kopf.ConnectionInfo(server=sys.argv[1], default_namespace=NAMESPACE)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = True
    settings.networking.error_backoffs = [0.1] * 100
    settings.watching.reconnect_backoff = 0.1


@kopf.on.event("v1", "events")
async def told(type: str | None, name: str, body: kopf.Body, **_: Any) -> None:
    tell(type=type or "ADDED", name=name)
    if name == "before-0" and type is None:
        kopf.event(new_event("x")["involvedObject"] | {"metadata": {}}, type="Normal", reason="Seen", message="by-kopf")


asyncio.run(kopf.operator(standalone=True, namespaces=[NAMESPACE]))
