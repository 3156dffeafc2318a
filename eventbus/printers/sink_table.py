"""Formats the external sinks as tables for `status`. Pure functions from `SinkStatus` to text."""

from __future__ import annotations

from collections.abc import Sequence

from eventbus.broker.health.export_status import SinkStatus
from eventbus.printers.human_duration import human_duration
from eventbus.printers.table import Cell, Colour, Row, format_table

HEADERS = ("Sink", "State", "Lag", "Behind", "Pending", "Retries", "Held", "Dead", "Written")


def format_sinks(sinks: Sequence[SinkStatus], *, now_ms: int, colour: bool = False) -> str:
    """Format a line a sink, and one for each last error; empty without sinks."""
    if not sinks:
        return ""
    errors = [
        (sink.name, f"{_ago(now_ms, sink.error_ms)} ago", sink.error) for sink in sinks if sink.error and sink.error_ms
    ]
    table = format_table(HEADERS, (_row(sink, now_ms, colour) for sink in sinks))
    return "\n".join(text for text in (table, format_table(("Sink", "Last error", "Text"), errors)) if text)


def state_of(sink: SinkStatus, now_ms: int) -> str:
    """Say in a few words what the sink does, or why it does nothing."""
    paused = f"paused {_ago(now_ms, sink.paused_since_ms)}" if sink.paused_since_ms else ""
    orphans = len(sink.orphans)
    alone = "" if not orphans else "no worker" if orphans == len(sink.parts) else f"{orphans} without worker"
    if paused or alone:
        return ", ".join(text for text in (paused, alone) if text)
    return "retrying" if sink.retrying else "writing" if sink.lag else "idle"


def _row(sink: SinkStatus, now_ms: int, colour: bool) -> Row:
    warns = colour and bool(sink.paused_since_ms or sink.orphans or sink.retrying)
    return (
        sink.name,
        Cell(state_of(sink, now_ms), Colour.YELLOW if warns else Colour.PLAIN),
        str(sink.lag),
        human_duration(sink.behind_s),
        str(sink.pending),
        str(sink.retries),
        str(sink.held_back),
        Cell(str(sink.dead), Colour.YELLOW if colour and sink.dead else Colour.PLAIN),
        str(sink.written),
    )


def _ago(now_ms: int, then_ms: int) -> str:
    return human_duration(max(0, now_ms - then_ms) / 1000)
