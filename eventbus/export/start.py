"""Decides where an export to a new sink starts. A sink that has a position always continues from there."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from eventbus.errors import ConfigError
from eventbus.export.sinks.contract import SinkMode
from eventbus.model.event import Event
from eventbus.util.clock import Clock

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Start(msgspec.Struct, frozen=True):
    """The start of a new export.

    *listed*: it starts with the stored events; with *since*, only with those last seen at that time or later."""

    listed: bool = True
    since: datetime | None = None

    def takes(self, event: Event) -> bool:
        """Return True if the event, found in the store at the beginning, is exported."""
        return self.since is None or (event.last_seen is not None and event.last_seen >= self.since)


NOW, BEGINNING = Start(listed=False), Start()


def start_of(mode: SinkMode) -> str:
    """Return the default start of a new export.

    Appending sinks, which pass on each event to people or programs, start now, because all past events would be a
    flood. Upserting sinks, which keep one row for each event, start with all stored events.
    """
    return "beginning" if mode is SinkMode.UPSERT else "now"


def parse_start(text: str, clock: Clock) -> Start:
    """Parse `now`, `beginning`, an RFC 3339 time with its zone, or how long ago (`90s`, `10m`, `2h`, `1d`).

    Raises: ConfigError.
    """
    if text in ("now", "beginning"):
        return NOW if text == "now" else BEGINNING
    try:
        if found := re.fullmatch(r"(\d{1,6})([smhd])", text):
            now = datetime.fromtimestamp(clock.time_ns() / 1e9, UTC)
            return Start(since=now - timedelta(**{_UNITS[found[2]]: int(found[1])}))
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return Start(since=moment.astimezone(UTC))
    except ValueError:
        pass
    except OverflowError:
        raise ConfigError(f"start {text!r} is before the year 1: give beginning") from None
    raise ConfigError(f"start {text!r}: give now, beginning, 2024-01-31T12:00:00Z, or how long ago, like 10m")
