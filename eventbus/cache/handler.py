"""Calls the functions of one handler for the objects that pass its filter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Generic, TypeVar, assert_never

import msgspec

from eventbus.cache.deltas import DeletedFinalStateUnknown
from eventbus.cache.notifications import Added, Deleted, Notification, Updated
from eventbus.errors import ConfigError
from eventbus.model.list_watch import HasMetadata

T = TypeVar("T", bound=HasMetadata)


class EventHandler(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The functions of one handler; one that is None is not called.

    *filter* selects objects: one that begins to pass calls *on_add*, one that ceases to pass *on_delete*.
    Source: client-go's ResourceEventHandler and FilteringResourceEventHandler. Departure: *on_delete* depends on the
            state that the handler has got, not on the last one, so that it is called iff *on_add* was.
    """

    on_add: Callable[[T, bool], object] | None = None  #: object, whether it was there before the handler
    on_update: Callable[[T, T], object] | None = None  #: old, new
    on_delete: Callable[[T | DeletedFinalStateUnknown[T]], object] | None = None
    filter: Callable[[T], bool] | None = None

    def __post_init__(self) -> None:
        """Raise if a function could not be called by a thread. Raises: ConfigError."""
        for name in self.__struct_fields__:
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ConfigError(f"{name} must be callable; a {type(function).__name__} is not")
            if any(_is_async(each) for each in (function, type(function).__call__)):
                cure = "give a plain function; in an event loop: async for change in eventbus.aio.watch(reader)"
                raise ConfigError(f"{name} is `async def`, and would never run: {cure}")

    def handle(self, notification: Notification[T]) -> None:
        """Call the function for *notification*. Raises: any error of it."""
        match notification:
            case Added(found, initial):
                if self._passes(found):
                    self._add(found, initial)
            case Updated(old, new):
                self._update(old, new)
            case Deleted(found, held):
                # By the last state it has got: an object may begin or cease to pass with its last change.
                if self._passes(held):
                    self._delete(found)
            case _:
                assert_never(notification)

    def _update(self, old: T, new: T) -> None:
        match self._passes(old), self._passes(new):
            case True, True:
                if self.on_update is not None:
                    self.on_update(old, new)
            case False, True:
                self._add(new, False)
            case True, False:
                self._delete(old)

    def _add(self, found: T, initial: bool) -> None:
        if self.on_add is not None:
            self.on_add(found, initial)

    def _delete(self, found: T | DeletedFinalStateUnknown[T]) -> None:
        if self.on_delete is not None:
            self.on_delete(found)

    def _passes(self, found: T) -> bool:
        return self.filter is None or self.filter(found)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
