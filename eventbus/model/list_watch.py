"""The contract between stores of objects and their mirrors: list, then watch from the list's version.

Values, protocols, and a list of all pages. The store implements them, `eventbus.cache` reads through them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Generic, Protocol, Self, TypeVar

import msgspec

from eventbus.errors import EventBusError, Expired
from eventbus.model.event import ObjectMeta


class HasMetadata(Protocol):
    """Any frozen value with metadata: an object that can be stored, listed and watched."""

    @property
    def metadata(self) -> ObjectMeta:
        """Return namespace, name, resource version, labels."""
        ...


T = TypeVar("T", bound=HasMetadata)


class VersionMatch(StrEnum):
    """The meaning of a list's resource version."""

    UNSET = ""  #: not older than it
    NOT_OLDER_THAN = "NotOlderThan"
    EXACT = "Exact"


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a list or watch. Change them with `msgspec.structs.replace`.

    *resource_version* of a list: "" the newest, "0" any, else not older than it (or exactly it, by *version_match*).
    Of a watch: every change after it; "" or "0": first ADDED for all objects. *send_initial_events* of a watch requires
    the match NOT_OLDER_THAN. True: the ADDED events come first for every version, then a bookmark, if allowed.
    False: they do not come, and "" or "0" means every change from now on.
    """

    namespace: str = ""  #: "" is every namespace
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    version_match: VersionMatch = VersionMatch.UNSET
    limit: int = 0  #: objects in a page of a list; 0 is all
    continue_: str = ""  #: from the page before
    timeout_s: float | None = None  #: a watch ends by itself after so long
    allow_bookmarks: bool = False
    send_initial_events: bool | None = None


class ObjectList(msgspec.Struct, Generic[T], frozen=True):
    """A page of objects, the version to watch from, and the token of the next page ("" on the last).

    *remaining*: the number of objects after this page, if it was easy to count.
    """

    items: tuple[T, ...]
    resource_version: str
    continue_: str = ""
    remaining: int | None = None


class WatchEventType(StrEnum):
    """The type of a watch's event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One event of a watch.

    *object* is set iff the type is ADDED, MODIFIED or DELETED (then the last state, with the deletion's version);
    *error* iff it is ERROR. *position* is the version from which a watch continues after this event; "" means the
    object's own, which a store of several partitions cannot use. *initial_events_end*: this bookmark ends the initial
    events.
    """

    type: WatchEventType
    object: T | None = None
    position: str = ""
    error: EventBusError | None = None
    initial_events_end: bool = False

    @classmethod
    def bookmark(cls, position: str) -> Self:
        """Make a bookmark: nothing happened up to *position*."""
        return cls(WatchEventType.BOOKMARK, position=position)

    @classmethod
    def failed(cls, error: EventBusError) -> Self:
        """Make the last event of a watch that cannot go on."""
        return cls(WatchEventType.ERROR, error=error)

    @property
    def resource_version(self) -> str:
        """Return where to go on from: *position*, else the object's version."""
        return self.position or (self.object.metadata.resource_version if self.object is not None else "")


class Watch(Protocol[T]):
    """Changes as they come, in order for each object. Read by one thread."""

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        """Yield events as they arrive; blocks. Ends after `stop`, after the timeout, or when the connection is lost.

        Raises: Expired: changes were lost; list again. An ERROR event means the same.
        """
        ...

    def stop(self) -> None:
        """End the iteration soon, from any thread, also while it blocks. Again: no effect."""
        ...


class ListerWatcher(Protocol[T]):
    """A source from which the objects of one kind are read."""

    def list(self, options: ListOptions) -> ObjectList[T]:
        """Read one page. Returns within bounded time.

        Raises: Expired: the asked version, or the page's continuation, is gone. BusUnavailable: call again.
                InvalidSelector: fix the caller.
        """
        ...

    def watch(self, options: ListOptions) -> Watch[T]:
        """Watch all changes after *options.resource_version* until the caller stops the watch.

        Raises: as `list`.
        """
        ...


def is_older(version: str, than: str) -> bool:
    """Return True if *version* of an object is smaller than *than*; False if either is not a number."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def list_all(source: ListerWatcher[T], options: ListOptions) -> tuple[ObjectList[T], bool]:
    """Return all pages as one list, and whether there was more than one page."""
    page = source.list(options)
    if not page.continue_:
        return page, False
    version, items = page.resource_version, list(page.items)
    while page.continue_:
        try:
            page = source.list(msgspec.structs.replace(options, resource_version="", continue_=page.continue_))
        except Expired:
            return source.list(msgspec.structs.replace(options, limit=0)), True
        items += page.items
    return ObjectList(tuple(items), version), True
