"""Reads the query of a request, or refuses it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.model.decodable import decodable

T = TypeVar("T")
#: Times and durations of a query, which `read_instant` and `read_seconds` read.
InstantText = Annotated[str, msgspec.Meta(description="RFC 3339, or how long ago: 15m")]
DurationText = Annotated[str, msgspec.Meta(description="90s, 15m, 6h or 2d")]

_AGO = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def read_query(request: web.Request, shape: type[T]) -> T:
    """Read the query as a struct. Other parameters are ignored; of a repeated one, the first counts.

    Raises: ApiError: 400.
    """
    query = {name: request.query[name] for name in request.query}
    try:
        return msgspec.convert(query, decodable(shape), strict=False)
    except msgspec.ValidationError as error:
        raise status.bad_request(f"query: {error}") from None


def read_instant(name: str, text: str) -> datetime | None:
    """Read an RFC 3339 time, or how long ago it was, as 90s, 15m, 6h; None: "". Raises: ApiError: 400."""
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


def read_seconds(name: str, text: str, default: int, most: int) -> int:
    """Read a duration, as 90s, 15m, 6h, 2d. Raises: ApiError: 400."""
    if not text:
        return default
    found = _AGO.fullmatch(text)
    if found is None or int(found[1]) * _UNITS_S[found[2]] > most:
        raise status.bad_request(f"{name}: {text[:80]!a} is no duration like 90s, 15m, 6h, of {most} s at the most")
    return int(found[1]) * _UNITS_S[found[2]]
