"""Reads when an event first happened."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from eventbus.event import Event

_NEVER: Final = datetime.fromtimestamp(0, UTC)


def first_seen(event: Event) -> datetime:
    """Return when it happened first; the epoch's beginning where nothing says so."""
    return event.first_timestamp or event.event_time or event.last_seen or _NEVER
