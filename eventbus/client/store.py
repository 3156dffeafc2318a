"""The store of a bus through an API worker, with the methods of `ObjectStore`."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from eventbus.client.address import ApiAddress
from eventbus.client.connection import ApiConnection
from eventbus.client.objects import RemoteObjects
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT, Kind
from eventbus.model.list_watch import HasMetadata, ListOptions, ObjectList, list_all
from eventbus.model.selectors import escape_value

T = TypeVar("T", bound=HasMetadata)

#: Objects a page of a list.
PAGE = 500


class RemoteStore:
    """One connection, for one thread; each `lister_watcher`, and each watch, has its own."""

    def __init__(self, address: ApiAddress) -> None:
        self.address = address
        self.connection = ApiConnection(address)
        self._others: list[ApiConnection] = []

    def objects(self, kind: Kind[T]) -> RemoteObjects[T]:
        """Get, list, watch and write the objects of *kind*, over this store's connection."""
        return RemoteObjects(self.address, self.connection, kind)

    def for_another_thread(self) -> RemoteStore:
        """Return the same store over a connection of its own, which its `close` closes."""
        return RemoteStore(self.address)

    def lister_watcher(self, kind: Any) -> RemoteObjects[Any]:
        """List and watch *kind* over a connection of its own, for another thread; `close` closes it."""
        if not isinstance(kind, Kind):
            raise TypeError(f"{kind.plural} must be a Kind of eventbus.model.kinds")
        connection = ApiConnection(self.address)
        self._others.append(connection)
        return RemoteObjects(self.address, connection, kind)

    def list(
        self, namespace: str | None = None, *, kind: str | None = None, name: str | None = None
    ) -> ObjectList[Event]:
        """All events, of a *namespace*, or about one object: see `ObjectStore.list`."""
        selector = "" if name is None else f"involvedObject.name={escape_value(name)}"
        options = ListOptions(namespace=namespace or "", field_selector=selector, limit=PAGE)
        found, _ = list_all(self.objects(EVENT), options)
        wanted = (event for event in found.items if kind is None or event.involved_object.kind.lower() == kind.lower())
        return ObjectList(tuple(wanted), found.resource_version)

    def get(self, namespace: str, name: str) -> Event:
        """One event by its name. Raises: NotFound."""
        return self.objects(EVENT).get(name, namespace)

    def delete(self, namespace: str, name: str) -> None:
        """Delete one event. Raises: NotFound."""
        self.objects(EVENT).delete(name, namespace)

    def close(self) -> None:
        """Close the connections; watches end by themselves."""
        self.connection.close()
        while self._others:
            self._others.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
