"""Finding the events of the object that a person named, and saying why there are none."""

from __future__ import annotations

from collections import Counter

from eventbus.cli.kinds import meant_kinds
from eventbus.cli.session import Session
from eventbus.errors import EventBusError
from eventbus.event import Event, ObjectReference
from eventbus.store.object_store import EventList, ObjectStore

#: Other places named in a hint.
HINTS = 5


def list_about(store: ObjectStore, namespace: str | None, reference: ObjectReference) -> EventList:
    """The events about *reference* in *namespace* (None: all), its kind as people type it."""
    lists = [
        store.list(namespace, kind=kind, name=reference.name) for kind in dict.fromkeys(meant_kinds(reference.kind))
    ]
    # Of the versions the oldest: a watch from it misses nothing of the later lists.
    return EventList(tuple(event for found in lists for event in found.items), lists[0].resource_version)


def is_about(event: Event, kinds: frozenset[str], name: str) -> bool:
    """Whether the event's object has *name* and one of *kinds*, which are in lower case."""
    return event.involved_object.name == name and event.involved_object.kind.lower() in kinds


def elsewhere(events: tuple[Event, ...], kinds: frozenset[str], name: str) -> list[str]:
    """What a person may have meant: the same object in another namespace, the same name of another kind."""
    found: Counter[str] = Counter()
    for event in events:
        about = event.involved_object
        if about.name == name:
            place = "" if event.metadata.namespace == "default" else f" -n {event.metadata.namespace}"
            found[f"{about.kind.lower()}/{about.name}{place}"] += 1 + (about.kind.lower() in kinds)
    return [text for text, _ in found.most_common(HINTS)]


def waiting(session: Session) -> str:
    """One sentence when events lie in the stream and nobody brings them into the store; else ''."""
    lag, alive = _sink_group(session)
    return _waiting(lag) if lag and not alive else ""


def no_worker(session: Session) -> str:
    """As `waiting`, also when nothing lies there."""
    lag, alive = _sink_group(session)
    return "" if alive else _waiting(lag) if lag else _START.capitalize()


def _waiting(lag: int) -> str:
    number = "1 event waits" if lag == 1 else f"{lag} events wait"
    return f"{number} to be recorded, but {_START}"


_START = "no sink worker is alive: start one with `eventbus worker sink`"


def _sink_group(session: Session) -> tuple[int, int]:
    """How many events wait for it, and its live workers; who may not know it is told that all is well."""
    from eventbus.broker.bus import SINK_GROUP
    from eventbus.broker.status import read_status

    try:
        groups = read_status(session.bus, session.client).groups
    except EventBusError:
        return 0, 1
    sink = next((group for group in groups if group.name == SINK_GROUP), None)
    return (0, 1) if sink is None else (sink.lag or 0, sink.alive)
