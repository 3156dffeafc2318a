"""The picture in docs/correlation.md is what the function does."""

from __future__ import annotations

import secrets
from pathlib import Path

from eventbus.model.event import Event
from eventbus.settings import Options
from eventbus.store.stored import View, decode_stored
from tests.builders import make_event
from tests.conformance.model import time_of
from tests.conformance.recording import Recording
from tests.conformance.scenario import START_MS

PAGE = Path(__file__).parents[2] / "docs" / "correlation.md"
EVERY_S, ROW_S, HOUR_S = 10, 300, 3_600


def test_picture_of_a_crash_looping_object_is_what_happens(embedded_url: str) -> None:
    recording = Recording(embedded_url, f"hour-{secrets.token_hex(6)}", Options())
    try:
        drawn = hour(recording)
    finally:
        recording.close()
    _, picture, _ = PAGE.read_text(encoding="utf-8").split("```", 2)
    assert picture.splitlines()[2:] == drawn


def written_view(recording: Recording) -> list[Event]:
    """The stored events as exports have them."""
    packed = recording.client.mget(list(recording.client.scan_iter(match=recording.keys.object + b"*")))
    return [event for each in packed if (event := decode_stored(each, View.WRITTEN)) is not None]


def hour(recording: Recording) -> list[str]:
    """A line for every five minutes."""
    lines, marks, written = [], "", 0
    for second in range(0, HOUR_S, EVERY_S):
        at_ms = START_MS + second * 1_000
        letter = recording.send(at_ms, [make_event(reason="BackOff", type="Warning", first_timestamp=time_of(at_ms))])
        written += letter != "s"
        marks += "." if letter == "s" else "#"
        if (second + EVERY_S) % ROW_S == 0:
            shown = {event.reason: event.count for event in recording.store.list().items}
            sent = {event.reason: event.count for event in written_view(recording)}
            start = second // ROW_S * ROW_S // 60
            span, held_back = f"{start}–{start + 5}", shown["EventsSuppressed"]
            lines.append(f"  {span:>5}  {marks}{written:9}{sent['BackOff']:16}{shown['BackOff']:14}{held_back:19}")
            marks = ""
    return lines
