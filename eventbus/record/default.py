"""The usual wiring in one call, for programs that want to record and nothing else."""

from __future__ import annotations

import logging
import os
import threading

from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.recorder import EventRecorder, EventsRecorder
from eventbus.settings import Settings
from eventbus.util.log import log

_lock = threading.Lock()
_broadcaster: EventBroadcaster | None = None
_recorders: dict[str, EventRecorder] = {}
_events_recorders: dict[str, EventsRecorder] = {}


def make_event_recorder(component: str) -> EventRecorder:
    """Make a recorder for *component*, wired as usual: events are logged here, and published if a bus is configured.

    Idempotent: one broadcaster a process, one recorder a component. A bus is configured by EVENTBUS_URL or
    EVENTBUS_REDIS_URL; without them the embedded server is used; with `none` events are only logged, which one warning
    says. Never raises for Redis: if the bus cannot be reached, that is logged, and the events are sent later.

    Raises: ConfigError: an EVENTBUS_ variable has an impossible value; the message names it.
    """
    with _lock:
        if component not in _recorders:
            _recorders[component] = _usual_broadcaster().new_recorder(component)
        return _recorders[component]


def make_events_recorder(controller: str) -> EventsRecorder:
    """Make a recorder of events.k8s.io for *controller*: equal events form series. Wired as `make_event_recorder`.

    Raises: ConfigError: as there, or *controller* is no name like `example.com/controller`.
    """
    with _lock:
        if controller not in _events_recorders:
            _events_recorders[controller] = _usual_broadcaster().new_events_recorder(controller)
        return _events_recorders[controller]


def _usual_broadcaster() -> EventBroadcaster:
    global _broadcaster
    if _broadcaster is None:
        settings = Settings.from_environ(os.environ)
        _broadcaster = EventBroadcaster(settings=settings)
        _broadcaster.start_logging(logging.getLogger("eventbus.events").info)
        if settings.redis_url.lower() == "none" and not settings.url:
            log.warning("EVENTBUS_REDIS_URL=none: events are logged in this process and go nowhere else")
    return _broadcaster


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
