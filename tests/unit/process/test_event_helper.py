"""event_helper.py: what it counts as lost where the process that records dies."""

from __future__ import annotations

import sys
from pathlib import Path

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


def test_a_helper_outlives_what_the_terminal_sent_while_it_was_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable} -IS\nimport os, signal, sys\n"
        "for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP): os.kill(os.getpid(), number)\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("EVENTBUS_REDIS_URL", "none")
    helper = EventHelper({"about": None, "namespace": "default", "command": "it"})
    helper.record("Normal", "Started", "Started it")
    assert helper.close() == (0, "")
