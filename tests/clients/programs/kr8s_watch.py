"""kr8s: lists, writes, and watches; a watch that was cut off is begun anew, with all that there is."""

from __future__ import annotations

import sys
import time

import httpx
import kr8s
from kr8s.objects import Event
from telling import NAMESPACE, new_event, tell

api = kr8s.api(url=sys.argv[1], namespace=NAMESPACE)


def main() -> None:
    tell(listed=[event.name for event in api.get("events", namespace=NAMESPACE)])
    made = Event({"apiVersion": "v1", "kind": "Event", **new_event("by-kr8s")}, api=api)
    made.create()
    made.patch({"count": 2})
    tell(wrote=made.name, count=made.raw["count"])
    while True:
        try:
            for kind, event in api.watch("events", namespace=NAMESPACE):
                tell(type=kind, name=event.name)
        except (httpx.HTTPError, OSError, kr8s.ServerError) as error:
            tell(cut=type(error).__name__)
        time.sleep(0.1)


main()
