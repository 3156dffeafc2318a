"""Formats durations and times as kubectl does (`3m27s`, `<unknown>`, RFC 1123), and parses those that people type."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

UNKNOWN: Final = "<unknown>"
INVALID: Final = "<invalid>"

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


def human_duration(seconds: float) -> str:
    """Format *seconds* in two units at most, the coarser the longer, without rounding.

    Returns: `<invalid>` for whole seconds below -1; -1 is still `0s`, because clocks differ a little.
    Source:  apimachinery `pkg/util/duration` HumanDuration, which drops fractions towards zero first.
    """
    whole = int(seconds)
    if whole < -1:
        return INVALID
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _in_two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _in_two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _in_two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _in_two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def age(now: datetime, then: datetime | None) -> str:
    """Format how long before *now* it was; both aware. `<unknown>` if *then* is None."""
    return UNKNOWN if then is None else human_duration((now - then).total_seconds())


def _in_two(whole: int, large: int, large_sign: str, small: int, small_sign: str) -> str:
    rest = whole % large // small
    return f"{whole // large}{large_sign}" + (f"{rest}{small_sign}" if rest else "")


def local_time(time: datetime) -> str:
    """Format as `Mon, 02 Jan 2006 15:04:05 -0700`; TZ says which zone. *time*: aware."""
    from email.utils import format_datetime  # it takes long to import, and few commands print a date

    return format_datetime(time.astimezone())


_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> timedelta:
    """Parse `90s`, `10m`, `1h30m`, `2d`. Raises: ValueError."""
    parts = _PARTS.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration like 90s, 10m, 1h30m or 2d")
    try:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError:
        raise ValueError(f"{text!r} is too long for a duration") from None


def parse_instant(text: str) -> datetime:
    """Parse RFC 3339 with a zone, as `2024-01-01T12:00:00Z`. Returns it in UTC. Raises: ValueError."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and "T" in text.upper():
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{text!r} is not a time with its zone like 2024-01-01T12:00:00Z")


def parse_since(text: str, now: datetime | None = None) -> datetime:
    """Parse a duration before *now* (`10m`), or a time as `parse_instant` does. Raises: ValueError."""
    try:
        return (now or datetime.now(UTC)) - parse_duration(text)
    except OverflowError:
        raise ValueError(f"{text!r} ago is before year 1") from None
    except ValueError:
        pass
    try:
        return parse_instant(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a duration like 10m nor a time like 2024-01-01T12:00:00Z") from None
