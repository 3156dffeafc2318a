"""kubectl's ages; the rows are the borders of its rule, written by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from eventbus.util.human_duration import age, human_duration

MINUTE, HOUR, DAY = 60, 3_600, 86_400
YEAR = 365 * DAY


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-86_400, "<invalid>"),
        (-2, "<invalid>"),
        (-1, "0s"),
        (-0.5, "0s"),
        (0, "0s"),
        (0.999, "0s"),
        (1, "1s"),
        (60, "60s"),
        (119, "119s"),
        (119.999, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (207, "3m27s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE, "10m"),
        (11 * MINUTE + 59, "11m"),
        (HOUR, "60m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 59, "3h"),
        (3 * HOUR + MINUTE, "3h1m"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR, "8h"),
        (8 * HOUR + 30 * MINUTE, "8h"),
        (DAY, "24h"),
        (48 * HOUR - 1, "47h"),
        (48 * HOUR, "2d"),
        (49 * HOUR, "2d1h"),
        (2 * DAY + 59 * MINUTE, "2d"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY, "8d"),
        (8 * DAY + 23 * HOUR, "8d"),
        (YEAR, "365d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (8 * YEAR - 1, "7y364d"),
        (8 * YEAR, "8y"),
        (8 * YEAR + 364 * DAY, "8y"),
        (100 * YEAR, "100y"),
    ],
)
def test_a_duration_is_said_as_kubectl_says_it(seconds: float, said: str) -> None:
    assert human_duration(seconds) == said


def test_an_age_is_counted_between_moments_whatever_their_time_zones() -> None:
    now = datetime(2024, 3, 1, 12, 0, 0, tzinfo=UTC)
    then = (now - timedelta(minutes=3, seconds=27)).astimezone(timezone(timedelta(hours=-9)))
    assert age(now, then) == "3m27s"


def test_a_moment_that_is_missing_has_an_unknown_age() -> None:
    assert age(datetime(2024, 3, 1, tzinfo=UTC), None) == "<unknown>"
