"""The sinks on the page of `status`: what each does, in words, within 100 columns, nothing from outside unescaped."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventbus.broker.health.export_status import SinkPart, SinkStatus
from eventbus.cli.printers.status_table import format_sinks, sink_state

NOW_MS = 1_700_000_000_000
_COUNTERS = dict.fromkeys(
    [
        *("position", "lag", "pending", "retrying", "paused_since_ms", "written_ms", "error_ms", "written"),
        *("held_back", "retries", "probes", "dead", "lists", "waiting"),
    ],
    0,
)


def part(number: int) -> SinkPart:
    return SinkPart(partition=number, holder="host-1-a", seen_s=0.5, behind_s=0.0, error="", **_COUNTERS)


def sink(**fields: Any) -> SinkStatus:
    plain: dict[str, Any] = dict.fromkeys(SinkStatus.__struct_fields__, 0) | {"behind_s": 0.0, "error": ""}
    plain |= {"name": "postgresql-1a2b3c", "mode": "upsert", "holders": ("host-1-a",), "orphans": ()}
    return SinkStatus(**(plain | {"parts": (part(0), part(1))} | fields))


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "idle"),
        ({"lag": 3}, "writing"),
        ({"lag": 3, "retrying": 1}, "retrying"),
        ({"lag": 3, "paused_since_ms": NOW_MS - 600_000}, "paused 10m"),
        ({"orphans": (0, 1)}, "no worker"),
        ({"orphans": (1,)}, "1 without worker"),
        ({"orphans": (0, 1), "paused_since_ms": NOW_MS - 5_000}, "paused 5s, no worker"),
    ],
)
def test_the_state_says_why_nothing_moves(fields: dict[str, Any], state: str) -> None:
    assert sink_state(sink(**fields), NOW_MS) == state


def test_a_busy_sink_fits_into_100_columns() -> None:
    numbers: dict[str, Any] = dict.fromkeys(("lag", "held_back", "written"), 98_765_432)
    text = format_sinks([sink(behind_s=86_400.0, pending=500, retries=12_345, dead=12_345, **numbers)], now_ms=NOW_MS)
    assert max(map(len, text.splitlines())) <= 100


def test_the_last_error_is_told_with_its_age_and_without_control_characters() -> None:
    text = format_sinks([sink(error="refused\x1b[2J\nby host", error_ms=NOW_MS - 61_000)], now_ms=NOW_MS)
    assert "61s ago" in text
    assert "\x1b" not in text
    assert text.count("\n") == 5


def test_without_sinks_nothing_is_said() -> None:
    assert format_sinks([], now_ms=NOW_MS) == ""


def test_the_numbers_are_json() -> None:
    found = msgspec.to_builtins(sink(paused_since_ms=5))
    assert (found["pausedSinceMs"], found["parts"][1]["partition"]) == (5, 1)
