"""Reads the query of a request, or refuses it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from aiohttp import web

from eventbus.api import status

_AGO = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def instant_of(request: web.Request, name: str) -> datetime | None:
    """An RFC 3339 time, or how long ago it was, as 90s, 15m, 6h; None: it is not given. Raises: ApiError: 400."""
    text = request.query.get(name, "")
    if not text:
        return None
    if ago := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(seconds=min(int(ago[1]) * _UNITS_S[ago[2]], 10**9))
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))  # a + that was not escaped
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise status.bad_request(f"{name}: {text[:80]!a} is no time: give 2026-01-02T15:04:05Z, or 15m for how long ago")


def seconds_of(request: web.Request, name: str, default: int, most: int) -> int:
    """A duration, as 90s, 15m, 6h, 2d. Raises: ApiError: 400."""
    text = request.query.get(name, "")
    if not text:
        return default
    found = _AGO.fullmatch(text)
    if found is None or int(found[1]) * _UNITS_S[found[2]] > most:
        raise status.bad_request(f"{name}: {text[:80]!a} is no duration like 90s, 15m, 6h, of {most} s at the most")
    return int(found[1]) * _UNITS_S[found[2]]


def whole_number_of(request: web.Request, name: str, default: int, most: int) -> int:
    """A number of at least 1. Raises: ApiError: 400."""
    text = request.query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:12]) <= most):
        raise status.bad_request(f"{name}: {text[:80]!a} is no number from 1 to {most}")
    return int(text)
