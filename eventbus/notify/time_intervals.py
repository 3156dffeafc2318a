"""Times at which routes are muted or active, in Alertmanager's words.

Source: alertmanager `timeinterval/timeinterval.go`.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import ClassVar, Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from eventbus.notify.fields import Strict

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS: Final = tuple(calendar.month_name)[1:]
#: A border that is further away is looked for again.
_LOOK_DAYS: Final = 8


class MinuteOfDay(int):
    """A time of day, 00:00 to 24:00, in minutes."""

    @classmethod
    def parse_field(cls, text: str) -> Self:
        """Raises: ValueError."""
        hours, colon, minutes = text.partition(":")
        if not (colon and len(hours) == len(minutes) == 2 and (hours + minutes).isdecimal() and text.isascii()):
            raise ValueError(f"{text!r} is no time of day: write it as 08:30")
        found = int(hours) * 60 + int(minutes)
        if int(minutes) > 59 or found > 1440:
            raise ValueError(f"{text!r} is not between 00:00 and 24:00")
        return cls(found)


class Span:
    """A range `first:last` of one of the kinds below, both included."""

    least: ClassVar[int]
    most: ClassVar[int]
    names: ClassVar[Sequence[str]] = ()
    numbers: ClassVar[bool] = True

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last

    @classmethod
    def parse_field(cls, text: str) -> Self:
        """Raises: ValueError."""
        first, _, last = text.strip().partition(":")
        found = cls(cls._number(first), cls._number(last or first))
        if 0 in (found.first, found.last) and cls.least < 0:
            raise ValueError("days of a month begin at 1")
        if found.first > found.last and (found.first < 0) is (found.last < 0):
            raise ValueError(f"{text!r} ends before it begins")
        return found

    @classmethod
    def _number(cls, text: str) -> int:
        word = text.strip().lower()
        names = [name.lower() for name in cls.names]
        if word in names:
            return names.index(word) + cls.least
        if cls.numbers and re.fullmatch(r"-?\d{1,4}", word, re.ASCII) and cls.least <= int(word) <= cls.most:
            return int(word)
        allowed = ", ".join(names) if names else f"{cls.least} to {cls.most}"
        form = f", or a range as {names[0]}:{names[4]}" if names else ""
        raise ValueError(f"{text!r} must be one of {allowed}{form}")


class Weekdays(Span):
    """`monday:friday`."""

    least, most, names, numbers = 0, 6, _DAYS, False


class DaysOfMonth(Span):
    """`1:15`, or `-3:-1` from the end of the month."""

    least, most = -31, 31


class Months(Span):
    """`january:march`, or numbers."""

    least, most, names = 1, 12, _MONTHS


class Years(Span):
    """`2026:2028`."""

    least, most = 1970, 9999


class TimeRange(Strict, frozen=True, kw_only=True):
    """A part of a day. A range over midnight is two."""

    start_time: MinuteOfDay
    end_time: MinuteOfDay

    def __post_init__(self) -> None:
        if self.start_time >= self.end_time:
            raise ValueError("start_time must be before end_time; write a range over midnight as two")


class Location:
    """A time zone by its name, as Europe/Berlin. `Local` is the machine's."""

    def __init__(self, name: str, zone: tzinfo | None) -> None:
        self.name = name
        self.zone = zone

    @classmethod
    def parse_field(cls, text: str) -> Self:
        """Raises: ValueError."""
        if text == "Local":
            return cls(text, None)
        try:
            return cls(text, ZoneInfo(text))
        except (ZoneInfoNotFoundError, OSError, ValueError):
            raise ValueError(f"{text!r} is no time zone that this machine knows: write it as Europe/Berlin") from None


class TimeInterval(Strict, frozen=True, kw_only=True):
    """Times that fulfil all of the given fields; of each field, one of its ranges."""

    times: tuple[TimeRange, ...] = ()
    weekdays: tuple[Weekdays, ...] = ()
    days_of_month: tuple[DaysOfMonth, ...] = ()
    months: tuple[Months, ...] = ()
    years: tuple[Years, ...] = ()
    location: Location = Location("UTC", UTC)

    def contains(self, at: datetime) -> bool:
        """Return True if *at*, an aware time, is in the interval."""
        local = at.astimezone(self.location.zone)
        minute = local.hour * 60 + local.minute
        in_day = not self.times or any(each.start_time <= minute < each.end_time for each in self.times)
        return in_day and self._contains_day(local.date())

    def borders(self, after: datetime) -> list[datetime]:
        """Return the times after *after* at which `contains` may change, of the next days."""
        local = after.astimezone(self.location.zone)
        minutes = sorted({0, *(minute for each in self.times for minute in (each.start_time, each.end_time))})
        found = []
        for days in range(_LOOK_DAYS):
            day = local.date() + timedelta(days=days)
            for minute in minutes:
                wall = datetime(day.year, day.month, day.day) + timedelta(minutes=minute)
                zoned = wall.replace(tzinfo=self.location.zone) if self.location.zone else wall.astimezone()
                found.append(zoned.astimezone(UTC))
        return [border for border in found if border > after]

    def _contains_day(self, day: date) -> bool:
        length = calendar.monthrange(day.year, day.month)[1]
        return (
            (not self.weekdays or any(each.first <= day.weekday() <= each.last for each in self.weekdays))
            and (not self.months or any(each.first <= day.month <= each.last for each in self.months))
            and (not self.years or any(each.first <= day.year <= each.last for each in self.years))
            and (not self.days_of_month or any(_in_month(each, day.day, length) for each in self.days_of_month))
        )


class NamedTimes(Strict, frozen=True, kw_only=True):
    """One entry of `time_intervals`."""

    name: str
    time_intervals: tuple[TimeInterval, ...]

    def contains(self, at: datetime) -> bool:
        """Return True if *at* is in one of the intervals."""
        return any(each.contains(at) for each in self.time_intervals)


def next_border(named: Sequence[NamedTimes], after: datetime) -> datetime:
    """Return the next time after *after* at which one of *named* begins or ends; a week later if none does before."""
    borders = sorted({border for each in named for one in each.time_intervals for border in one.borders(after)})
    states = [each.contains(after) for each in named]
    for border in borders:
        if [each.contains(border) for each in named] != states:
            return border
    return after + timedelta(days=_LOOK_DAYS - 1)


def _in_month(span: DaysOfMonth, day: int, length: int) -> bool:
    first = span.first if span.first > 0 else length + span.first + 1
    last = span.last if span.last > 0 else length + span.last + 1
    return max(first, 1) <= day <= min(last, length)
