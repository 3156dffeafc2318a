"""What the doctor says of exports."""

from __future__ import annotations

from typing import Any

from eventbus.broker.health.bus_checks import PAUSED_LONG_MS, PAUSED_MS, check_exports
from eventbus.broker.health.export_status import SinkPart, SinkStatus
from eventbus.broker.health.findings import Finding, Severity

NOW_MS = 1_700_000_000_000


def sink(**fields: Any) -> SinkStatus:
    numbers: dict[str, Any] = dict.fromkeys(SinkPart.__struct_fields__, 0)
    part = SinkPart(**(numbers | {"holder": "w", "error": "", "seen_s": 7200.0, "lag": 5, "position": 1}))
    plain: dict[str, Any] = dict.fromkeys(SinkStatus.__struct_fields__, 0)
    plain |= {"name": "pg", "mode": "upsert", "error": "", "holders": ("w",), "orphans": (), "parts": (part,)}
    return SinkStatus(**(plain | fields))


def only(*sinks: SinkStatus) -> Finding:
    (found,) = check_exports(sinks, NOW_MS)
    return found


def test_a_sink_that_is_written_to_is_well() -> None:
    assert only(sink()).severity is Severity.OK
    assert not list(check_exports((), NOW_MS))


def test_a_pause_is_told_and_a_long_one_is_an_error() -> None:
    begun = NOW_MS - PAUSED_MS
    found = only(sink(paused_since_ms=begun, error="connection refused", lag=7))
    assert (found.severity, "connection refused" in found.message) == (Severity.WARNING, True)
    found = only(sink(paused_since_ms=NOW_MS - 24 * 60_000))
    assert found.severity is Severity.ERROR
    assert "paused for 24 min" in found.message
    assert PAUSED_LONG_MS < 24 * 60_000
    found = only(sink(paused_since_ms=NOW_MS - PAUSED_MS + 1))
    assert (found.severity, found.message) == (
        Severity.OK,
        "1 sink that did not answer just now; each is tried again",
    )


def test_a_sink_without_a_worker_is_told_with_both_cures() -> None:
    found = only(sink(orphans=(0,), paused_since_ms=1))
    assert found.severity is Severity.WARNING
    assert "pg has no worker since 2 h, and a lag of 5 changes" in found.message
    assert "eventbus group delete export:pg" in found.cure
