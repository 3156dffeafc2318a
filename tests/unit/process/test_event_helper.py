"""event_helper.py: what it counts as lost where the process that records dies."""

from __future__ import annotations

import pytest

from eventbus.process import event_helper
from eventbus.process.event_helper import EventHelper


def recorded_by(program: str, monkeypatch: pytest.MonkeyPatch, *, about: str = "") -> tuple[int, str]:
    """Record two events with helpers that are *program*."""
    monkeypatch.setattr(event_helper, "_PROGRAM", ("-I", "-S", "-c", program))
    helper = EventHelper({"about": about})
    helper.record("Normal", "Started", "Started it")
    helper.record("Normal", "Completed", "Completed it")
    return helper.close()


def test_events_that_no_helper_lives_long_enough_to_be_told_are_each_lost_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # More than a socket holds, so that it dies before the first event can be sent to it.
    unsent = recorded_by("raise SystemExit(3)", monkeypatch, about="x" * 2_000_000)
    assert unsent == (2, "the process that records them ended with code 3")


def test_what_was_confirmed_is_not_lost_with_the_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = "import os; line = os.fdopen(0)\nfor _ in range(3): line.readline()\nos.write(0, b'sent 2\\n')"
    assert recorded_by(reads, monkeypatch) == (0, "")
