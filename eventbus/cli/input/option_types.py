"""Parses the values of options: durations, times and finite numbers."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

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
        raise ValueError(f"{text!r} is longer than time itself") from None


def parse_instant(text: str) -> datetime:
    """Parse RFC 3339 with a zone, as `2024-01-01T12:00:00Z`. Returns it in UTC. Raises: ValueError."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and "T" in text.upper():
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{text!r} is not a time with its zone like 2024-01-01T12:00:00Z")


def seconds_option(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """Parse an option that is a duration, into seconds: a callback for click."""
    try:
        return None if text is None else parse_duration(text).total_seconds()
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def instant_option(_ctx: click.Context, _param: click.Parameter, text: str | None) -> datetime | None:
    """Parse an option that is a point in time: a callback for click."""
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def since_option(_ctx: click.Context, _param: click.Parameter, text: str | None) -> datetime | None:
    """Parse an option that is a duration before now, or a point in time: a callback for click."""
    try:
        return None if text is None else datetime.now(UTC) - parse_duration(text)
    except OverflowError:
        raise click.BadParameter(f"{text!r} ago is before year 1") from None
    except ValueError:
        pass
    try:
        return parse_instant(text or "")
    except ValueError:
        problem = f"{text!r} is neither a duration like 10m nor a time like 2024-01-01T12:00:00Z"
        raise click.BadParameter(problem) from None


class Finite(click.FloatRange):
    """A `click.FloatRange` that refuses `inf` and `nan`, which passes every range check."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the number. Fails as click does if it is not a number, out of range, or not finite."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number that can be counted to.", param, ctx)
        return number
