"""Makes the storage of a kind: the one place that knows that events have another one than all other kinds."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from eventbus.broker.bus import Bus
from eventbus.broker.connection.client import Client
from eventbus.broker.keys import EVENTS
from eventbus.kinds import Kind
from eventbus.list_watch import HasMetadata
from eventbus.store.event_storage import EventStorage
from eventbus.store.object_storage import ObjectStorage
from eventbus.store.storage import Storage

T = TypeVar("T", bound=HasMetadata)


def open_storage(kind: Kind[T], bus: Bus, client: Client, *, remember: bool) -> Storage[T]:
    """The storage of *kind*, over *client*. *remember*: see `EventStorage`."""
    if kind.plural == EVENTS:
        events = EventStorage(kind=cast("Kind[Any]", kind), bus=bus, client=client, remember=remember)
        return cast("Storage[T]", events)
    return ObjectStorage(kind=kind, bus=bus, client=client)


__all__ = ["open_storage"]
