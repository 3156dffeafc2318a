"""The buses that an event has passed: a bus drops an event that comes back to it."""

from __future__ import annotations

from typing import Final

from eventbus.errors import InvalidEvent

#: The annotation of an event that came from another bus: ids with commas, the last one at the end, without the bus that
#: stores it.
PATH_ANNOTATION: Final = "eventbus.dev/bus-path"
#: The same in the annotations of an alert of Alertmanager, with a name that Prometheus accepts.
ALERT_ANNOTATION: Final = "eventbus_bus"
#: Buses that an event may pass.
MOST_BUSES: Final = 4


class Loop(InvalidEvent):
    """The event has passed this bus, or too many. *word*: `own` or `too-many-buses`, for metrics."""

    def __init__(self, word: str, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.word = word


def extend_path(path: str, bus_id: str) -> str:
    """Return *path* with *bus_id* at its end; "" leaves it."""
    return f"{path},{bus_id}" if path and bus_id else path or bus_id


def find_loop(field: str, path: str, bus_id: str) -> Loop | None:
    """Return why the bus *bus_id* must drop an event that has passed *path*; None: it must not."""
    buses = [bus for bus in path.split(",") if bus]
    if bus_id in buses:
        return Loop("own", field, "has this bus: the event came from here")
    if len(buses) >= MOST_BUSES:
        return Loop("too-many-buses", field, f"has {len(buses)} buses; at most {MOST_BUSES - 1} before this one")
    return None
