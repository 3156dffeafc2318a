"""Prints for the demo: lines no wider than the terminal, with colours only on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from datetime import UTC, datetime

from eventbus.model.columns.events import interval
from eventbus.model.event import Event
from eventbus.util.text import printable

YELLOW, BOLD, FAINT = "33", "1", "2"


class Screen:
    """Standard output. Not a terminal: 100 columns, no colours."""

    def __init__(self) -> None:
        self._coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]

    def say(self, text: str = "", style: str = "") -> None:
        """One line, cut at the edge."""
        width = shutil.get_terminal_size((100, 24)).columns
        line = printable(text)
        line = line if len(line) <= width else line[: width - 1] + "…"
        print(f"\x1b[{style}m{line}\x1b[0m" if style and self._coloured else line, flush=True)

    def show(self, events: Iterable[Event]) -> None:
        """A line for each, as `kubectl events` would show it."""
        for event in events:
            self.say(row_of(event), YELLOW if event.type == "Warning" else "")


HEADER = f"{'LAST SEEN':<17} {'TYPE':<7} {'REASON':<16} {'OBJECT':<21} MESSAGE"


def row_of(event: Event) -> str:
    """Age, how often, type, reason, object and message, in columns."""
    about = event.involved_object
    name = f"{about.kind}/{about.name}"
    name = name if len(name) <= 21 else name[:20] + "…"
    seen = interval(event, datetime.now(UTC))
    return f"{seen:<17} {event.type:<7} {event.reason:<16} {name:<21} {event.message}"
