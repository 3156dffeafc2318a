"""Calls a program's handler with each event, and defines the watcher that it gets back."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Protocol

from eventbus.errors import ConfigError
from eventbus.model.event import Event
from eventbus.util.log import log
from eventbus.util.text import printable

Handler = Callable[[Event], object]

#: A handler that raises is called so often for one event.
TRIES = 3
_TRIES_LEFT = tuple(reversed(range(TRIES)))  # made once, and not for each event


class Watcher(Protocol):
    """The handle that `start_event_watcher` returns."""

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop after the event that is being handled, and wait for that; 0: do not wait. Idempotent."""
        ...


def check_handler(handler: object, name: str = "the handler", arguments: str = "an event") -> None:
    """Raise unless *handler* can be called with an event. Raises: ConfigError: with the cure."""
    if not callable(handler):
        raise ConfigError(f"{name} must be callable with {arguments}; a {type(handler).__name__} is not")
    if any(_is_async(each) for each in (handler, type(handler).__call__)):
        cure = "give a plain function; in an event loop: async for event in eventbus.aio.raw_events(broadcaster)"
        raise ConfigError(f"{name} is `async def`, and would never run: {cure}")


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def call_handler(handler: Handler, event: Event) -> bool:
    """Call *handler*, up to three times. False: it raised every time, which has been logged with the uid.

    Raises: SystemExit: the handler did, or KeyboardInterrupt, which is logged. Its watcher stops and ends this thread.
    """
    for tries_left in _TRIES_LEFT:
        try:
            handler(event)
            return True
        except (SystemExit, KeyboardInterrupt) as end:
            log.error("handler raised %r for event %s: its watcher stops", end, _name(event), exc_info=True)
            raise SystemExit from end
        except BaseException:  # also a cancelled task or a closed generator, which would end the thread without a line
            if not tries_left:
                log.exception("handler failed %d times for event %s", TRIES, _name(event))
    return False


def _name(event: Event) -> str:
    return printable(event.metadata.uid or event.metadata.name)
