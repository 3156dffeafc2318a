"""Durations and times as they are typed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from eventbus.cli.input.options import since_option
from eventbus.util.human_duration import parse_duration, parse_instant


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("1.5h", 5400), ("250ms", 0.25), ("0s", 0)],
)
def test_a_duration_is_the_sum_of_its_parts(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "10 m", "10m ", "1y", "1h-1m", "ten minutes", "9" * 400 + "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-01-01T12:00:00Z", datetime(2024, 1, 1, 12, tzinfo=UTC)),
        ("2024-01-01T12:00:00+02:00", datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("2024-01-01T12:00:00.25Z", datetime(2024, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_with_its_zone(text: str, moment: datetime) -> None:
    assert parse_instant(text) == moment


@pytest.mark.parametrize("text", ["2024-01-01", "2024-01-01T12:00:00", "noon", "2024-13-01T00:00:00Z", "20240101"])
def test_a_time_without_a_zone_or_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="zone"):
        parse_instant(text)


def test_since_takes_a_duration_and_a_time_and_nothing_else() -> None:
    context, option = click.Context(click.Command("x")), click.Option(["--since"])
    before = datetime.now(UTC)
    ago = since_option(context, option, "10m")
    assert ago is not None
    assert before <= ago + timedelta(minutes=10) <= datetime.now(UTC)
    assert since_option(context, option, "2024-01-01T00:00:00Z") == datetime(2024, 1, 1, tzinfo=UTC)
    assert since_option(context, option, None) is None
    for nonsense in ("yesterday", "9999999999d", ""):
        with pytest.raises(click.BadParameter):
            since_option(context, option, nonsense)
