"""The store of a bus through an API worker, with the methods of `ObjectStore`: its objects by kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace as replaced

from eventbus.client.address import ApiAddress
from eventbus.client.connection import ApiConnection
from eventbus.client.watch import RemoteWatch
from eventbus.errors import BusUnavailable, Conflict, InvalidEvent, InvalidObject
from eventbus.model.decodable import decodable
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT, Kind
from eventbus.model.list_watch import HasMetadata, ListOptions, ObjectList, list_all
from eventbus.model.selectors import escape_value

T = TypeVar("T", bound=HasMetadata)

#: Attempts to repeat a write after a conflict, as over Redis.
ATTEMPTS: Final = 10
_JSON: Final = {"Content-Type": "application/json"}
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
#: Objects a page of a list.
PAGE: Final = 500


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


class _ListMeta(msgspec.Struct, frozen=True, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    """The metadata of a list."""

    resource_version: str = ""
    continue_: str = ""


class _ListBody(msgspec.Struct, frozen=True):
    """A list as received. Go encodes an empty one as null."""

    metadata: _ListMeta
    items: list[dict[str, Any]] | None = None


class RemoteObjects(Generic[T]):
    """As `eventbus.store.writer.ObjectWriter`, over HTTP; implements `model.list_watch.ListerWatcher`. One thread.

    Raises: BusUnavailable: a write may or may not have been done: read the object to find out. *retry_after_s* says
            when to retry.  BusRefused: the user may not.
    """

    def __init__(self, address: ApiAddress, connection: ApiConnection, kind: Kind[T]) -> None:
        self.kind = kind
        self._address = address
        self._connection = connection

    def get(self, name: str, namespace: str = "") -> T:
        """One object, as it is now. Raises: NotFound."""
        return self._read(self._connection.call("GET", self._path(namespace, name)))

    def list(self, options: ListOptions | None = None) -> ObjectList[T]:
        """One page: see `ListerWatcher.list`."""
        options = options or ListOptions()
        reply = self._connection.call("GET", self._path(options.namespace) + _query(_list_query(options)))
        try:
            found = _LIST(reply)
            items = tuple(self.kind.decode(one) for one in found.items or ())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidEvent, InvalidObject) as error:
            raise self._unreadable(error) from None
        return ObjectList(items, found.metadata.resource_version, found.metadata.continue_)

    def watch(self, options: ListOptions | None = None) -> RemoteWatch[T]:
        """See `ListerWatcher.watch`. It has a connection of its own."""
        options = options or ListOptions()
        path = self._path(options.namespace) + _query(_watch_query(options))
        return RemoteWatch(
            connection=ApiConnection(self._address), path=path, kind=self.kind, bookmarks=options.allow_bookmarks
        )

    def create(self, found: T) -> T:
        """Store a new object. Raises: AlreadyExists, InvalidObject."""
        return self._write("POST", self._path(found.metadata.namespace), found)

    def update(self, found: T) -> T:
        """Replace an object, but for the status of a kind that has one. Raises: NotFound, Conflict."""
        return self._write("PUT", self._path(found.metadata.namespace, found.metadata.name), found)

    def update_status(self, found: T) -> T:
        """Replace the status of an object, and nothing else. Raises: as `update`."""
        return self._write("PUT", self._path(found.metadata.namespace, found.metadata.name, "status"), found)

    def patch(self, name: str, patch: Mapping[str, Any], namespace: str = "", *, status: bool = False) -> T:
        """Apply a JSON merge patch; lists are replaced whole. Raises: NotFound, Conflict, InvalidObject."""
        path = self._path(namespace, name, "status" if status else "")
        return self._read(self._connection.call("PATCH", path, body=_ENCODE(patch), headers=_MERGE))

    def replace(self, former: T, new: T) -> T:
        """Replace *former*, as last read or written, by *new*. Raises: NotFound, Conflict."""
        made: Any = new
        version = former.metadata.resource_version
        return self.update(replaced(made, metadata=replaced(made.metadata, resource_version=version)))

    def modify(
        self, name: str, change: Callable[[T], T], namespace: str = "", *, version: str = "", uid: str = ""
    ) -> T:
        """Replace an object by the result of *change*: its metadata, and its status or its spec.

        *change* is called again if another client wrote meanwhile.

        Raises: NotFound.  Conflict: it does not have *version*, or not *uid*.
        """
        for attempt in range(ATTEMPTS):
            former = self.get(name, namespace)
            held = former.metadata
            if (uid and uid != held.uid) or (version and version != held.resource_version):
                raise Conflict(f'{self.kind.resource} "{name}" has another uid than the one given')
            new = change(former)
            if new == former:
                return former
            told = self.kind.has_status and getattr(new, "status", None) != getattr(former, "status", None)
            try:
                return self.update_status(new) if told else self.update(new)
            except Conflict:
                if version or attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def delete(self, name: str, namespace: str = "", *, version: str = "", grace_s: int | None = None) -> None:
        """Delete an object. Raises: NotFound.  Conflict: it does not have *version*.

        Args: grace_s: how long a Pod has to end; None: as its spec says; 0: at once.
        """
        options: dict[str, Any] = {}
        if version:
            options["preconditions"] = {"resourceVersion": version}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        body = _ENCODE({"kind": "DeleteOptions", "apiVersion": "v1"} | options) if options else None
        self._connection.call("DELETE", self._path(namespace, name), body=body, headers=_JSON if body else None)

    def _write(self, method: str, path: str, found: T) -> T:
        return self._read(self._connection.call(method, path, body=_ENCODE(self.kind.encode(found)), headers=_JSON))

    def _read(self, body: bytes) -> T:
        try:
            return self.kind.decode(_OBJECT(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidEvent, InvalidObject) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> BusUnavailable:
        return BusUnavailable(f"{self._address} did not answer with a {self.kind.name}: {error}")

    def _path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        version = self.kind.api_version
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if namespace and self.kind.namespaced:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.kind.plural}"
        return path + "".join(f"/{quote(part, safe='')}" for part in (name, subresource) if part)


def _list_query(options: ListOptions) -> dict[str, str]:
    """The query of a list."""
    query = _selectors(options) | {"resourceVersion": options.resource_version, "continue": options.continue_}
    if options.version_match:
        query["resourceVersionMatch"] = str(options.version_match)
    if options.limit:
        query["limit"] = str(options.limit)
    return query


def _watch_query(options: ListOptions) -> dict[str, str]:
    """The query of a watch."""
    query = _selectors(options) | {"watch": "true", "resourceVersion": options.resource_version}
    if options.timeout_s is not None:
        query["timeoutSeconds"] = str(max(1, math.ceil(options.timeout_s)))
    if options.allow_bookmarks:
        query["allowWatchBookmarks"] = "true"
    if options.send_initial_events is not None:
        sends = "true" if options.send_initial_events else "false"
        query |= {"sendInitialEvents": sends, "resourceVersionMatch": str(options.version_match)}
    return query


def _selectors(options: ListOptions) -> dict[str, str]:
    return {"labelSelector": options.label_selector, "fieldSelector": options.field_selector}


def _query(fields: Mapping[str, str]) -> str:
    given = {name: value for name, value in fields.items() if value}
    return f"?{urlencode(given)}" if given else ""


_ENCODE: Final = msgspec.json.Encoder().encode
_LIST: Final = msgspec.json.Decoder(decodable(_ListBody)).decode
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any]).decode
