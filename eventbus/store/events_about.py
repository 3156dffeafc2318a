"""Reads the stored events about many objects in two round trips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import ID_CHARS
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import PoisonBatch
from eventbus.model.event import Event, ObjectReference
from eventbus.model.kinds import EVENT
from eventbus.store.event_storage import EventStorage
from eventbus.store.index import bounds

#: Events about one object that are read.
MOST: Final = 5_000


def read_events_about(bus: Bus, client: Client, objects: Sequence[ObjectReference]) -> list[list[Event]]:
    """Return, for each of *objects*, the events about it; see `read_placed_about`."""
    return [[event for _, event in placed] for placed in read_placed_about(bus, client, objects)]


def read_placed_about(bus: Bus, client: Client, objects: Sequence[ObjectReference]) -> list[list[tuple[int, Event]]]:
    """Return, for each of *objects*, the events about it, each with its partition.

    An object needs kind (in any case), name and namespace.

    Raises: BusUnavailable.
    Redis:  ZRANGE on index:object of each object and partition in one round, then MGET on objects of each partition.
    """
    storage = EventStorage(kind=EVENT, bus=bus, client=client, remember=True)
    pipe: Any = client.pipeline(transaction=False)
    for partition in storage.partitions:
        for about in objects:
            index, prefix = storage.index_about(partition, about.namespace or "default", about.kind, about.name)
            pipe.execute_command("ZRANGE", index, *bounds(prefix), "BYLEX", "LIMIT", 0, MOST)
    with redis_errors():
        replies = pipe.execute()
    found: list[list[tuple[int, Event]]] = [[] for _ in objects]
    for partition in storage.partitions:
        here = replies[partition * len(objects) : (partition + 1) * len(objects)]
        keys = [(which, member[-ID_CHARS:]) for which, members in enumerate(here) for member in members]
        if not keys:
            continue
        with redis_errors():
            values: Any = client.mget([bus.keys[partition].object + key for _, key in keys])
        for (which, _), packed in zip(keys, values, strict=True):
            if (event := _decoded(storage, packed)) and _is_about(event, objects[which]):
                found[which].append((partition, event))
    return found


def _decoded(storage: EventStorage, packed: bytes | None) -> Event | None:
    try:
        return None if packed is None else storage.decode(packed)
    except PoisonBatch:
        return None


def _is_about(event: Event, about: ObjectReference) -> bool:
    """Return False if only the namespace is the same: an event in `default` about an object without a namespace."""
    return event.involved_object.namespace in ("", about.namespace, about.namespace or "default")
