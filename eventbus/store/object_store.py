"""The store of a bus: its objects by kind, a shortcut to its events, and the kinds that a user may read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import Client, resolve_url
from eventbus.broker.keys import OPERATED
from eventbus.client.address import is_api_url
from eventbus.errors import BusRefused, ConfigError
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT, Kind
from eventbus.model.list_watch import HasMetadata, ListOptions, ObjectList
from eventbus.settings import Settings
from eventbus.store.change_hub import ChangeHub
from eventbus.store.event_storage import EventStorage
from eventbus.store.reader import ObjectReader
from eventbus.store.scan import scan
from eventbus.store.selection import Selection
from eventbus.store.writer import ObjectWriter

if TYPE_CHECKING:
    from eventbus.client.store import RemoteStore

T = TypeVar("T", bound=HasMetadata)
#: A store in Redis, or through an API worker, with the same methods.
AnyStore: TypeAlias = "ObjectStore | RemoteStore"


class ObjectStore:
    """The objects of a bus, by kind. It has one client: use it, and each `lister_watcher`, in one thread at a time.

        with ObjectStore.open() as store, SharedInformerFactory(store) as factory:
            node = store.objects(NODE).get("node-1")
            factory.nodes().add_event_handler(on_add=greet)
            factory.start()

    All watches of a kind through one store share one blocking read, in a thread that runs as long as they do.
    """

    def __init__(self, bus: Bus, client: Client) -> None:
        self._bus = bus
        self._client = client
        self._hub = ChangeHub(bus)
        self._clients: list[Client] = []

    @classmethod
    def open(cls, url: str | None = None, *, settings: Settings | None = None) -> Self:
        """Open the store of the bus at *url*; None: the bus of the settings or the environment, as a broadcaster does.

        `close` closes its client. For an API worker, the result is a `RemoteStore` with the same methods.
        It connects with its first call.

        Raises: ConfigError: no bus is configured, or it cannot be used.  BusUnavailable, BusRefused: see `open_bus`.
        """
        settings = settings or Settings.from_environ(os.environ)
        if (url and is_api_url(url)) or (not url and settings.url):
            from eventbus.client.address import parse_api_url
            from eventbus.client.store import RemoteStore

            # Programs annotate both as ObjectStore.
            return cast("Self", RemoteStore(parse_api_url(url or settings.url, settings)))
        resolved = resolve_url(url, settings)
        if resolved is None:
            raise ConfigError("no bus is configured (EVENTBUS_REDIS_URL=none), so there is no store")
        return cls.of(open_bus(resolved, settings))

    @classmethod
    def of(cls, bus: Bus) -> Self:
        """Return the store of *bus* with its own client, which `close` closes."""
        client = bus.client(name="eventbus-store")
        store = cls(bus, client)
        store._clients.append(client)
        return store

    def for_another_thread(self) -> ObjectStore:
        """Return the same store with another client, which its `close` closes."""
        return ObjectStore.of(self._bus)

    @property
    def hub(self) -> ChangeHub:
        """Return the reader of changes that all watches of this store share."""
        return self._hub

    def objects(self, kind: Kind[T]) -> ObjectWriter[T]:
        """Return a reader and writer of the objects of *kind*, over this store's client."""
        return ObjectWriter(bus=self._bus, client=self._client, hub=self._hub, kind=kind)

    def lister_watcher(self, kind: Kind[T]) -> ObjectReader[T]:
        """Return a reader of *kind* over a client of its own, for another thread. `close` closes it.

        See `ObjectSource`."""
        client = self._bus.client(name="eventbus-reader")
        self._clients.append(client)
        return ObjectReader(bus=self._bus, client=client, hub=self._hub, kind=kind)

    def close(self) -> None:
        """End the watches, and close the clients made here; not the one that was given."""
        self._hub.close()
        while self._clients:
            self._clients.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list(
        self, namespace: str | None = None, *, kind: str | None = None, name: str | None = None
    ) -> ObjectList[Event]:
        """List all events, those of a *namespace* (None, "": of all), or those about one object (*kind*, *name*).

        *kind* is compared without case. The version is read before the first page, so that a watch from it
        returns every later change. Order: by namespace and name within a partition.
        """
        storage = EventStorage(kind=EVENT, bus=self._bus, client=self._client)
        selection: Selection[Event] = Selection(EVENT, ListOptions(namespace=namespace or ""))
        version = self.objects(EVENT).newest()
        items: list[Event] = []
        for partition in storage.partitions:
            index = storage.index(partition, selection)
            if namespace and kind is not None and name is not None:
                index = storage.index_about(partition, namespace, kind, name)
            for page in scan(self._bus, self._client, storage, partition, index):
                items += [event for _, event in page if kind is name is None or about(event, kind, name)]
        return ObjectList(tuple(items), str(version))

    def get(self, namespace: str, name: str) -> Event:
        """Read one event by its name. Raises: NotFound: with the API server's message."""
        return self.objects(EVENT).get(name, namespace)

    def delete(self, namespace: str, name: str) -> None:
        """Delete one event, as `kubectl delete event` does; its running count stays. Raises: NotFound."""
        self.objects(EVENT).delete(name, namespace)


def stored_events(bus: Bus, client: Client) -> Iterator[Event]:
    """Yield all stored events, a page at a time."""
    storage = EventStorage(kind=EVENT, bus=bus, client=client)
    selection: Selection[Event] = Selection(EVENT, ListOptions())
    for partition in storage.partitions:
        for page in scan(bus, client, storage, partition, storage.index(partition, selection)):
            yield from (event for _, event in page)


def about(event: Event, kind: str | None, name: str | None) -> bool:
    """Return True if the event is about the given object (None: any); kinds are compared without case."""
    reference = event.involved_object
    return (kind is None or reference.kind.lower() == kind.lower()) and (name is None or reference.name == name)


def may_read(store: AnyStore, kind: Kind[Any], namespace: str = "") -> bool:
    """Return False if *kind* is one of the operator's and this user lacks that role in *namespace*, "": in all.

    Lists one object of such a kind; for other kinds it sends nothing. The events about such objects belong to
    the events, which every reader may read.
    Raises: BusUnavailable.
    """
    if kind.plural not in OPERATED:
        return True
    try:
        store.objects(kind).list(ListOptions(namespace=namespace, limit=1))
    except BusRefused:
        return False
    return True
